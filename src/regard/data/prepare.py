"""From parallel text on disk to a corpus and its vocabularies, once.

What has been prepared is kept in a folder, by names that say all that it depends on (see `prepared`), so that a
second training on the same text begins at once, and text that has changed is prepared anew. Several machines may
prepare parts of one corpus; its folder then has, of each of n parts, a file part-k-of-n.json: begun, or done.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from regard.data import bpe_codes, sentencepieces
from regard.data.bpe_codes import BpeCodesVocabulary
from regard.data.corpus import INDEX, Corpus, open_corpus, write_corpus_index
from regard.data.corpus_builder import WHOLE, CorpusPart, ShardBuilder, Vocabularies, build_shards, corpus_key
from regard.data.parallel import PairSource
from regard.data.prepared import index_text, short_digest, texts_in
from regard.data.sample import PAIRS, Sample
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import SubwordVocabulary, train_subwords
from regard.data.vocabulary import LearnedVocabulary, TokenizerKind
from regard.errors import InputError
from regard.io import hold_lock, make_folder, refuse_links, wait_for_lock, write_json
from regard.io.reading import add_digest, damaged_file, has_valid_digest, is_file, list_files, read_json
from regard.progress import preparing_bar, print_status, reading_bar

MEND = "delete it to learn it anew"
MEND_PART = "delete it and prepare that part again"
PART = re.compile(r"part-([1-9][0-9]{0,8})-of-([1-9][0-9]{0,8})\.json")


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How text is cut into tokens."""

    kind: TokenizerKind
    size: int
    joint: bool
    """One vocabulary for both sides."""
    lowercase: bool


def learn_vocabularies(
    text: PairSource, cutting: TokenizerConfig, root: Path, *, progress: bool = True
) -> Vocabularies:
    """Return the vocabularies of source and target, learned from a sample of `text` or found under `root`.

    Where another process learns them, it is waited for. Raises `InputError` where the text cannot be read or the
    vocabulary is too small for it.
    """
    for each in texts_in(text):
        index_text(each, root, progress=progress)  # where the text is broken, before anything is made of it
    name = short_digest(text.identity())
    sides = [None] if cutting.joint else [0, 1]
    files = [root / f"vocabulary-{name}-{short_digest(vars(cutting), side, PAIRS)}.json" for side in sides]
    if not all(map(is_file, files)):
        with wait_for_lock(files[0], lambda what: print_status(what, show=progress)):
            for side, file in zip(sides, files, strict=True):
                if not is_file(file):
                    _learn(text, cutting, side, file, progress=progress)
    return read_vocabularies(_read_prepared(files[0]), _read_prepared(files[-1]))


def _learn(text: PairSource, cutting: TokenizerConfig, side: int | None, file: Path, *, progress: bool) -> None:
    extents = [(each, index_text(each, file.parent, progress=progress)) for each in texts_in(text)]
    whole = index_text(text, file.parent, progress=progress)
    sample = Sample([(each, extent.spans) for each, extent in extents], whole.stretches, side)
    with reading_bar("learn the vocabulary", text.bytes, show=progress) as on_bytes:
        sample.on_share = lambda share: on_bytes(int(share * text.bytes))
        learned = train_subwords(sample, kind=cutting.kind, size=cutting.size, lowercase=cutting.lowercase)
    tokenizer = learned.to_json()
    content = {"tokenizer": tokenizer, "name": file.stem, "pairs": sample.pairs, "bytes": sample.bytes}
    write_json(file, add_digest(content))
    print_status(f"vocabulary of {len(learned):,} symbols, learned from {sample.summary}", show=progress)


class _Prepared(msgspec.Struct, forbid_unknown_fields=True):
    """What the file of a prepared vocabulary holds."""

    tokenizer: str
    """JSON of the `tokenizers` library."""
    name: str
    """Of the file, which says of what text it was learned, and how."""
    pairs: int
    """Of which sample it was learned, and"""
    bytes: int
    """how large that is."""
    digest: str
    """Of all of it."""


def _read_prepared(file: Path) -> str:
    """Return the JSON of a vocabulary; raises `InputError` where it is not as it was prepared."""
    stored = read_json(file, _Prepared, MEND)
    if not has_valid_digest(msgspec.to_builtins(stored)):
        raise damaged_file(file, "it has changed since it was written", MEND)
    if stored.name != file.stem:
        raise damaged_file(file, f"it is {stored.name}, under another name", MEND)
    return stored.tokenizer


def read_vocabularies(source: str, target: str) -> Vocabularies:
    """Return vocabularies from their JSON, one for both where it is the same."""
    first = _from_json(source)
    return first, first if source == target else _from_json(target)


def _from_json(text: str) -> LearnedVocabulary:
    if text.startswith(sentencepieces.MARK):
        return SentencePieceVocabulary.from_json(text)
    return (
        BpeCodesVocabulary.from_json(text)
        if text.startswith(bpe_codes.MARK)
        else SubwordVocabulary.from_json(text)
    )


@dataclass(frozen=True)
class CorpusPreparation:
    """A text that becomes a corpus under `root`; the other arguments are those of `ShardBuilder`."""

    text: PairSource
    vocabularies: Vocabularies
    root: Path
    max_len: int
    strict: bool = False
    progress: bool = True

    @property
    def folder(self) -> Path:
        """Where the corpus is, or is to be."""
        settings = short_digest([each.to_json() for each in self.vocabularies], self.max_len)
        return self.root / f"corpus-{short_digest(self.text.identity())}-{settings}"

    def corpus(self) -> Corpus:
        """Return the corpus, made or found; what is there of it is not made again.

        Raises `InputError` where the text cannot be read, nothing is left of it, with `strict` where anything
        would be left out, and where other processes have made parts of it, but not all.
        """
        index_text(self.text, self.root, progress=self.progress)  # it may have been made of a lenient text
        if (found := self._found()) is not None:
            return found
        with wait_for_lock(self.folder, self._wait):
            if (found := self._found()) is not None:
                return found
            shards = self._in_parts()
            if shards is None or self.strict:
                shards = self._make(WHOLE)
            return write_corpus_index(self.folder, self._maker.key, shards, self._symbols)

    def part(self, part: CorpusPart) -> list[int]:
        """Make a part of the corpus, and return which are still missing.

        Raises `InputError` as `corpus` does, and where it is being made in another number of parts.
        """
        parts = max((each.parts for each in self._parts()), default=part.parts)
        if parts != part.parts:
            raise InputError(
                f"corpus {str(self.folder)!r} is made in {parts} parts, not in {part.parts}: prepare one of "
                f"these, such as 1/{parts}, or delete the folder"
            )
        file = self.folder / f"part-{part.number}-of-{part.parts}.json"
        refuse_links(self.folder)
        with hold_lock(file):
            make_folder(self.folder, below=self.folder.parent.parent)
            write_json(file, add_digest({"shards": None}))
            write_json(file, add_digest({"shards": self._make(part)}))
        return self._missing()

    @property
    def _symbols(self) -> tuple[int, int]:
        source, target = self.vocabularies
        return len(source), len(target)

    @property
    def _maker(self) -> ShardBuilder:
        key = corpus_key(self.text, self.vocabularies, self.max_len)
        return ShardBuilder(self.folder, self.vocabularies, self.max_len, self.strict, key)

    def _found(self) -> Corpus | None:
        """Return the corpus where it is complete, and nothing is to be refused that was left out of it."""
        if not is_file(self.folder / INDEX):
            return None
        corpus = open_corpus(self.folder)
        if corpus.symbols != self._symbols:
            raise damaged_file(
                self.folder, "it was prepared with other vocabularies", "delete it to prepare it anew"
            )
        if corpus.key != self._maker.key:
            raise damaged_file(self.folder, "it was prepared of another text", "delete it to prepare it anew")
        return None if self.strict and corpus.counts.skipped else corpus

    def _make(self, part: CorpusPart) -> int:
        extent = index_text(self.text, self.root, progress=self.progress)
        name = "prepare the corpus" if part == WHOLE else f"prepare part {part}"
        with preparing_bar(name, self.text.bytes // part.parts, show=self.progress) as more:
            return build_shards(self._maker, self.text, extent.spans, part=part, on_made=lambda made: more(*made))

    def _parts(self) -> dict[CorpusPart, int | None]:
        """Return the parts that were begun, each with how many shards all have, where it is done."""
        found: dict[CorpusPart, int | None] = {}
        for file in list_files(self.folder):
            if name := PART.fullmatch(file.name):
                begun = read_json(file, _Begun, MEND_PART)
                if not has_valid_digest(msgspec.to_builtins(begun)):
                    raise damaged_file(file, "it has changed since it was written", MEND_PART)
                found[CorpusPart(int(name[1]), int(name[2]))] = begun.shards
        return found

    def _missing(self) -> list[int]:
        found = self._parts()
        parts = max((each.parts for each in found), default=0)
        return [number for number in range(1, parts + 1) if found.get(CorpusPart(number, parts)) is None]

    def _in_parts(self) -> int | None:
        """Return how many shards there are of a corpus that was made in parts; None for others."""
        found = self._parts()
        if not found:
            return None
        parts = max(each.parts for each in found)
        if missing := self._missing():
            raise InputError(
                f"corpus {str(self.folder)!r} is incomplete, {listed(missing, parts)}: prepare what is missing "
                f"(--prepare {missing[0]}/{parts}), or delete the folder to prepare all of it here"
            )
        return max(shards for shards in found.values() if shards is not None)

    def _wait(self, what: str) -> None:
        print_status(what, show=self.progress)


class _Begun(msgspec.Struct, forbid_unknown_fields=True):
    """What the file of a part holds."""

    shards: Annotated[int, msgspec.Meta(ge=0, le=2**32)] | None
    """Of all parts; None where this one is not done."""
    digest: str


def listed(numbers: list[int], parts: int, most: int = 8) -> str:
    """Say which parts of so many are missing."""
    if len(numbers) == 1:
        return f"part {numbers[0]} of {parts} is missing"
    first, last = ", ".join(map(str, numbers[:-1][:most])), numbers[-1]
    more = " ..." if len(numbers) > most + 1 else ""
    return f"parts {first}{more} and {last} of {parts} are missing"


def prepare_corpus(
    text: PairSource,
    vocabularies: Vocabularies,
    root: Path,
    *,
    max_len: int,
    strict: bool = False,
    progress: bool = True,
) -> Corpus:
    """Return the corpus of `text`, prepared or found under `root`; see `CorpusPreparation`."""
    return CorpusPreparation(text, vocabularies, root, max_len, strict, progress).corpus()


def read_pairs(text: PairSource, what: str) -> list[tuple[str, str]]:
    """Return all pairs of a text, which is to be `what`; raises `InputError` where there is none."""
    pairs = list(text)
    check_pairs(pairs, text, what)
    return pairs


def check_pairs(pairs: list[tuple[str, str]], text: PairSource, what: str) -> None:
    """Raise `InputError` where a text that was read, which is to be `what`, has no pair."""
    if not pairs:
        raise InputError(f"{what} text has no pair: {text.counts}")
