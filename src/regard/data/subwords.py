"""Vocabularies learned from text: BPE or unigram subwords, words, or characters.

The `tokenizers` library learns the vocabulary and splits the text. Text is normalized to NFC, the space before
each word is replaced by `▁`, and punctuation is split off. Joining the tokens restores the text. The first four
indices are the special tokens of `vocabulary`. Text is never converted to special tokens: `</s>` in a line is
four characters.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
from tokenizers import Encoding, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from regard.data.tokenization import Span
from regard.data.vocabulary import BLANK, SPECIAL, UNKNOWN, SymbolVocabulary, TokenizerKind, replace_surrogates
from regard.errors import InputError, RegardError
from regard.io.reading import DamageError, convert_json, parse_json
from regard.libraries import library_errors

Index = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
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

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        super().__init__(sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIAL) :])

    def encode(self, text: str) -> list[int]:
        """Return the indices of a text without an end of sequence. Unknown tokens get `UNKNOWN`."""
        return self._encode(text).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of many texts, encoded in parallel."""
        with library_errors("tokenizers", FAILURE, REMEDY):
            encodings = self._tokenizer.encode_batch_fast(list(map(replace_surrogates, texts)))
            return [encoding.ids for encoding in encodings]

    def _encode(self, text: str) -> Encoding:
        """Encode a text. Raises `InputError` if the library fails, for example for an unusual tokenizer."""
        with library_errors("tokenizers", FAILURE, REMEDY):
            return self._tokenizer.encode(replace_surrogates(text))

    @property
    def splits_at_blanks(self) -> bool:
        """Whether the tokens of a text are the concatenated tokens of its words."""
        stored = json.loads(self._tokenizer.to_str())["pre_tokenizer"]
        first, *others = stored.get("pretokenizers", [stored])
        expected = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}
        return bool(first == expected and all(step["type"] == "Punctuation" for step in others))

    def words(self, text: str) -> list[str]:
        """Return the words of a text, before they are split into tokens."""
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
        """Return the span of each token of a text. The span of a token for a space is the span of the space."""
        return list(self._encode(text).offsets)

    def unknown(self, text: str) -> list[str]:
        """Return the distinct unknown tokens of a text, sorted."""
        tokens = zip(self.encode(text), self.pieces(text), strict=True)
        return sorted({piece for index, piece in tokens if index == UNKNOWN})

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices up to the first end of sequence (see `Vocabulary.decode`)."""
        return "".join(self._known(indices)).replace(BLANK, " ").removeprefix(" ")

    def to_json(self) -> str:
        """Return the tokenizer as the JSON of the `tokenizers` library."""
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
    try:
        return Tokenizer.from_str(text)
    except BaseException as error:  # the library raises bare exceptions, and panics that are not an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise DamageError("the tokenizers library cannot read it") from error


def train_subwords(
    texts: Iterable[str], *, kind: TokenizerKind, size: int, lowercase: bool = False
) -> SubwordVocabulary:
    """Learn a vocabulary of at most `size` symbols from `texts`, which are read repeatedly.

    `size` includes the four special symbols. `kind`: "bpe" repeatedly merges the most frequent pair of pieces
    (Sennrich et al. 2016); "unigram" removes the pieces whose removal reduces the likelihood least (Kudo 2018);
    "words" and "characters" select the most frequent words or characters. `lowercase`: convert text to lower
    case first. Raises `InputError` if `size` is too small for the special symbols and every character.

    For BPE, characters occupy at most half of `size`. Equal texts produce equal vocabularies, except for
    "unigram", because the order of summation in the library varies.

    >>> vocabulary = train_subwords(["ein Hund", "ein Hut"], kind="bpe", size=20)
    >>> vocabulary.decode(vocabulary.encode("ein Hut"))
    'ein Hut'
    """
    if kind in ("sentencepiece", "codes"):
        raise InputError(
            f"tokenizer {kind} comes with imported models and cannot be learned: choose bpe, unigram, words, "
            f"characters"
        )
    if size <= len(RESERVED):
        raise InputError(
            f"vocab_size {size} leaves no room for symbols besides the {len(RESERVED)} special symbols: "
            f"choose a larger size"
        )
    tokenizer = Tokenizer(_make_model(kind))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(BLANK, prepend_scheme="always"), pre_tokenizers.Punctuation("isolated")]
    )
    tokenizer.decoder = decoders.Metaspace(BLANK, prepend_scheme="always")
    try:
        alphabet = _choose_alphabet(texts, tokenizer, size) if kind in ("bpe", "characters") else []
        tokenizer.train_from_iterator(texts, _make_trainer(kind, size, alphabet))
    except RegardError:  # an error of the text has its own message
        raise
    except Exception as error:  # the library raises bare exceptions
        raise InputError(
            f"no {kind} vocabulary of {size} symbols can be learned from this text: {error}"
        ) from error
    vocabulary = SubwordVocabulary(Tokenizer.from_str(_remove_added_tokens(tokenizer)))
    if len(vocabulary) > size:
        raise InputError(
            f"vocab_size {size} leaves no room for {len(RESERVED)} special symbols and every character of the "
            f"text: choose at least {len(vocabulary)}"
        )
    return vocabulary


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
    return SubwordVocabulary.from_json(_remove_added_tokens(tokenizer))


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
            counts[character] += times
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


def _remove_added_tokens(tokenizer: Tokenizer) -> str:
    """Return the JSON of a tokenizer without added tokens, so that special symbols are not recognized in
    text."""
    return json.dumps(json.loads(tokenizer.to_str()) | {"added_tokens": []})
