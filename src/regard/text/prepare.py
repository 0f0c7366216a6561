"""From parallel text on disk to a corpus and its vocabularies, once.

What has been prepared is kept in a folder named by all that it depends on, so that a second training on the same
text begins at once, and text that has changed is prepared anew.
"""

import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from regard.errors import InputError
from regard.files import cannot_write, write_json
from regard.progress import reading_bar
from regard.reading import damaged, is_file, is_folder, read_json
from regard.text import codes, sentencepieces
from regard.text.codes import CodedWords
from regard.text.corpus import Corpus, open_corpus, write_corpus
from regard.text.parallel import Text
from regard.text.sentencepieces import SentencePieces
from regard.text.subwords import Subwords, train_subwords
from regard.text.vocabulary import Learned, TokenizerKind

Vocabularies = tuple[Learned, Learned]
MEND = "delete it to learn it anew"


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """How text is cut into tokens."""

    kind: TokenizerKind
    size: int
    joint: bool
    """One vocabulary for both sides."""
    lowercase: bool


def learn_vocabularies(text: Text, cutting: Cutting, root: Path, *, progress: bool = True) -> Vocabularies:
    """Return the vocabularies of source and target, learned from `text` or found under `root`.

    Raises `InputError` where the text cannot be read or the vocabulary is too small for it.
    """
    files = [root / f"vocabulary-{_digest(text, vars(cutting), side)}.json" for side in ("source", "target")]
    if cutting.joint:
        files = files[:1] * 2
    if not all(map(is_file, files)):
        _make_folder(root)
        for side, file in enumerate(files[: 1 if cutting.joint else 2]):
            with reading_bar("learn the vocabulary", text.bytes, show=progress) as text.on_bytes:
                sentences = _Sentences(text, None if cutting.joint else side)
                learned = train_subwords(
                    sentences, kind=cutting.kind, size=cutting.size, lowercase=cutting.lowercase
                )
            write_json(file, _with_sum(learned.to_json()))
    return read_vocabularies(*map(_read_prepared, files))


class _Prepared(msgspec.Struct, forbid_unknown_fields=True):
    """What the file of a prepared vocabulary holds."""

    tokenizer: str
    """JSON of the `tokenizers` library."""
    crc32: int
    """CRC-32 of it."""


def _with_sum(tokenizer: str) -> dict[str, object]:
    return {"tokenizer": tokenizer, "crc32": zlib.crc32(tokenizer.encode())}


def _read_prepared(file: Path) -> str:
    """Return the JSON of a vocabulary; raises `InputError` where it is not as it was prepared."""
    stored = read_json(file, _Prepared, MEND)
    if zlib.crc32(stored.tokenizer.encode(errors="surrogatepass")) != stored.crc32:
        raise damaged(file, "it has changed since it was written", MEND)
    return stored.tokenizer


def read_vocabularies(source: str, target: str) -> Vocabularies:
    """Return vocabularies from their JSON, one for both where it is the same."""
    first = _from_json(source)
    return first, first if source == target else _from_json(target)


def _from_json(text: str) -> Learned:
    if text.startswith(sentencepieces.MARK):
        return SentencePieces.from_json(text)
    return CodedWords.from_json(text) if text.startswith(codes.MARK) else Subwords.from_json(text)


def prepare_corpus(
    text: Text,
    vocabularies: Vocabularies,
    root: Path,
    *,
    max_len: int,
    strict: bool = False,
    progress: bool = True,
) -> Corpus:
    """Return the corpus of `text`, prepared or found under `root`.

    Raises `InputError` where the text cannot be read, nothing is left of it, or with `strict` where anything
    would be left out.
    """
    folder = root / f"corpus-{_digest(text, [each.to_json() for each in vocabularies], max_len)}"
    if is_folder(folder):
        corpus = open_corpus(folder)
        if corpus.symbols != (len(vocabularies[0]), len(vocabularies[1])):
            raise damaged(folder, "it was prepared with other vocabularies", "delete it to prepare it anew")
        if not strict or not corpus.counts.left_out:
            return corpus
    with reading_bar("prepare the corpus", text.bytes, show=progress) as text.on_bytes:
        return write_corpus(folder, text, vocabularies, max_len=max_len, strict=strict)


@dataclass(frozen=True)
class _Sentences:
    """The sentences of a text, of one side or of both; can be read again and again."""

    text: Text
    side: int | None

    def __iter__(self) -> Iterator[str]:
        for pair in self.text:
            yield from pair if self.side is None else pair[self.side : self.side + 1]


def _digest(text: Text, *settings: object) -> str:
    """Name what is made of a text with some settings."""
    content = json.dumps([text.identity(), *settings]).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _make_folder(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(root, error) from error


def read_pairs(text: Text, what: str) -> list[tuple[str, str]]:
    """Return all pairs of a text, which is to be `what`; raises `InputError` where there is none."""
    pairs = list(text)
    if not pairs:
        raise InputError(f"{what} text has no pair: {text.counts}")
    return pairs
