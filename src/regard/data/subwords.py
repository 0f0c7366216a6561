"""Vocabularies learned from text: BPE or unigram subwords, words, or characters (see `subword_training`).

The `tokenizers` library splits the text. Text is normalized to NFC or NFKC (see `text_rules`), the space before
each word is replaced by `▁`, and punctuation is split off. Joining the tokens restores the text. The first four
indices are the special tokens of `vocabulary`. Text is never converted to special tokens: `</s>` in a line is
four characters.
"""

import json
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from tokenizers import Encoding, Regex, Tokenizer, models, normalizers, pre_tokenizers

from regard.data.tokenization import Span
from regard.data.vocabulary import (
    BLANK,
    EOS,
    SPECIAL,
    UNKNOWN,
    LearnedVocabulary,
    SymbolVocabulary,
    replace_surrogates,
)
from regard.errors import InputError, check_share, shorten
from regard.io.reading import DamageError, convert_json, parse_json
from regard.libraries import library_errors

Normalization = Literal["nfkc", "quotes"]
QUOTES = {
    '"': "\u201c\u201d\u201e\u201f\u00ab\u00bb\u301d\u301e",
    "'": "\u2018\u2019\u201a\u201b\u2039\u203a\u0060\u00b4",
}
"""Characters that become straight quotes: curved and angle quotes, and accents used as quotes, as in Moses."""
MARKS = 0xF0000
"""First character of the private use area (plane 15) that stands for a symbol during normalization."""
MOST_SYMBOLS = 1000
PUNCTUATION = r"[\p{P}$+<=>^`|~]"
RESERVED_SYMBOL = re.compile(r"<(pad|s|/s|unk|0x[0-9A-F]{2})>")
"""Names of special tokens and of bytes in vocabularies."""


def check_symbols(symbols: Sequence[str]) -> tuple[str, ...]:
    """Return the symbols that stay whole. A single symbol that names a file is replaced by the lines of the file.

    Raises `InputError` for symbols with whitespace, names of special tokens, duplicates, and too many symbols.

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
        steps += [
            normalizers.Replace(Regex(f"[{characters}]"), straight) for straight, characters in QUOTES.items()
        ]
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
    """Return a splitter of text into words that begin with `▁`, punctuation marks, and whole symbols.

    A symbol after a space includes the `▁`, so that a tag at the beginning of a text is one token.
    """
    punctuation: pre_tokenizers.PreTokenizer = pre_tokenizers.Punctuation("isolated")
    if symbols:
        whole = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))
        punctuation = pre_tokenizers.Split(Regex(f"{BLANK}?(?:{whole})|{PUNCTUATION}"), "isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.Metaspace(BLANK, prepend_scheme="always"), punctuation])


def whole_symbols(normalizer: dict[str, object]) -> list[str]:
    """Return the whole symbols of a stored normalizer (plain data of the `tokenizers` library)."""
    steps: Any = normalizer.get("normalizers", [])
    contents = [
        (step.get("pattern", {}).get("String", ""), step["content"])
        for step in steps
        if step.get("type") == "Replace"
    ]
    return [content for pattern, content in contents if len(pattern) == 1 and ord(pattern) >= MARKS]


Index = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
BYTE = "<0x{:02X}>"
"""Name of the token of a byte, as in SentencePiece."""
BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
RESERVED = ("<pad>", "<s>", "</s>", "<unk>")
"""The first four symbols in the file of a tokenizer."""
FAILURE, REMEDY = (
    "the vocabulary cannot split this text",
    "give another text, or import or train the model again",
)
"""The parts of the message for a failure of the library."""


class _Bpe(msgspec.Struct, tag_field="type", tag="BPE"):
    """The stored BPE model: the index of each piece, and the pairs to merge in order."""

    vocab: dict[str, Index]
    merges: list[tuple[str, str]]

    @property
    def pieces(self) -> list[str]:
        return _sort_by_index(self.vocab)


class _Words(msgspec.Struct, tag_field="type", tag="WordLevel"):
    """The stored word model: the index of each word."""

    vocab: dict[str, Index]
    merges = ()

    @property
    def pieces(self) -> list[str]:
        return _sort_by_index(self.vocab)


class _Unigram(msgspec.Struct, tag_field="type", tag="Unigram"):
    """The stored unigram model: each piece with its log-probability, ordered by index."""

    vocab: list[tuple[str, float]]
    merges = ()

    @property
    def pieces(self) -> list[str]:
        return [piece for piece, _ in self.vocab]


class _Stored(msgspec.Struct):
    """The required content of the JSON of a tokenizer. Other fields are not checked."""

    model: _Bpe | _Words | _Unigram
    normalizer: dict[str, Any]
    pre_tokenizer: dict[str, Any]
    added_tokens: Annotated[list[Any], msgspec.Meta(max_length=0)]


class SubwordVocabulary(SymbolVocabulary):
    """A vocabulary that wraps a `tokenizers.Tokenizer`."""

    line_feed = EOS
    """Token of a line feed in a text of many lines, each of which is encoded separately."""
    unknown_index = UNKNOWN
    prefix: Sequence[int] = ()
    """Tokens at the beginning of each sequence: none."""
    without_blanks: Sequence[str] = ()
    """Scripts without spaces between words in the text from which this object was learned."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stored = json.loads(tokenizer.to_str())
        self._by_bytes = bool(self._stored["model"].get("byte_fallback"))
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        super().__init__(sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIAL) :])

    def encode(self, text: str) -> list[int]:
        """Return the indices of a text without an end of sequence. Unknown tokens get `UNKNOWN`."""
        return self._encode(text).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        with library_errors("tokenizers", FAILURE, REMEDY):
            encodings = self._tokenizer.encode_batch_fast(list(map(replace_surrogates, texts)))
            return [encoding.ids for encoding in encodings]

    def _encode(self, text: str) -> Encoding:
        """Encode a text. Raises `InputError` if the library fails, for example for an unusual tokenizer."""
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
        return whole_symbols(self._stored["normalizer"])

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
        """Return the tokens of a text, including unknown tokens."""
        text = replace_surrogates(text)
        encoding = self._encode(text)
        return [
            text[begin:end].strip() if index == UNKNOWN else self.symbols[index]
            for index, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True)
        ]

    def offsets(self, text: str) -> list[Span]:
        return list(self._encode(text).offsets)

    def unknown(self, text: str) -> list[str]:
        tokens = zip(self.encode(text), self.pieces(text), strict=True)
        return sorted({piece for index, piece in tokens if index == UNKNOWN})

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices up to the first end of sequence (see `Vocabulary.decode`)."""
        pieces = self._known(indices)
        text = join_bytes(pieces) if self._by_bytes else "".join(pieces)
        return text.replace(BLANK, " ").removeprefix(" ")

    def to_json(self) -> str:
        return self._tokenizer.to_str(pretty=True)

    @classmethod
    def from_json(cls, text: str) -> "SubwordVocabulary":
        """Return the vocabulary that `to_json` wrote. Raises `InputError` if the JSON is damaged."""
        try:
            return cls(_parse_tokenizer(text))
        except DamageError as error:
            raise InputError(
                f"tokenizer is damaged: {error}; restore the model from a copy, or train it again"
            ) from error


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


def _sort_by_index(vocab: dict[str, int]) -> list[str]:
    """Return pieces ordered by index.

    Raises `DamageError` unless the indices are 0, 1, 2, ...
    """
    pieces = sorted(vocab, key=vocab.__getitem__)
    for index, piece in enumerate(pieces):
        if vocab[piece] != index:
            raise DamageError(f"its piece {piece!r} has index {vocab[piece]}, not {index}")
    return pieces


def _parse_tokenizer(text: str) -> Tokenizer:
    """Return the `tokenizers` tokenizer for its JSON.

    Raises `DamageError` for a tokenizer that was not written by Regard.
    """
    model = convert_json(parse_json(text), _Stored).model
    pieces = model.pieces
    if tuple(pieces[: len(RESERVED)]) != RESERVED:
        raise DamageError(f"its first pieces are not {', '.join(RESERVED)}")
    known = set(pieces)
    if len(known) < len(pieces):
        raise DamageError("it lists a piece twice")
    for pair in model.merges:
        for piece in (*pair, "".join(pair)):
            if piece not in known:
                raise DamageError(f"its merges use {piece!r}, which is not in its vocabulary")
    return make_tokenizer(text)


def make_tokenizer(text: str) -> Tokenizer:
    """Return the `tokenizers` tokenizer for its JSON. Raises `DamageError` if the library cannot read it."""
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
            [
                pre_tokenizers.Metaspace(BLANK, prepend_scheme="never", split=False),
                pre_tokenizers.Split("", "isolated"),
            ]
        )
    return SubwordVocabulary.from_json(without_added_tokens(tokenizer))


def without_added_tokens(tokenizer: Tokenizer) -> str:
    """Return the JSON of a tokenizer without added tokens, so that special symbols are not recognized in
    text."""
    return json.dumps(json.loads(tokenizer.to_str()) | {"added_tokens": []})


SEGMENTATIONS = 32
"""The number of segmentations of each word."""
WORDS = 200_000
"""The number of words whose segmentations are cached."""


class BpeDropout:
    """Splits encoded sentences again and skips each BPE merge with probability `rate`.

    Raises `InputError` for a rate out of range, or for a vocabulary that was not learned with BPE.
    """

    def __init__(self, vocabulary: LearnedVocabulary, rate: float, seed: int) -> None:
        check_share("merge_dropout", rate, below=True)
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
            index
            for word, choice in zip(words, choices, strict=True)
            for index in self._segmentations(word)[choice]
        ]
        return np.array([*indices, EOS], dtype=sentence.dtype)

    def _draw_segmentations(self, word: str) -> list[list[int]]:
        if word in self._whole:
            return [[self.indices[word]]] * SEGMENTATIONS
        # The word is part of the seed, so that segmentations do not depend on the order of words.
        random = np.random.default_rng((self.seed, zlib.crc32(word.encode())))
        return [
            [index for piece in self.split(word, random) for index in self._find(piece)]
            for _ in range(SEGMENTATIONS)
        ]

    def _find(self, piece: str) -> list[int]:
        if piece in self.indices:
            return [self.indices[piece]]
        return self.vocabulary.byte_tokens(piece) or [UNKNOWN]

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
