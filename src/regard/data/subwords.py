"""Vocabularies learned from text: BPE or unigram subwords, words, or characters.

The `tokenizers` library splits the text. Text is normalized to NFC or NFKC (see `make_normalizer`), the space before
each word is replaced by `▁`, and punctuation is split off. Joining the tokens restores the text. The first four indices
are the special tokens of `vocabulary`. Text is never converted to special tokens: `</s>` in a line is four characters.
"""

import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from tokenizers import Encoding, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from regard.arguments import Limits
from regard.data.tokenization import BETWEEN_LETTERS, LETTERS_PER_BLANK, WITHOUT_BLANKS, Span, find_script
from regard.data.vocabulary import (
    BLANK,
    EOS,
    SPECIAL,
    UNKNOWN,
    LearnedVocabulary,
    SymbolVocabulary,
    TokenizerKind,
    replace_surrogates,
)
from regard.errors import InputError, RegardError, shorten
from regard.io import DamageError, convert_json, damage_errors, parse_json
from regard.libraries import library_errors

Normalization = Literal["nfkc", "quotes"]
QUOTES = {  # Characters that become straight quotes: curved and angle quotes, and accents used as quotes, as in Moses
    '"': "\u201c\u201d\u201e\u201f\u00ab\u00bb\u301d\u301e",
    "'": "\u2018\u2019\u201a\u201b\u2039\u203a\u0060\u00b4",
}
MARKS = 0xF0000  # First character of the private use area (plane 15) that stands for a symbol during normalization
MOST_SYMBOLS = 1000
PUNCTUATION = r"[\p{P}$+<=>^`|~]"
RESERVED_SYMBOL = re.compile(r"<(pad|s|/s|unk|0x[0-9A-F]{2})>")  # Names of special tokens and of bytes in vocabularies


def check_symbols(symbols: Sequence[str]) -> tuple[str, ...]:
    """Return the symbols that stay whole. A single symbol that names a file is replaced by the lines of the file.

    >>> check_symbols(["<2en>", "__NUM__"])
    ('<2en>', '__NUM__')
    """
    names = symbols
    if len(symbols) == 1 and Path(symbols[0]).is_file():
        try:
            symbols = [line for line in Path(symbols[0]).read_text(encoding="utf-8").splitlines() if line]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {symbols[0]!r}: give a UTF-8 file with one symbol a line") from error
    if not symbols and names:
        raise InputError(f"{names[0]!r} has no symbols: give a file with one symbol a line")
    if len(names) == 1 and not symbols[0].startswith("<") and Path(names[0]).suffix and symbols == names:
        raise InputError(f"no file {names[0]!r}: give a file with one symbol a line, or symbols like '<2en>'")
    for symbol in symbols:
        problem = ""
        if symbol.split() != [symbol] or BLANK in symbol or not symbol.isprintable():
            problem = "has a space or an invisible character"
        elif RESERVED_SYMBOL.fullmatch(symbol):
            problem = "is the name of a special token"
        elif any(ord(character) >= MARKS for character in symbol):
            problem = "has a character of a private use area"
        elif symbols.count(symbol) > 1:
            problem = "is given twice"
        if problem:
            raise InputError(f"symbol {shorten(symbol)} {problem}: give symbols such as '<2en>' or __NUM__")
    if len(symbols) > MOST_SYMBOLS:
        raise InputError(f"symbols has {len(symbols):,} entries: give at most {MOST_SYMBOLS:,}")
    return tuple(symbols)


def make_normalizer(
    *, lowercase: bool = False, normalize: Sequence[Normalization] = (), symbols: Sequence[str] = ()
) -> normalizers.Normalizer:
    """Return a normalizer: NFC, or NFKC with single spaces, straight quotes, and lower case, except in symbols.

    >>> rules = make_normalizer(lowercase=True, normalize=["nfkc", "quotes"], symbols=["__NUM__"])
    >>> rules.normalize_str("„Ｅｉｎ__NUM__“")
    '"ein__NUM__"'
    """
    # A symbol that is a part of another symbol must not replace this part.
    longest_first = sorted(symbols, key=len, reverse=True)
    marks = [(symbol, chr(MARKS + number)) for number, symbol in enumerate(longest_first)]
    steps: list[normalizers.Normalizer] = []
    if marks:  # characters of the area in the text itself must not become symbols
        steps.append(normalizers.Replace(Regex(f"[{marks[0][1]}-{marks[-1][1]}]"), "\ufffd"))
    steps += [normalizers.Replace(symbol, mark) for symbol, mark in marks]
    if "quotes" in normalize:  # before NFKC, which makes a space of an accent
        steps += [normalizers.Replace(Regex(f"[{characters}]"), straight) for straight, characters in QUOTES.items()]
    if "nfkc" in normalize:
        # NFKC makes spaces of other characters. Words are tokenized one by one, so that their spaces may depend
        # only on the word.
        steps += [normalizers.NFKC(), normalizers.Replace(Regex(" +"), " ")]
        steps.append(normalizers.Replace(Regex(r"\A | \z"), ""))
    else:
        steps.append(normalizers.NFC())
    if lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence([*steps, *(normalizers.Replace(mark, symbol) for symbol, mark in marks)])


def make_pre_tokenizer(symbols: Sequence[str] = ()) -> pre_tokenizers.PreTokenizer:
    """Return a splitter of text into words that begin with `▁`, punctuation marks, and whole symbols. A symbol
    after a space includes the `▁`, so that a tag at the beginning of a text is one token."""
    punctuation: pre_tokenizers.PreTokenizer = pre_tokenizers.Punctuation("isolated")
    if symbols:
        whole = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))
        punctuation = pre_tokenizers.Split(Regex(f"{BLANK}?(?:{whole})|{PUNCTUATION}"), "isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.Metaspace(BLANK, prepend_scheme="always"), punctuation])


Index = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
BYTE = "<0x{:02X}>"  # Name of the token of a byte, as in SentencePiece
BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
RESERVED = ("<pad>", "<s>", "</s>", "<unk>")  # The first four symbols in the file of a tokenizer
FAILURE, REMEDY = ("the vocabulary cannot split this text", "give another text, or import or train the model again")
"""The parts of the message for a failure of the library."""


class _Bpe(msgspec.Struct, tag_field="type", tag="BPE"):
    """The stored BPE model: the index of each piece, and the pairs to merge in order."""

    vocab: dict[str, Index]
    merges: list[tuple[str, str]]


class _Words(msgspec.Struct, tag_field="type", tag="WordLevel"):
    """The stored word model: the index of each word."""

    vocab: dict[str, Index]
    merges = ()


class _Unigram(msgspec.Struct, tag_field="type", tag="Unigram"):
    """The stored unigram model: each piece with its log-probability, ordered by index."""

    vocab: list[tuple[str, float]]
    merges = ()


class _Stored(msgspec.Struct):
    """The required content of the JSON of a tokenizer. Other fields are not checked."""

    model: _Bpe | _Words | _Unigram
    normalizer: dict[str, Any]
    pre_tokenizer: dict[str, Any]
    added_tokens: Annotated[list[Any], msgspec.Meta(max_length=0)]


class SubwordVocabulary(SymbolVocabulary):
    """A vocabulary that wraps a `tokenizers.Tokenizer`."""

    line_feed = EOS  # Token of a line feed in a text of many lines, each of which is encoded separately
    unknown_index = UNKNOWN
    prefix: Sequence[int] = ()  # Tokens at the beginning of each sequence: none
    without_blanks: Sequence[str] = ()
    """Scripts without spaces between words in the text from which this object was learned."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stored = json.loads(tokenizer.to_str())
        self._by_bytes = bool(self._stored["model"].get("byte_fallback"))
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        super().__init__(sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIAL) :])

    def encode(self, text: str) -> list[int]:
        return self._encode(text).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        with library_errors("tokenizers", FAILURE, REMEDY):
            encodings = self._tokenizer.encode_batch_fast(list(map(replace_surrogates, texts)))
            return [encoding.ids for encoding in encodings]

    def _encode(self, text: str) -> Encoding:
        with library_errors("tokenizers", FAILURE, REMEDY):
            return self._tokenizer.encode(replace_surrogates(text))

    @property
    def splits_at_blanks(self) -> bool:
        stored = self._stored["pre_tokenizer"]
        first, *others = stored.get("pretokenizers", [stored])
        expected = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}
        return bool(first == expected and all(step["type"] in ("Punctuation", "Split") for step in others))

    @property
    def whole(self) -> list[str]:
        """The symbols that stay one token, from the steps of the normalizer that restore them."""
        steps = self._stored["normalizer"].get("normalizers", [])
        replaced = [
            (step.get("pattern", {}).get("String", ""), step["content"])
            for step in steps
            if step.get("type") == "Replace"
        ]
        return [content for mark, content in replaced if len(mark) == 1 and ord(mark) >= MARKS]

    @property
    def lowercase(self) -> bool:
        return any(step.get("type") == "Lowercase" for step in self._stored["normalizer"].get("normalizers", []))

    def byte_tokens(self, text: str) -> list[int]:
        """Return the tokens of the bytes of a text; empty for a vocabulary without bytes."""
        return [self._indices[BYTE.format(value)] for value in text.encode()] if self._by_bytes else []

    def words(self, text: str) -> list[str]:
        with library_errors("tokenizers", FAILURE, REMEDY):
            normalized = self._tokenizer.normalizer.normalize_str(replace_surrogates(text))
            return [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]

    def pieces(self, text: str) -> list[str]:
        text = replace_surrogates(text)
        encoding = self._encode(text)
        return [
            text[begin:end].strip() if index == UNKNOWN else self.symbols[index]
            for index, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True)
        ]

    def offsets(self, text: str) -> list[Span]:
        encoding, lone = self._encode(text), self._indices.get(BLANK)
        # The piece of a space before the text has no characters.
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        return [(begin, begin if id == lone and text[begin:end].strip() else end) for id, (begin, end) in spans]

    def unknown(self, text: str) -> list[str]:
        tokens = zip(self.encode(text), self.pieces(text), strict=True)
        return sorted({piece for index, piece in tokens if index == UNKNOWN})

    def decode(self, indices: Sequence[int]) -> str:
        pieces = self._known(indices)
        text = join_bytes(pieces) if self._by_bytes else "".join(pieces)
        return text.replace(BLANK, " ").removeprefix(" ")

    def to_json(self) -> str:
        return self._tokenizer.to_str(pretty=True)

    @classmethod
    def from_json(cls, text: str) -> "SubwordVocabulary":
        with damage_errors("tokenizer", "restore the model from a copy, or train it again"):
            model = convert_json(parse_json(text), _Stored).model
            if isinstance(model, _Unigram):
                pieces = [piece for piece, _ in model.vocab]
            else:
                pieces = sorted(model.vocab, key=model.vocab.__getitem__)
                for index, piece in enumerate(pieces):
                    if model.vocab[piece] != index:
                        raise DamageError(f"its piece {piece!r} has index {model.vocab[piece]}, not {index}")
            if tuple(pieces[: len(RESERVED)]) != RESERVED:
                raise DamageError(f"its first pieces are not {', '.join(RESERVED)}")
            known = set(pieces)
            if len(known) < len(pieces):
                raise DamageError("it lists a piece twice")
            for pair in model.merges:
                for piece in (*pair, "".join(pair)):
                    if piece not in known:
                        raise DamageError(f"its merges use {piece!r}, which is not in its vocabulary")
            return cls(make_tokenizer(text))


def join_bytes(pieces: Sequence[str]) -> str:
    """Return the text of pieces. Consecutive tokens of bytes become characters, or U+FFFD if they are not UTF-8.

    >>> join_bytes(["caf", "<0xC3>", "<0xA9>"])
    'café'
    """
    parts = []
    for is_byte, group in groupby(pieces, lambda piece: BYTE_TOKEN.fullmatch(piece) is not None):
        run = list(group)
        values = bytes(int(piece[3:5], 16) for piece in run) if is_byte else b""
        parts.append(values.decode(errors="replace") if is_byte else "".join(run))
    return "".join(parts)


def make_tokenizer(text: str) -> Tokenizer:
    try:
        return Tokenizer.from_str(text)
    except BaseException as error:  # the library raises bare exceptions, and panics that are not an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise DamageError("the tokenizers library cannot read it") from error


def vocabulary_from_symbols(symbols: Sequence[str], *, words: bool, lowercase: bool = False) -> SubwordVocabulary:
    """Return a vocabulary of `symbols`, with indices from 4 on.

    `words`: whether the symbols are words separated by spaces. Otherwise, the symbols are characters, with `▁`
    for a space. `lowercase`: convert text to lower case first. The text is not normalized in other ways.

    >>> vocabulary_from_symbols(["ein", "Hund"], words=True).encode("ein Hund bellt")
    [4, 5, 3]
    """
    names = [*RESERVED, *(f"{BLANK}{symbol}" if words else symbol for symbol in symbols)]
    tokenizer = Tokenizer(
        models.WordLevel({name: index for index, name in enumerate(names)}, unk_token=RESERVED[UNKNOWN])
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase()] if lowercase else [])
    if words:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(BLANK, prepend_scheme="always")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Metaspace(BLANK, prepend_scheme="never", split=False), pre_tokenizers.Split("", "isolated")]
        )
    return SubwordVocabulary.from_json(without_added_tokens(tokenizer))


def without_added_tokens(tokenizer: Tokenizer) -> str:
    """Return the JSON of a tokenizer without added tokens, so that special symbols are not recognized in text."""
    return json.dumps(json.loads(tokenizer.to_str()) | {"added_tokens": []})


MIN_COUNT = 5
"""Smallest number of occurrences of a pair of pieces that becomes one subword. The 12,000 subwords of Multi30k
(29,000 pairs) all occur at least this often, so the limit changes small texts only."""
MIN_DENSE_COUNT = 100
"""Smallest number of occurrences of a subword in a script without spaces between words (Gowda and May 2020: at least
100 training examples for each symbol). Without the limit, frequent phrases and whole sentences become subwords."""
BATCH = 10_000  # Number of texts that are encoded together
BYTES = [BYTE.format(value) for value in range(256)]  # Tokens of the 256 bytes, by the names of SentencePiece


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
    text (`make_normalizer`). `symbols`: strings that stay one token; each has a token with and a token without a
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
    if kind == "sentencepiece":
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
    unknown = RESERVED[UNKNOWN]
    if kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
    else:
        tokenizer = Tokenizer((models.WordLevel if kind == "words" else models.BPE)(unk_token=unknown))
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
        # The initial characters: the most frequent ones within the size. The library is not used for the
        # selection, because it breaks ties between equally frequent characters at random.
        ranked = sorted(characters, key=lambda character: (-characters[character], character))
        tokenizer.train_from_iterator(texts, _make_trainer(kind, free, ranked[: max(1, free - len(RESERVED))]))
        learned = without_added_tokens(tokenizer)
        if kind in ("bpe", "unigram") and (dense := _scripts_without_blanks(characters, blanks)):
            learned = _drop_rare(learned, texts, dense)
    except RegardError:  # an error of the text has its own message
        raise
    except Exception as error:  # the library raises bare exceptions
        raise InputError(f"no {kind} vocabulary of {size} symbols can be learned from this text: {error}") from error
    if added:
        learned = _add_tokens(learned, added, byte_fallback)
    vocabulary = SubwordVocabulary(Tokenizer.from_str(learned))
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
        is_dense = len(piece) > 1 and piece not in RESERVED and any(find_script(letter) in scripts for letter in piece)
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
    # A BPE model without merges is a vocabulary of characters. For BPE, characters occupy at most half of the size.
    limit = max(1, len(alphabet) if kind == "characters" else min(len(alphabet), (size - len(RESERVED)) // 2))
    return trainers.BpeTrainer(
        vocab_size=0 if kind == "characters" else size,
        min_frequency=MIN_COUNT,
        initial_alphabet=alphabet[:limit],
        limit_alphabet=limit,
        **options,
    )


SEGMENTATIONS = 32  # The number of segmentations of each word
WORDS = 200_000  # The number of words whose segmentations are cached


class BpeDropout:
    """Splits encoded sentences again and skips each BPE merge with probability `rate`. Raises `InputError` for
    a rate out of range, or for a vocabulary that was not learned with BPE."""

    def __init__(self, vocabulary: LearnedVocabulary, rate: float, seed: int) -> None:
        Limits(0, 1, "high").check("merge_dropout", rate)
        model = json.loads(vocabulary.to_json())["model"] if isinstance(vocabulary, SubwordVocabulary) else {}
        if not isinstance(vocabulary, SubwordVocabulary) or model["type"] != "BPE" or not model["merges"]:
            raise InputError("merge_dropout skips merges: use it with --tokenizer bpe, which has merges")
        self.vocabulary, self.rate, self.seed = vocabulary, rate, seed
        self.indices: dict[str, int] = model["vocab"]
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._whole = {f"{blank}{symbol}" for symbol in vocabulary.whole for blank in (BLANK, "")}
        self._segmentations = lru_cache(WORDS)(self._draw_segmentations)

    def __call__(self, sentence: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return a random segmentation (T',) of a sentence of indices (T,) with its end of sequence."""
        words = self.vocabulary.words(self.vocabulary.decode(sentence.tolist()))
        choices = random.integers(SEGMENTATIONS, size=len(words)).tolist()
        indices = [
            index for word, choice in zip(words, choices, strict=True) for index in self._segmentations(word)[choice]
        ]
        return np.array([*indices, EOS], dtype=sentence.dtype)

    def _draw_segmentations(self, word: str) -> list[list[int]]:
        if word in self._whole:
            return [[self.indices[word]]] * SEGMENTATIONS
        # The word is part of the seed, so that segmentations do not depend on the order of words.
        random = np.random.default_rng((self.seed, zlib.crc32(word.encode())))
        segmentations = []
        for _ in range(SEGMENTATIONS):
            indices: list[int] = []
            for piece in self.split(word, random):
                known = [self.indices[piece]] if piece in self.indices else self.vocabulary.byte_tokens(piece)
                indices += known or [UNKNOWN]
            segmentations.append(indices)
        return segmentations

    def split(self, word: str, random: np.random.Generator) -> list[str]:
        """Return the pieces of a word (algorithm 1 of the paper)."""
        pieces = list(word)
        while len(pieces) > 1:
            draws = random.random(len(pieces) - 1)
            merges = [
                (self.ranks[pair], index)
                for index, pair in enumerate(pairwise(pieces))
                if pair in self.ranks and draws[index] >= self.rate
            ]
            if not merges:
                break
            _, index = min(merges)
            pieces[index : index + 2] = ["".join(pieces[index : index + 2])]
        return pieces
