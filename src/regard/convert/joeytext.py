"""How JoeyNMT 2 cuts text, and which vocabulary of ours that is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.convert.exportable import Cut
from regard.convert.parameters import Rows
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import vocabulary_from_symbols
from regard.errors import InputError
from regard.io.reading import DamageError, damaged_file, is_file, read_bytes, read_text

MEND = "restore a copy of the folder"
SPECIAL = {"pad": (1, "<pad>"), "bos": (2, "<s>"), "eos": (3, "</s>"), "unk": (0, "<unk>")}
"""In our order: their number and how they are spelled, unless the configuration says otherwise."""


def kind_of(side: Mapping[str, Any]) -> str:
    """Return what we call how a side is cut; raises `InputError` for what is not imported."""
    level = side["level"]
    if level == "bpe":
        level = side.get("tokenizer_type", side.get("bpe_type", "sentencepiece"))
    kinds = {"word": "words", "char": "characters", "sentencepiece": "sentencepiece"}
    if level not in kinds:
        raise InputError(f"tokenizer_type {level} is not imported: only word, char and sentencepiece are")
    if side.get("normalize", False):
        raise InputError("normalize is on: text is not normalised as JoeyNMT does here")
    if (cutter := side.get("tokenizer_cfg", {}).get("pretokenizer", "none")) != "none":
        raise InputError(f"pretokenizer {cutter} is not imported: only none is")
    return kinds[level]


def special_of(data: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Return the special symbols, in our order; raises `InputError` for more of them than ours."""
    given = data.get("special_symbols", {})
    for name in ("sep_token", "lang_tags"):
        if given.get(name):
            raise InputError(f"special_symbols.{name} {given[name]} is not imported: there are no prompts here")
    return {
        name: (given.get(f"{name}_id", number), given.get(f"{name}_token", token))
        for name, (number, token) in SPECIAL.items()
    }


def symbols_of(folder: Path, data: Mapping[str, Any], side: str) -> list[str]:
    """Return the symbols of a vocabulary by their numbers, as JoeyNMT reads its file."""
    file = folder / f"{side}_vocab.txt"
    special = sorted(special_of(data).values())
    return list(dict.fromkeys([*(token for _, token in special), *read_text(file, MEND).splitlines()]))


def vocabulary_of(folder: Path, data: Mapping[str, Any], side: str) -> tuple[Cut, Rows]:
    """Return the vocabulary of a side, and its numbers of our symbols."""
    about, symbols = data[side], symbols_of(folder, data, side)
    special = special_of(data)
    for number, token in special.values():
        if symbols[number] != token:
            raise damaged_file(folder / f"{side}_vocab.txt", f"its symbol {number} is not {token}", MEND)
    taken = [number for number, _ in special.values()]
    rest = [number for number in range(len(symbols)) if number not in taken]
    names, kind, lowercase = (
        [symbols[number] for number in rest],
        kind_of(about),
        bool(about.get("lowercase", False)),
    )
    rows = [*taken, *rest]
    if kind != "sentencepiece":
        return vocabulary_from_symbols(names, words=kind == "words", lowercase=lowercase), rows
    file = pieces_of(folder, about)
    try:
        return SentencePieceVocabulary(read_bytes(file), names, lowercase=lowercase), rows
    except DamageError as error:
        raise damaged_file(file, error, MEND) from error


def pieces_of(folder: Path, about: Mapping[str, Any]) -> Path:
    """Return where the model of SentencePiece is: JoeyNMT copies it into the training's folder."""
    named = Path(about["tokenizer_cfg"]["model_file"])
    return folder / named.name if is_file(folder / named.name) else named
