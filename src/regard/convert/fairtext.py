"""The vocabularies of a model of fairseq: its dictionaries, and the codes or pieces that its text is cut by.

fairseq itself is fed text that is cut already. So what cut it is looked for beside the checkpoint: the codes of
subword-nmt or fastBPE, or a model of SentencePiece. Where there is none, the dictionaries are of words.
"""

import re
from pathlib import Path
from typing import NamedTuple

from regard.convert.exportable import Cut
from regard.convert.parameters import Rows
from regard.data.bpe_codes import CONTINUATION, BpeCodesVocabulary, parse_codes, split_lines
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import vocabulary_from_symbols
from regard.errors import InputError, shorten
from regard.io.reading import DamageError, damaged_file, is_file, list_files, read_bytes, read_text

MEND = "restore a copy of the folder"
BEGIN, PADDING, END, UNSEEN = range(4)
"""fairseq's numbers of `<s>`, which it never uses, `<pad>`, `</s>`, which begins a target too, and `<unk>`."""
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
UNUSED = "<begin>"
"""What we call its `<s>`, which has a row in its matrices, and a share of every probability."""
CODES = ("codes", "code", "bpecodes", "bpe.codes", "bpe_codes")
"""Names of codes, with or without the side's language behind them."""


class Side(NamedTuple):
    """A language of a model: its dictionary, and how it is cut."""

    symbols: list[str]
    """By fairseq's numbers."""
    vocabulary: Cut
    rows: Rows
    """fairseq's numbers of ours."""

    @property
    def kind(self) -> str:
        """What we call how it is cut."""
        kinds = {SentencePieceVocabulary: "sentencepiece", BpeCodesVocabulary: "codes"}
        return kinds.get(type(self.vocabulary), "words")


def sides_in(folder: Path, languages: tuple[str | None, str | None], sizes: tuple[int, int]) -> tuple[Side, Side]:
    """Return source and target, whose matrices have so many symbols.

    Where the checkpoint names no `languages`, as fairseq leaves them out that it has guessed itself, the sizes
    tell which dictionary is which. Raises `InputError` where they do not.
    """
    source, target = languages
    names = [path.name[5:-4] for path in list_files(folder) if re.fullmatch(r"dict\..+\.txt", path.name)]
    if {"source", "target"} <= set(names):
        source, target = "source", "target"
    if source and target:
        found = side_of(folder, source), side_of(folder, target)
        for side, size, name in zip(found, sizes, (source, target), strict=True):
            if len(side.symbols) != size:
                raise InputError(
                    f"dict.{name}.txt has {len(side.symbols):,} symbols with the special ones, the checkpoint's "
                    f"matrix {size:,}: give the dictionary that it was trained with"
                )
        return found
    told = "the checkpoint does not say which language is the source"
    if len(names) == 1:
        raise InputError(f"{str(folder)!r} has dict.{names[0]}.txt alone: put the other language's beside it")
    if len(names) != 2:
        has = ", ".join(f"dict.{name}.txt" for name in names) or "no dict.LANGUAGE.txt"
        raise InputError(f"{told}, and {str(folder)!r} has {has}: put there dict.source.txt and dict.target.txt")
    one, other = (side_of(folder, name) for name in names)
    fitting = [
        sides for sides in ((one, other), (other, one)) if tuple(len(side.symbols) for side in sides) == sizes
    ]
    if not fitting:
        have = " and ".join(f"{len(side.symbols):,}" for side in (one, other))
        raise InputError(
            f"dict.{names[0]}.txt and dict.{names[1]}.txt have {have} symbols with the special ones, the "
            f"checkpoint's matrices {sizes[0]:,} and {sizes[1]:,}: give those that it was trained with"
        )
    if len(fitting) > 1 and not same_side(one, other):
        raise InputError(
            f"{told}, and both dictionaries are as large: name them dict.source.txt and dict.target.txt"
        )
    return fitting[0]


def side_of(folder: Path, language: str) -> Side:
    """Return the dictionary of a language, its vocabulary here, and its numbers of our symbols."""
    file = folder / f"dict.{language}.txt"
    try:
        symbols = _symbols(read_text(file, MEND))
    except DamageError as error:
        raise damaged_file(file, error, MEND) from None
    names = [*symbols[len(SPECIAL) :], UNUSED]
    rows = [PADDING, END, END, UNSEEN, *range(len(SPECIAL), len(symbols)), BEGIN]
    cut = cutter_of(folder, language)
    try:
        if cut is None:
            if any(name.endswith(CONTINUATION) for name in names):
                raise InputError(
                    f"{str(file)!r} has pieces with {CONTINUATION}, and no codes stand beside it: put there "
                    f"those of subword-nmt or fastBPE, called codes or bpecodes"
                )
            return Side(symbols, vocabulary_from_symbols(names, words=True), rows)
        if cut.suffix in (".model", ".spm"):
            return Side(symbols, SentencePieceVocabulary(read_bytes(cut), names), rows)
        return Side(symbols, BpeCodesVocabulary(parse_codes(read_text(cut, MEND)), names), rows)
    except DamageError as error:
        raise damaged_file(cut or file, error, MEND) from error


def cutter_of(folder: Path, language: str) -> Path | None:
    """Return the codes, or the model of SentencePiece, by which a language is cut; None where there are none.

    Raises `InputError` where there are several.
    """
    for name in CODES:
        for file in (folder / f"{name}.{language}", folder / name):
            if is_file(file):
                return file
    found = [path for path in list_files(folder) if path.suffix in (".model", ".spm", ".codes")]
    own = [
        path for path in found if path.stem.endswith(f".{language}") or path.stem in (language, f"spm.{language}")
    ]
    if len(own or found) > 1:
        several = ", ".join(path.name for path in own or found)
        raise InputError(f"{str(folder)!r} has {several}: keep the one that its text is cut by")
    return next(iter(own or found), None)


def _symbols(text: str) -> list[str]:
    """Return the symbols of a dictionary by their numbers, a line each with its count; raises `DamageError`."""
    found = dict.fromkeys(SPECIAL)
    for number, line in enumerate(split_lines(text), 1):
        # A flag behind the count, for what stands instead of a special symbol, is in no file of a training.
        symbol, _, count = line.rpartition(" ")
        if not symbol or not count.isdecimal():
            raise DamageError(f"its line {number} is no symbol and its count")
        if symbol in found:
            raise DamageError(f"{shorten(symbol)} stands in it twice")
        found[symbol] = None
    return list(found)


def same_side(one: Side, other: Side) -> bool:
    """Whether two languages have one dictionary, cut alike."""
    return one.symbols == other.symbols and one.vocabulary.to_json() == other.vocabulary.to_json()
