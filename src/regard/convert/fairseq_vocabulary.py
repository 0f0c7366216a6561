"""Read the vocabularies of a fairseq model: dictionaries, and BPE codes or a SentencePiece model.

fairseq itself reads tokenized text. The segmentation is therefore looked up in the checkpoint's folder: BPE codes
of subword-nmt or fastBPE, or a SentencePiece model. If neither file exists, the dictionaries contain words.
"""

import re
from pathlib import Path
from typing import NamedTuple

from regard.convert.conversion import RESTORE, ExportableVocabulary, name_damaged
from regard.convert.parameters import Rows
from regard.data.bpe_codes import CONTINUATION, BpeCodesVocabulary, parse_codes, split_lines
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import vocabulary_from_symbols
from regard.errors import InputError, shorten
from regard.io.reading import DamageError, is_file, list_files, read_bytes, read_text

BEGIN, PADDING, END, UNKNOWN_INDEX = range(4)
"""fairseq's indices of `<s>` (unused), `<pad>`, `</s>` (also starts a target) and `<unk>`."""
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
UNUSED = "<begin>"
"""Regard's name of fairseq's `<s>`, which has a row in all matrices and part of the probability at each step."""
CODES = ("codes", "code", "bpecodes", "bpe.codes", "bpe_codes")
"""File names of BPE codes, with or without the language as suffix."""


class FairseqVocabulary(NamedTuple):
    """Dictionary and segmentation of one language."""

    symbols: list[str]
    """Symbols in the order of fairseq's indices."""
    vocabulary: ExportableVocabulary
    rows: Rows
    """fairseq's index of each symbol of `vocabulary`."""

    @property
    def kind(self) -> str:
        """Regard's name of the tokenizer."""
        kinds = {SentencePieceVocabulary: "sentencepiece", BpeCodesVocabulary: "codes"}
        return kinds.get(type(self.vocabulary), "words")


def read_vocabularies(
    folder: Path, languages: tuple[str | None, str | None], sizes: tuple[int, int]
) -> tuple[FairseqVocabulary, FairseqVocabulary]:
    """Return source and target vocabulary, whose embeddings have `sizes` rows.

    If the checkpoint does not name its `languages` (fairseq omits languages that it guessed), the sizes determine
    which dictionary is the source. Raises `InputError` if source and target cannot be distinguished.
    """
    names = [path.name[5:-4] for path in list_files(folder) if re.fullmatch(r"dict\..+\.txt", path.name)]
    if {"source", "target"} <= set(names):
        languages = "source", "target"
    source, target = languages
    problem = "the checkpoint does not say which language is the source"
    if source and target:
        names = [source, target]
    elif len(names) == 1:
        raise InputError(
            f"{str(folder)!r} has dict.{names[0]}.txt only: add the dictionary of the other language"
        )
    elif len(names) != 2:
        has = ", ".join(f"dict.{name}.txt" for name in names) or "no dict.LANGUAGE.txt"
        raise InputError(f"{problem}, and {str(folder)!r} has {has}: add dict.source.txt and dict.target.txt")
    first, second = (read_vocabulary(folder, name) for name in names)
    orders = [(first, second)] if source and target else [(first, second), (second, first)]
    fitting = [sides for sides in orders if tuple(len(side.symbols) for side in sides) == sizes]
    if not fitting:
        have = " and ".join(f"{len(side.symbols):,}" for side in (first, second))
        raise InputError(
            f"dict.{names[0]}.txt and dict.{names[1]}.txt have {have} symbols including special symbols, but the "
            f"checkpoint's matrices have {sizes[0]:,} and {sizes[1]:,}: give the dictionaries used in training"
        )
    if len(fitting) > 1 and not is_same_vocabulary(first, second):
        raise InputError(
            f"{problem}, and both dictionaries have the same size: name them dict.source.txt and dict.target.txt"
        )
    return fitting[0]


def read_vocabulary(folder: Path, language: str) -> FairseqVocabulary:
    """Read the dictionary and segmentation of a language."""
    file = folder / f"dict.{language}.txt"
    with name_damaged(file, RESTORE):
        symbols = _parse_symbols(read_text(file, RESTORE))
    names = [*symbols[len(SPECIAL) :], UNUSED]
    rows = [PADDING, END, END, UNKNOWN_INDEX, *range(len(SPECIAL), len(symbols)), BEGIN]
    segmentation = find_segmentation_file(folder, language)
    if segmentation is None and any(name.endswith(CONTINUATION) for name in names):
        raise InputError(
            f"{str(file)!r} has pieces with {CONTINUATION}, but the folder has no BPE codes: add the "
            "codes of subword-nmt or fastBPE in a file codes or bpecodes"
        )
    vocabulary: ExportableVocabulary
    with name_damaged(segmentation or file, RESTORE):
        if segmentation is None:
            vocabulary = vocabulary_from_symbols(names, words=True)
        elif segmentation.suffix in (".model", ".spm"):
            vocabulary = SentencePieceVocabulary(read_bytes(segmentation), names)
        else:
            vocabulary = BpeCodesVocabulary(parse_codes(read_text(segmentation, RESTORE)), names)
    return FairseqVocabulary(symbols, vocabulary, rows)


def find_segmentation_file(folder: Path, language: str) -> Path | None:
    """Return the file of BPE codes or the SentencePiece model of a language; None if neither exists.

    Raises `InputError` if the folder contains several such files.
    """
    for name in CODES:
        for file in (folder / f"{name}.{language}", folder / name):
            if is_file(file):
                return file
    candidates = [path for path in list_files(folder) if path.suffix in (".model", ".spm", ".codes")]
    own = [
        path
        for path in candidates
        if path.stem.endswith(f".{language}") or path.stem in (language, f"spm.{language}")
    ]
    if len(own or candidates) > 1:
        several = ", ".join(path.name for path in own or candidates)
        raise InputError(f"{str(folder)!r} has {several}: keep only the file used in training")
    return next(iter(own or candidates), None)


def _parse_symbols(text: str) -> list[str]:
    """Parse a dictionary: one line per symbol, with its count; raises `DamageError` for other lines."""
    symbols = dict.fromkeys(SPECIAL)
    for number, line in enumerate(split_lines(text), 1):
        # fairseq can read a third column (to overwrite special symbols), but its training never writes this
        # column.
        symbol, _, count = line.rpartition(" ")
        if not symbol or not count.isdecimal():
            raise DamageError(f"line {number} of the file is not a symbol with a count")
        if symbol in symbols:
            raise DamageError(f"{shorten(symbol)} occurs twice")
        symbols[symbol] = None
    return list(symbols)


def is_same_vocabulary(first: FairseqVocabulary, second: FairseqVocabulary) -> bool:
    """Return whether two languages have the same dictionary and segmentation."""
    return first.symbols == second.symbols and first.vocabulary.to_json() == second.vocabulary.to_json()
