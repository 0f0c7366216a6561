"""Prepare parallel text for training: learn vocabularies and build a corpus, once.

The results are kept in one folder. Their names identify the text and the settings, so a second training on the
same text starts at once, and a changed text is prepared anew:

    text-TEXT.json                     where the text was found, and where its chunks are
    vocabulary-TEXT-SETTINGS.json
    corpus-TEXT-SETTINGS/              and, beside it, folders of its word alignments

TEXT is a digest of the text's identity. When a text has changed, the results of its former content are removed.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from regard.data import bpe_codes, sentencepieces
from regard.data.bpe_codes import BpeCodesVocabulary
from regard.data.chunks import SAMPLE_PAIRS, ChunkRanges, Sample, find_chunks, is_plain
from regard.data.corpus import INDEX, Corpus, open_corpus, write_corpus_index
from regard.data.corpus_builder import ShardBuilder, Vocabularies, build_shards, corpus_key
from regard.data.parallel import ConcatenatedText, PairSource
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import SubwordVocabulary, train_subwords
from regard.data.vocabulary import LearnedVocabulary, TokenizerKind
from regard.errors import InputError
from regard.io import hold_lock, is_in_use, make_folder, remove_quietly, wait_for_lock, write_json
from regard.io.reading import add_digest, damaged_file, has_valid_digest, is_file, read_json
from regard.progress import preparing_bar, print_status, reading_bar

REMEDY = "delete it to prepare it anew"
CHANGED = "it has changed since it was written"
Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """The settings of a vocabulary to learn."""

    kind: TokenizerKind
    size: int
    joint: bool
    """One vocabulary for both sides."""
    lowercase: bool


class TextIndex(msgspec.Struct, forbid_unknown_fields=True):
    """The location of a text and of its chunks."""

    text: list[str]
    """The paths or names of the text."""
    stretches: Number
    """The number of chunks."""
    spans: list[list[tuple[Number, Number]]] | None = None
    """The byte range of each chunk in each file, for plain files."""
    checked: bool = False
    """Whether `parallel.check_files` found the files in order."""
    digest: str = ""
    """The digest of the fields before it."""


class _StoredVocabulary(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a vocabulary's file."""

    tokenizer: str
    """The JSON of the `tokenizers` library."""
    name: str
    """The name of the file, which identifies text and settings."""
    pairs: int
    """The number of pairs that the vocabulary was learned from."""
    bytes: int
    """The size of these pairs."""
    digest: str
    """The digest of the fields before it."""


def short_digest(*content: Any) -> str:
    """Return a digest of plain data, for the name of a file."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def index_text(text: PairSource, root: Path, *, progress: bool) -> TextIndex:
    """Return the index of a text, scanned or read from `root`.

    After a scan, the results of an older text at the same location are removed. Raises `InputError` if the text
    cannot be read, or is broken and not lenient, before anything is written.
    """
    file = root / f"text-{short_digest(text.identity())}.json"
    if is_file(file):
        stored = read_json(file, TextIndex, REMEDY)
        if not has_valid_digest(msgspec.to_builtins(stored)):
            raise damaged_file(file, CHANGED, REMEDY)
        # Scan again if an equal text is now at another location, or compressed.
        valid = stored.checked or text.lenient
        if valid and stored.text == text.locations() and (stored.spans is not None) == is_plain(text):
            return stored
    text.check()
    ranges: ChunkRanges | None = None
    if isinstance(text, ConcatenatedText):
        chunks = sum(index_text(part, root, progress=progress).stretches for part in text.texts)
    else:
        with reading_bar("scan the text", text.bytes, show=progress) as text.on_bytes:
            chunks, ranges = find_chunks(text)
    index = TextIndex(text.locations(), chunks, ranges, checked=not (text.lenient or text.strict))
    make_folder(root)
    content = {name: value for name, value in msgspec.to_builtins(index).items() if name != "digest"}
    write_json(file, add_digest(content), indent=0)
    if index.text:
        _remove_older(file, index.text, progress=progress)
    return index


def _remove_older(file: Path, locations: list[str], *, progress: bool) -> None:
    """Remove the results of older texts at the same location as the text of `file`, unless they are in use."""
    for older in sorted(file.parent.glob("text-*.json")):
        if older == file or read_json(older, TextIndex, REMEDY).text != locations:
            continue
        name = older.stem.removeprefix("text-")
        if all(list(_remove_corpora(file.parent, name))):
            for path in [*file.parent.glob(f"vocabulary-{name}-*.json"), older]:
                remove_quietly(path)
            print_status(
                f"the text has changed: removed what was prepared from the old one ({name})", show=progress
            )


def _remove_corpora(root: Path, name: str) -> Iterator[bool]:
    """Remove the corpora of a text. Yields for each whether it was removed."""
    for folder in sorted(root.glob(f"corpus-{name}-*")):
        if "-guide-" in folder.name:
            continue
        try:
            with hold_lock(folder):
                if is_in_use(folder / INDEX):
                    yield False
                    continue
                remove_quietly(folder / INDEX)  # first, since a folder without it does not count as a corpus
                shutil.rmtree(folder, ignore_errors=True)
                for alignment in root.glob(f"{folder.name}-guide-*"):
                    remove_quietly(alignment)
                yield True
        except InputError:  # another process is building it
            yield False


def _parts(text: PairSource) -> list[PairSource]:
    return list(text.texts) if isinstance(text, ConcatenatedText) else [text]


def learn_vocabularies(
    text: PairSource, config: TokenizerConfig, root: Path, *, progress: bool = True
) -> Vocabularies:
    """Return the vocabularies of source and target, learned from a sample of `text` or read from `root`.

    If another process is learning them, this one waits for it. Raises `InputError` if the text cannot be read or
    the vocabulary is too small for it.
    """
    for part in _parts(text):
        index_text(part, root, progress=progress)  # refuse a broken text before anything is written
    name = short_digest(text.identity())
    sides = [None] if config.joint else [0, 1]
    files = [root / f"vocabulary-{name}-{short_digest(vars(config), side, SAMPLE_PAIRS)}.json" for side in sides]
    if not all(map(is_file, files)):
        # One lock for both files, since both are learned together.
        with wait_for_lock(files[0], lambda message: print_status(message, show=progress)):
            for side, file in zip(sides, files, strict=True):
                if not is_file(file):
                    _learn_vocabulary(text, config, side, file, progress=progress)
    return read_vocabularies(_read_vocabulary(files[0]), _read_vocabulary(files[-1]))


def _learn_vocabulary(
    text: PairSource, config: TokenizerConfig, side: int | None, file: Path, *, progress: bool
) -> None:
    indexed = [(part, index_text(part, file.parent, progress=progress).spans) for part in _parts(text)]
    sample = Sample(indexed, index_text(text, file.parent, progress=progress).stretches, side)
    with reading_bar("learn the vocabulary", text.bytes, show=progress) as on_bytes:
        sample.on_share = lambda share: on_bytes(int(share * text.bytes))
        vocabulary = train_subwords(sample, kind=config.kind, size=config.size, lowercase=config.lowercase)
    tokenizer = vocabulary.to_json()
    content = {"tokenizer": tokenizer, "name": file.stem, "pairs": sample.pairs, "bytes": sample.bytes}
    write_json(file, add_digest(content))
    print_status(f"vocabulary of {len(vocabulary):,} symbols, learned from {sample.summary}", show=progress)


def _read_vocabulary(file: Path) -> str:
    """Return the JSON of a vocabulary. Raises `InputError` if the file changed after it was written."""
    stored = read_json(file, _StoredVocabulary, REMEDY)
    if not has_valid_digest(msgspec.to_builtins(stored)):
        raise damaged_file(file, CHANGED, REMEDY)
    if stored.name != file.stem:
        raise damaged_file(file, f"it is {stored.name}, under another name", REMEDY)
    return stored.tokenizer


def read_vocabularies(source: str, target: str) -> Vocabularies:
    """Return vocabularies from their JSON. Equal JSON gives one vocabulary for both sides."""
    first = _parse_vocabulary(source)
    return first, first if source == target else _parse_vocabulary(target)


def _parse_vocabulary(text: str) -> LearnedVocabulary:
    if text.startswith(sentencepieces.MARK):
        return SentencePieceVocabulary.from_json(text)
    if text.startswith(bpe_codes.MARK):
        return BpeCodesVocabulary.from_json(text)
    return SubwordVocabulary.from_json(text)


@dataclass(frozen=True)
class CorpusPreparation:
    """The preparation of a text as a corpus under `root`. The other arguments are those of `ShardBuilder`."""

    text: PairSource
    vocabularies: Vocabularies
    root: Path
    max_len: int
    strict: bool = False
    progress: bool = True

    @property
    def folder(self) -> Path:
        """The folder of the corpus."""
        settings = short_digest([vocabulary.to_json() for vocabulary in self.vocabularies], self.max_len)
        return self.root / f"corpus-{short_digest(self.text.identity())}-{settings}"

    def corpus(self) -> Corpus:
        """Return the corpus, built or found. Existing shards are kept.

        Raises `InputError` if the text cannot be read, if no pair is left, or, with `strict`, if a pair must be
        skipped.
        """
        index_text(self.text, self.root, progress=self.progress)  # the corpus may be that of a lenient text
        if (corpus := self._find()) is not None:
            return corpus
        with wait_for_lock(self.folder, lambda message: print_status(message, show=self.progress)):
            # Another process may have built it during the wait.
            if (corpus := self._find()) is not None:
                return corpus
            key = corpus_key(self.text, self.vocabularies, self.max_len)
            builder = ShardBuilder(self.folder, self.vocabularies, self.max_len, self.strict, key)
            index = index_text(self.text, self.root, progress=self.progress)
            with preparing_bar("prepare the corpus", self.text.bytes, show=self.progress) as advance:
                shards = build_shards(builder, self.text, index.spans, on_shard=lambda report: advance(*report))
            return write_corpus_index(self.folder, key, shards, self._vocabulary_sizes)

    @property
    def _vocabulary_sizes(self) -> tuple[int, int]:
        source, target = self.vocabularies
        return len(source), len(target)

    def _find(self) -> Corpus | None:
        """Return the complete corpus, or None if it must be built. With `strict`, a corpus with skipped pairs
        does not count."""
        if not is_file(self.folder / INDEX):
            return None
        corpus = open_corpus(self.folder)
        if corpus.symbols != self._vocabulary_sizes:
            raise damaged_file(self.folder, "it was prepared with other vocabularies", REMEDY)
        if corpus.key != corpus_key(self.text, self.vocabularies, self.max_len):
            raise damaged_file(self.folder, "it was prepared from another text", REMEDY)
        return None if self.strict and corpus.counts.skipped else corpus


def read_pairs(text: PairSource, description: str) -> list[tuple[str, str]]:
    """Return all pairs of a text. Raises `InputError` without any, with the `description` of the text."""
    pairs = list(text)
    check_pairs(pairs, text, description)
    return pairs


def check_pairs(pairs: list[tuple[str, str]], text: PairSource, description: str) -> None:
    """Raise `InputError` if a text has no pair, with the `description` of the text."""
    if not pairs:
        raise InputError(f"{description} text has no pair: {text.counts}")
