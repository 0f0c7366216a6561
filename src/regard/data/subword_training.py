"""Learn vocabularies from text: BPE or unigram subwords, words, or characters."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, trainers

from regard.data.subwords import BYTE, RESERVED, SubwordVocabulary, without_added_tokens
from regard.data.text_rules import Normalization, make_normalizer, make_pre_tokenizer
from regard.data.vocabulary import BLANK, UNKNOWN, TokenizerKind
from regard.errors import InputError, RegardError

BYTES = [BYTE.format(value) for value in range(256)]
"""Tokens of the 256 bytes, by the names of SentencePiece."""


def train_subwords(
    texts: Iterable[str],
    *,
    kind: TokenizerKind,
    size: int,
    lowercase: bool = False,
    normalize: Sequence[Normalization] = (),
    symbols: Sequence[str] = (),
    byte_fallback: bool = False,
) -> SubwordVocabulary:
    """Learn a vocabulary of at most `size` symbols from `texts`, which are read repeatedly.

    `size` includes the four special symbols. `kind`: "bpe" repeatedly merges the most frequent pair of pieces
    (Sennrich et al. 2016); "unigram" removes the pieces whose removal reduces the likelihood least (Kudo 2018);
    "words" and "characters" select the most frequent words or characters. `lowercase`, `normalize`: rules for
    text (`text_rules`). `symbols`: strings that stay one token; each has a token with and a token without a
    preceding space. `byte_fallback`: subwords get 256 tokens of bytes, so that no character is unknown. Raises
    `InputError` if `size` is too small for the special symbols and every character.

    For BPE, characters occupy at most half of `size`. Equal texts produce equal vocabularies, except for
    "unigram", because the order of summation in the library varies.

    >>> vocabulary = train_subwords(["ein Hund", "ein Hut"], kind="bpe", size=20)
    >>> vocabulary.decode(vocabulary.encode("ein Hut"))
    'ein Hut'
    """
    if kind in ("sentencepiece", "codes"):
        raise InputError(
            f"tokenizer {kind} comes with imported models and cannot be learned: choose bpe, unigram, words, "
            f"characters, or give a file, such as own.model"
        )
    if byte_fallback and kind not in ("bpe", "unigram"):
        raise InputError(f"byte_fallback needs subwords: choose --tokenizer bpe or unigram, not {kind}")
    added = [*(f"{blank}{symbol}" for symbol in symbols for blank in (BLANK, "")), *(BYTES * byte_fallback)]
    free = size - len(added)
    if free <= len(RESERVED):
        raise InputError(
            f"vocab_size {size} leaves no room for symbols besides the {len(RESERVED) + len(added)} special "
            f"symbols: choose a larger size"
        )
    tokenizer = Tokenizer(_make_model(kind))
    tokenizer.normalizer = make_normalizer(lowercase=lowercase, normalize=normalize, symbols=symbols)
    tokenizer.pre_tokenizer = make_pre_tokenizer(symbols)
    decoder = decoders.Metaspace(BLANK, prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoder]) if byte_fallback else decoder
    if symbols:
        texts = _WithoutSymbols(texts, symbols)
    try:
        alphabet = _choose_alphabet(texts, tokenizer, free) if kind in ("bpe", "characters") else []
        tokenizer.train_from_iterator(texts, _make_trainer(kind, free, alphabet))
    except RegardError:  # an error of the text has its own message
        raise
    except Exception as error:  # the library raises bare exceptions
        raise InputError(
            f"no {kind} vocabulary of {size} symbols can be learned from this text: {error}"
        ) from error
    stored = _add_tokens(without_added_tokens(tokenizer), added, byte_fallback)
    vocabulary = SubwordVocabulary(Tokenizer.from_str(stored))
    if len(vocabulary) > size:
        raise InputError(
            f"vocab_size {size} leaves no room for {len(RESERVED) + len(added)} special symbols and every "
            f"character of the text: choose at least {len(vocabulary)}"
        )
    return vocabulary


class _WithoutSymbols:
    """Texts whose whole symbols are replaced by spaces, because their characters teach nothing about words."""

    def __init__(self, texts: Iterable[str], symbols: Sequence[str]) -> None:
        self._texts, self._symbols = texts, sorted(symbols, key=len, reverse=True)

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            for symbol in self._symbols:
                text = text.replace(symbol, " ")
            yield text


def _add_tokens(tokenizer: str, tokens: Sequence[str], byte_fallback: bool) -> str:
    """Return the JSON of a tokenizer with tokens after the learned pieces. Equal pieces are not repeated."""
    stored = json.loads(tokenizer)
    model, vocabulary = stored["model"], stored["model"]["vocab"]
    if not tokens:
        return tokenizer
    if model["type"] == "Unigram":  # a log-probability of 0 is better than any split of the token
        names = {piece: index for index, (piece, _) in enumerate(vocabulary)}
        for token in tokens:
            if token in names:
                vocabulary[names[token]][1] = 0.0
            else:
                vocabulary.append([token, 0.0])
    else:
        for token in tokens:
            vocabulary.setdefault(token, len(vocabulary))
    if model["type"] == "BPE":
        model["ignore_merges"] = True  # a whole symbol has no merges
    if byte_fallback:
        model["byte_fallback"] = True
    return json.dumps(stored)


def _make_model(kind: TokenizerKind) -> models.Model:
    if kind == "words":
        return models.WordLevel(unk_token=RESERVED[UNKNOWN])
    if kind == "unigram":
        return models.Unigram()
    return models.BPE(unk_token=RESERVED[UNKNOWN])


def _choose_alphabet(texts: Iterable[str], tokenizer: Tokenizer, size: int) -> list[str]:
    """Return the initial characters: all characters, or the most frequent ones within `size`.

    The library is not used for the selection, because it breaks ties between equally frequent characters at
    random.
    """
    # Normalize each distinct word once, because most words occur repeatedly. Normalization to NFC and lower
    # case does not cross word boundaries.
    words, counts = Counter[str](), Counter({BLANK: 1})
    for text in texts:
        parts = text.split(" ")
        words.update(parts)
        counts[BLANK] += len(parts) - 1
    for word, times in words.items():
        for character in tokenizer.normalizer.normalize_str(word):
            counts[BLANK if character == " " else character] += times
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    return ranked[: max(1, size - len(RESERVED))]


def _make_trainer(kind: TokenizerKind, size: int, alphabet: list[str]) -> trainers.Trainer:
    options: dict[str, Any] = {"special_tokens": list(RESERVED), "show_progress": False}
    if kind == "words":
        return trainers.WordLevelTrainer(vocab_size=size, **options)
    if kind == "unigram":
        return trainers.UnigramTrainer(vocab_size=size, unk_token=RESERVED[UNKNOWN], **options)
    # A BPE model without merges is a vocabulary of characters. For BPE, characters occupy at most half of the
    # size.
    limit = max(1, len(alphabet) if kind == "characters" else min(len(alphabet), (size - len(RESERVED)) // 2))
    return trainers.BpeTrainer(
        vocab_size=0 if kind == "characters" else size,
        initial_alphabet=alphabet[:limit],
        limit_alphabet=limit,
        **options,
    )
