"""Prepare parallel text for training: learn vocabularies and build a corpus.

The results are stored in one folder. The file names identify the text and the settings. A later training run on
the same text starts immediately, and a changed text is prepared again:

    text-TEXT.json                     the location of the text
    vocabulary-TEXT-SETTINGS.json
    corpus-TEXT-SETTINGS/              and beside the folder, folders of its word alignments

TEXT is a digest of the text's identity. When a text has changed, the results for its previous content are removed.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from regard.data.corpus import (
    FORMAT,
    INDEX,
    SAMPLE_PAIRS,
    Corpus,
    Sample,
    Vocabularies,
    build_corpus,
    no_pairs,
    open_corpus,
)
from regard.data.imported_tokenizers import MARK, SentencePieceVocabulary, model_pieces
from regard.data.parallel import PairSource
from regard.data.subwords import (
    MIN_COUNT,
    MIN_DENSE_COUNT,
    RESERVED,
    Normalization,
    SubwordVocabulary,
    train_subwords,
    vocabulary_from_symbols,
)
from regard.data.vocabulary import LearnedVocabulary, TokenizerKind
from regard.errors import InputError
from regard.io import (
    add_digest,
    build_once,
    damage_errors,
    is_file,
    make_folder,
    read_bytes,
    read_json,
    read_stored,
    read_text,
    remove_quietly,
    write_json,
)
from regard.progress import preparing_bar, print_status, reading_bar

REMEDY = "delete the file to prepare the text again"
MOST_COMPARED = 200_000  # Largest number of training pairs among which other pairs are looked for


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Settings for learning a vocabulary."""

    kind: TokenizerKind
    size: int
    joint: bool
    """One vocabulary for both sides."""
    lowercase: bool
    normalize: Sequence[Normalization] = ()
    symbols: Sequence[str] = ()
    byte_fallback: bool = False

    def digest(self, side: int | None) -> str:
        return short_digest(vars(self), side, SAMPLE_PAIRS, MIN_COUNT, MIN_DENSE_COUNT)


class _StoredLocation(msgspec.Struct):
    """The content of a text's file."""

    text: list[str]  # The paths or names of the text


class _StoredVocabulary(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a vocabulary's file."""

    tokenizer: str  # The JSON of the `tokenizers` library
    name: str  # The name of the file, which identifies the text and the settings
    digest: str


def short_digest(*content: Any) -> str:
    """Return a digest of plain data, for the name of a file.

    >>> short_digest(["text"], 256)
    '3c1d944a15b61727'
    """
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _record_location(text: PairSource, root: Path, *, progress: bool) -> None:
    """Record the location of a text, and remove the results of earlier texts at the same location. Processes that are
    still reading a removed corpus are not affected, because its files remain open."""
    text.check()
    make_folder(root)
    file = root / f"text-{short_digest(text.identity())}.json"
    if not is_file(file) or read_json(file, _StoredLocation, REMEDY).text != text.locations():
        write_json(file, {"text": text.locations()})
    for former in sorted(root.glob("text-*.json")) if text.locations() else []:
        if former == file or read_json(former, _StoredLocation, REMEDY).text != text.locations():
            continue
        name = former.stem.removeprefix("text-")
        for path in [*root.glob(f"corpus-{name}-*"), *root.glob(f"vocabulary-{name}-*.json"), former]:
            remove_quietly(path)
        print_status(f"the text has changed: removed the files prepared from the old text ({name})", show=progress)


def learn_vocabularies(text: PairSource, config: TokenizerConfig, root: Path, *, progress: bool = True) -> Vocabularies:
    """Return the vocabularies of source and target, learned from a sample of `text` or read from `root`. If another
    process is learning the same vocabularies, this process waits for the result."""
    _record_location(text, root, progress=progress)
    name = short_digest(text.identity())
    sides = [None] if config.joint else [0, 1]
    files = [root / f"vocabulary-{name}-{config.digest(side)}.json" for side in sides]

    def learn() -> None:
        for side, file in zip(sides, files, strict=True):
            if is_file(file):
                continue
            sample = Sample(text, side)
            with reading_bar("learn the vocabulary", text.bytes, show=progress) as on_bytes:
                sample.on_share = lambda share: on_bytes(int(share * text.bytes))
                options = {name: value for name, value in vars(config).items() if name != "joint"}
                vocabulary = train_subwords(sample, **options)
            write_json(file, add_digest({"tokenizer": vocabulary.to_json(), "name": file.stem}))
            learned = f"vocabulary of {len(vocabulary):,} symbols, learned from {sample.summary}"
            if dense := ", ".join(vocabulary.without_blanks):
                learned += f"; {dense} has no spaces between words: only pieces that occur {MIN_DENSE_COUNT} times "
                learned += "are subwords"
            print_status(learned, show=progress)

    # One lock protects both files, because both vocabularies are learned together.
    build_once(files[0], lambda: all(map(is_file, files)), learn, on_wait=partial(print_status, show=progress))
    stored = [read_stored(file, _StoredVocabulary, file.stem, REMEDY).tokenizer for file in files]
    return read_vocabularies(stored[0], stored[-1])


def read_vocabularies(source: str, target: str) -> Vocabularies:
    """Return vocabularies from their JSON. Both sides share one vocabulary object if their JSON is equal."""
    first = parse_vocabulary(source)
    return first, first if source == target else parse_vocabulary(target)


def parse_vocabulary(text: str) -> SubwordVocabulary | SentencePieceVocabulary:
    if text.startswith(MARK):
        return SentencePieceVocabulary.from_json(text)
    return SubwordVocabulary.from_json(text)


def prepare_corpus(
    text: PairSource,
    vocabularies: Vocabularies,
    root: Path,
    *,
    max_len: int,
    strict: bool = False,
    progress: bool = True,
) -> Corpus:
    """Return the corpus of a text from the folder `root`, and build the corpus if it is missing. Arguments and errors
    are those of `build_corpus`. With `strict`, a corpus with skipped pairs is not used. If another process is building
    the corpus, this process waits for the result. A damaged corpus also raises `InputError`."""
    # The format is part of the name, so that a corpus of an earlier version is ignored.
    settings = short_digest(FORMAT, [vocabulary.to_json() for vocabulary in vocabularies], max_len)
    folder = root / f"corpus-{short_digest(text.identity())}-{settings}"

    def is_complete() -> bool:
        return is_file(folder / INDEX) and not (strict and open_corpus(folder).counts.skipped)

    def build() -> None:
        with preparing_bar("prepare the corpus", text.bytes, show=progress) as advance:
            build_corpus(folder, text, vocabularies, max_len=max_len, strict=strict, on_chunk=advance)

    # Raises an error for a broken text, even if a lenient corpus exists.
    _record_location(text, root, progress=progress)
    build_once(folder, is_complete, build, on_wait=partial(print_status, show=progress))
    return open_corpus(folder)


def read_pairs(text: PairSource, description: str) -> list[tuple[str, str]]:
    pairs = list(text)
    check_pairs(pairs, text, description)
    return pairs


def check_pairs(pairs: list[tuple[str, str]], text: PairSource, description: str) -> None:
    if not pairs:
        raise no_pairs(text, description, text.counts)


def describe_learned(pairs: Sequence[tuple[str, str]], training: Iterable[tuple[str, str]]) -> str:
    """Return how many pairs are among the first 200,000 training pairs, or an empty text if few are.

    A model translates training text better than other text, so that its figures on such pairs are misleading.

    >>> describe_learned([("a", "b"), ("c", "d")], [("a", "b"), ("c", "d"), ("e", "f")])
    '2 of 2 pairs are in the training text'
    """
    learned = set(islice(training, MOST_COMPARED))
    known = sum(pair in learned for pair in pairs)
    return f"{known} of {len(pairs)} pairs are in the training text" if 2 * known > len(pairs) else ""


def check_first_pair(text: PairSource, description: str) -> None:
    """Raise `InputError` if a text has no pairs, without reading the whole text."""
    pairs = list(islice(text, 1))
    check_pairs(pairs, text, description)
    if all("\t" in side for side in pairs[0]):
        raise InputError(f"{description} text has tabs in both files: give one file of pairs, or add --weights")


def read_own_vocabularies(files: Sequence[str], *, lowercase: bool, progress: bool = True) -> Vocabularies:
    """Return the vocabularies of source and target from one or two files. One file gives one vocabulary for both.
    `lowercase`: convert text to lower case first."""
    vocabularies = [read_own_vocabulary(Path(file), lowercase=lowercase) for file in files]
    for file, vocabulary in zip(files, vocabularies, strict=True):
        print_status(f"vocabulary of {len(vocabulary):,} symbols from {Path(file).name}", show=progress)
    return vocabularies[0], vocabularies[-1]


def read_own_vocabulary(path: Path, *, lowercase: bool = False) -> LearnedVocabulary:
    """Return the vocabulary of a file: `.model` and `.spm` are SentencePiece, `.json` is the vocabulary of a run. Other
    files list words, one a line. A second column, such as a count, is ignored."""
    restore = "restore a copy, or give another file"
    if path.suffix in (".model", ".spm"):
        with damage_errors(path, restore):
            model = read_bytes(path)
            return SentencePieceVocabulary(model, model_pieces(model), lowercase=lowercase)
    text = read_text(path, restore)
    if path.suffix == ".json":
        vocabulary = parse_vocabulary(text)
        lower = vocabulary.lowercase
        if lower != lowercase:
            way_out = "add --lowercase" if lower else "leave out --lowercase"
            raise InputError(
                f"vocabulary {str(path)!r} {'lowercases' if lower else 'does not lowercase'} text: {way_out}"
            )
        return vocabulary
    columns = (line.split() for line in text.splitlines())
    words = dict.fromkeys(column[0] for column in columns if column and column[0] not in RESERVED)
    if not words:
        raise InputError(f"vocabulary {str(path)!r} has no words: give one word a line")
    return vocabulary_from_symbols(list(words), words=True, lowercase=lowercase)
