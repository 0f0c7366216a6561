"""Tokenizers learned from text: subwords (BPE, unigram), words, or characters.

The work is done by the `tokenizers` library. Text is put into Unicode's composed form (NFC), every word begins
with `▁` in place of the blank before it, and punctuation stands apart; so tokens put together are the text
again. The first four indices are those of `vocabulary`, and text can never spell them: `</s>` in a line is five
characters.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
from tokenizers import Encoding, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from regard.data.tokenization import Span
from regard.data.vocabulary import BLANK, EOS, SPECIAL, UNKNOWN, TokenizerKind, replace_surrogates
from regard.errors import InputError, RegardError
from regard.io.reading import DamageError, convert_json, parse_json
from regard.libraries import library_errors

Index = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
RESERVED = ("<pad>", "<s>", "</s>", "<unk>")
"""The first four symbols in a tokenizer's file."""


class _Bpe(msgspec.Struct, tag_field="type", tag="BPE"):
    """What is told of byte-pair encoding: the index of each piece, and which two are joined, first ones first."""

    vocab: dict[str, Index]
    merges: list[tuple[str, str]]

    @property
    def pieces(self) -> list[str]:
        return _in_order(self.vocab)


class _Words(msgspec.Struct, tag_field="type", tag="WordLevel"):
    """What is told of words: the index of each."""

    vocab: dict[str, Index]
    merges = ()

    @property
    def pieces(self) -> list[str]:
        return _in_order(self.vocab)


class _Unigram(msgspec.Struct, tag_field="type", tag="Unigram"):
    """What is told of a unigram model: each piece with its log-probability, by index."""

    vocab: list[tuple[str, float]]
    merges = ()

    @property
    def pieces(self) -> list[str]:
        return [piece for piece, _ in self.vocab]


CUT, AGAIN = "the vocabulary cannot cut this text", "give another text, or import or train the model anew"
"""What is said where the library fails."""


class _Stored(msgspec.Struct):
    """What the JSON of a tokenizer needs to hold; there is more, which is the library's."""

    model: _Bpe | _Words | _Unigram
    normalizer: dict[str, Any]
    pre_tokenizer: dict[str, Any]
    added_tokens: Annotated[list[Any], msgspec.Meta(max_length=0)]


class SubwordVocabulary:
    """A vocabulary of pieces of text, around a `tokenizers.Tokenizer`."""

    unit = "tokens"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        self.symbols = [*SPECIAL, *sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIAL) :]]

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """Return the indices of a text, `UNKNOWN` for what was never seen; no end of sequence."""
        return self._encoded(text).ids

    @property
    def by_words(self) -> bool:
        """Whether the tokens of a text are those of its words between single blanks, end to end."""
        found = json.loads(self._tokenizer.to_str())["pre_tokenizer"]
        first, *others = found.get("pretokenizers", [found])
        marked = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}
        return bool(first == marked and all(each["type"] == "Punctuation" for each in others))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of many texts, encoded in parallel."""
        with library_errors("tokenizers", CUT, AGAIN):
            return [each.ids for each in self._tokenizer.encode_batch_fast(list(map(replace_surrogates, texts)))]

    def words(self, text: str) -> list[str]:
        """Return the words that a text is split into before each is cut into pieces."""
        with library_errors("tokenizers", CUT, AGAIN):
            normal = self._tokenizer.normalizer.normalize_str(replace_surrogates(text))
            return [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(normal)]

    def pieces(self, text: str) -> list[str]:
        """Return what each index of `encode(text)` stands for, unknown ones too."""
        text = replace_surrogates(text)
        encoding = self._encoded(text)
        each = zip(encoding.ids, encoding.offsets, strict=True)
        return [
            text[begin:end].strip() if index == UNKNOWN else self.symbols[index] for index, (begin, end) in each
        ]

    def offsets(self, text: str) -> list[Span]:
        """Return where each piece stands in a text; one that is only the blank before a word, where that is."""
        return list(self._encoded(text).offsets)

    def unknown(self, text: str) -> list[str]:
        """Return what the vocabulary does not know of a text: each piece once, sorted."""
        each = zip(self.encode(text), self.pieces(text), strict=True)
        return sorted({piece for index, piece in each if index == UNKNOWN})

    def decode(self, indices: Sequence[int]) -> str:
        """Return the text of indices up to the first end of sequence; special ones but `UNKNOWN` are left
        out."""
        indices = indices[: indices.index(EOS)] if EOS in indices else indices
        pieces = "".join(self.symbols[index] for index in indices if index >= UNKNOWN)
        return pieces.replace(BLANK, " ").removeprefix(" ")

    def labels(self, indices: Sequence[int]) -> list[str]:
        """Name every index, special ones included, for plots; a word's first piece begins with `▁`."""
        return [self.symbols[index] for index in indices]

    def to_json(self) -> str:
        """Return the tokenizer as the JSON of the `tokenizers` library."""
        return self._tokenizer.to_str(pretty=True)

    def _encoded(self, text: str) -> Encoding:
        """Encode a text; raises `InputError` where the library fails, as for an odd tokenizer."""
        with library_errors("tokenizers", CUT, AGAIN):
            return self._tokenizer.encode(replace_surrogates(text))

    @classmethod
    def from_json(cls, text: str) -> "SubwordVocabulary":
        """Return what `to_json` wrote; raises `InputError` where it is damaged."""
        try:
            return cls(_tokenizer(text))
        except DamageError as error:
            raise InputError(f"tokenizer is damaged: {error}; restore a copy of it, or train anew") from error


def _in_order(vocab: dict[str, int]) -> list[str]:
    """Return pieces by their indices, which are to be 0, 1, 2, ..."""
    found = sorted(vocab, key=vocab.__getitem__)
    for index, piece in enumerate(found):
        if vocab[piece] != index:
            raise DamageError(f"its piece {piece!r} has index {vocab[piece]}, not {index}")
    return found


def _tokenizer(text: str) -> Tokenizer:
    """Return the library's tokenizer of its JSON; raises `DamageError` where that is not one of ours."""
    model = convert_json(parse_json(text), _Stored).model
    pieces = model.pieces
    if tuple(pieces[: len(RESERVED)]) != RESERVED:
        raise DamageError(f"its first pieces are not {', '.join(RESERVED)}")
    known = set(pieces)
    if len(known) < len(pieces):
        raise DamageError("a piece stands in it twice")
    for pair in model.merges:
        for piece in (*pair, "".join(pair)):
            if piece not in known:
                raise DamageError(f"it joins to or from {piece!r}, which is none of its pieces")
    try:
        return Tokenizer.from_str(text)
    except BaseException as error:  # the library raises bare errors, and panics, which are no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise DamageError("the tokenizers library cannot make use of it") from error


def train_subwords(
    texts: Iterable[str], *, kind: TokenizerKind, size: int, lowercase: bool = False
) -> SubwordVocabulary:
    """Learn a vocabulary of at most `size` symbols, the four special ones among them, from `texts`,
    which are read more than once.

    `kind`: "bpe" joins the pair of pieces seen most often, again and again (Sennrich et al. 2016); "unigram"
    drops the pieces that the text misses least (Kudo 2018); "words" takes the most frequent words; "characters"
    the most frequent characters. BPE takes as many characters as fill half of `size`. `lowercase`: text is put
    into lower case first. The same texts give the same vocabulary, but for "unigram", where the library's order
    of summation varies. Raises `InputError` where `size` leaves no room for the special symbols and every
    character.
    """
    if kind in ("sentencepiece", "codes"):
        raise InputError(
            f"tokenizer {kind} comes with models that are imported: learn bpe, unigram, words or characters"
        )
    if size <= len(RESERVED):
        raise InputError(f"vocab_size {size} leaves no room beside {len(RESERVED)} special symbols: choose more")
    tokenizer = Tokenizer(_model(kind))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(BLANK, prepend_scheme="always"), pre_tokenizers.Punctuation("isolated")]
    )
    tokenizer.decoder = decoders.Metaspace(BLANK, prepend_scheme="always")
    try:
        alphabet = _alphabet(texts, tokenizer, size) if kind in ("bpe", "characters") else []
        tokenizer.train_from_iterator(texts, _trainer(kind, size, alphabet))
    except RegardError:  # what is wrong with the text is said already
        raise
    except Exception as error:  # the library raises bare ones
        raise InputError(
            f"no {kind} vocabulary of {size} symbols can be learned from this text: {error}"
        ) from error
    found = SubwordVocabulary(Tokenizer.from_str(_without_added(tokenizer)))
    if len(found) > size:
        raise InputError(
            f"vocab_size {size} leaves no room for {len(RESERVED)} special symbols and every character of the "
            f"text: choose at least {len(found)}"
        )
    return found


def vocabulary_from_symbols(symbols: Sequence[str], *, words: bool, lowercase: bool = False) -> SubwordVocabulary:
    """Return a vocabulary of symbols that are known, with indices from 4 on: words between blanks, or characters,
    with `▁` for the blank. Text is taken as it is, or put into lower case."""
    names = [*RESERVED, *(f"{BLANK}{each}" if words else each for each in symbols)]
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
    return SubwordVocabulary.from_json(_without_added(tokenizer))


def _model(kind: TokenizerKind) -> models.Model:
    if kind == "words":
        return models.WordLevel(unk_token=RESERVED[UNKNOWN])
    if kind == "unigram":
        return models.Unigram()
    return models.BPE(unk_token=RESERVED[UNKNOWN])


def _alphabet(texts: Iterable[str], tokenizer: Tokenizer, size: int) -> list[str]:
    """Return the characters to begin with: all, or the most frequent ones.

    The library would choose among equally frequent ones by chance.
    """
    # Word by word, as most come again: neither NFC nor lower case looks across a blank.
    words, counts = Counter[str](), Counter({BLANK: 1})
    for text in texts:
        found = text.split(" ")
        words.update(found)
        counts[BLANK] += len(found) - 1
    for word, times in words.items():
        for character in tokenizer.normalizer.normalize_str(word):
            counts[character] += times
    # By number, then by name.
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    return ranked[: max(1, size - len(RESERVED))]


def _trainer(kind: TokenizerKind, size: int, alphabet: list[str]) -> trainers.Trainer:
    options: dict[str, Any] = {"special_tokens": list(RESERVED), "show_progress": False}
    if kind == "words":
        return trainers.WordLevelTrainer(vocab_size=size, **options)
    if kind == "unigram":
        return trainers.UnigramTrainer(vocab_size=size, unk_token=RESERVED[UNKNOWN], **options)
    # Characters are what BPE starts from, before it joins anything.
    most = max(1, len(alphabet) if kind == "characters" else min(len(alphabet), (size - len(RESERVED)) // 2))
    return trainers.BpeTrainer(
        vocab_size=0 if kind == "characters" else size,
        initial_alphabet=alphabet[:most],
        limit_alphabet=most,
        **options,
    )


def _without_added(tokenizer: Tokenizer) -> str:
    """Return the tokenizer's JSON in which the special symbols are no longer looked for in text."""
    return json.dumps(json.loads(tokenizer.to_str()) | {"added_tokens": []})
