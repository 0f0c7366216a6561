"""Learn vocabularies from text: BPE or unigram subwords, words, or characters."""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from tokenizers import Tokenizer, decoders, models, trainers

from regard.data.subwords import (
    BYTE,
    RESERVED,
    Normalization,
    SubwordVocabulary,
    make_normalizer,
    make_pre_tokenizer,
    without_added_tokens,
)
from regard.data.tokenization import BETWEEN_LETTERS, LETTERS_PER_BLANK, WITHOUT_BLANKS, find_script
from regard.data.vocabulary import BLANK, UNKNOWN, TokenizerKind, replace_surrogates
from regard.errors import InputError, RegardError

MIN_COUNT = 5
"""Smallest number of occurrences of a pair of pieces that becomes one subword. The 12,000 subwords of Multi30k
(29,000 pairs) all occur at least this often, so the limit changes small texts only."""
MIN_DENSE_COUNT = 100
"""Smallest number of occurrences of a subword in a script without spaces between words (Gowda and May 2020: at
least 100 training examples for each symbol). Without the limit, frequent phrases and whole sentences become
subwords."""
BATCH = 10_000
"""Number of texts that are encoded together."""
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

    For BPE, characters occupy at most half of `size`, and pairs that occur fewer than `MIN_COUNT` times are not
    merged. In scripts without spaces in this text, which the vocabulary then names in `without_blanks`, subwords
    occur at least `MIN_DENSE_COUNT` times. Equal texts produce equal vocabularies, except for
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
    learned, dense = "", set[str]()
    try:
        characters, blanks = Counter[str](), Counter[str]()
        if kind != "words":
            characters, blanks = _survey(texts, tokenizer)
        tokenizer.train_from_iterator(texts, _make_trainer(kind, free, _choose_alphabet(characters, free)))
        learned = without_added_tokens(tokenizer)
        if kind in ("bpe", "unigram") and (dense := _scripts_without_blanks(characters, blanks)):
            learned = _drop_rare(learned, texts, dense)
    except RegardError:  # an error of the text has its own message
        raise
    except Exception as error:  # the library raises bare exceptions
        raise InputError(
            f"no {kind} vocabulary of {size} symbols can be learned from this text: {error}"
        ) from error
    vocabulary = SubwordVocabulary(Tokenizer.from_str(_add_tokens(learned, added, byte_fallback)))
    vocabulary.without_blanks = sorted(dense)
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


def _survey(texts: Iterable[str], tokenizer: Tokenizer) -> tuple[Counter[str], Counter[str]]:
    """Return the number of each character, and the number of spaces after letters of each script."""
    # Normalize each distinct word once, because most words occur repeatedly. Normalization to NFC and lower
    # case does not cross word boundaries.
    words, counts, borders = Counter[str](), Counter({BLANK: 1}), Counter[tuple[str, str]]()
    for text in texts:
        parts = text.split(" ")
        words.update(parts)
        counts[BLANK] += len(parts) - 1
        borders.update(BETWEEN_LETTERS.findall(text))
    for word, times in words.items():
        for character in tokenizer.normalizer.normalize_str(word):
            counts[BLANK if character == " " else character] += times
    blanks = Counter[str]()
    for letters, times in borders.items():
        before, after = map(find_script, letters)
        # A space between Japanese and English does not separate words of the same script. Japanese itself has
        # several scripts.
        if (before in WITHOUT_BLANKS) == (after in WITHOUT_BLANKS):
            blanks[before] += times
    return counts, blanks


def _choose_alphabet(counts: Counter[str], size: int) -> list[str]:
    """Return the initial characters: all characters, or the most frequent ones within `size`.

    The library is not used for the selection, because it breaks ties between equally frequent characters at
    random.
    """
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    return ranked[: max(1, size - len(RESERVED))]


def _scripts_without_blanks(characters: Counter[str], blanks: Counter[str]) -> set[str]:
    """Return the scripts that have no spaces between words in a text, by the results of `_survey`."""
    letters = Counter[str]()
    for character, times in characters.items():
        if unicodedata.category(character)[0] in "LM":
            letters[find_script(character)] += times
    return {script for script, times in letters.items() if times > LETTERS_PER_BLANK * blanks[script]}


def _drop_rare(tokenizer: str, texts: Iterable[str], scripts: set[str]) -> str:
    """Return the JSON of a tokenizer without the subwords of these scripts that are too rare."""
    stored = json.loads(tokenizer)
    model, splitter, counts = stored["model"], Tokenizer.from_str(tokenizer), Counter[str]()
    lines = iter(texts)
    while batch := list(map(replace_surrogates, islice(lines, BATCH))):
        for encoding in splitter.encode_batch(batch, add_special_tokens=False):
            counts.update(encoding.tokens)
    # A piece of BPE also occurs in the pieces that were merged from it.
    for left, right in reversed(model.get("merges", [])):
        for part in (left, right):
            counts[part] += counts[left + right]

    def is_kept(piece: str) -> bool:
        is_dense = (
            len(piece) > 1 and piece not in RESERVED and any(find_script(letter) in scripts for letter in piece)
        )
        return not is_dense or counts[piece] >= MIN_DENSE_COUNT

    if model["type"] == "Unigram":
        model["vocab"] = [entry for entry in model["vocab"] if is_kept(entry[0])]
    else:
        pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
        model["vocab"] = {piece: index for index, piece in enumerate(filter(is_kept, pieces))}
        model["merges"] = [pair for pair in model["merges"] if all(map(is_kept, (*pair, "".join(pair))))]
    return json.dumps(stored)


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
        min_frequency=MIN_COUNT,
        initial_alphabet=alphabet[:limit],
        limit_alphabet=limit,
        **options,
    )
