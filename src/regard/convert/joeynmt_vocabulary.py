"""Read JoeyNMT 2's tokenizer settings and vocabularies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.convert.conversion import ExportableVocabulary
from regard.convert.parameters import Rows
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import vocabulary_from_symbols
from regard.errors import InputError
from regard.io.reading import DamageError, damaged_file, is_file, read_bytes, read_text

MEND = "restore a copy of the folder"
SPECIAL = {"pad": (1, "<pad>"), "bos": (2, "<s>"), "eos": (3, "</s>"), "unk": (0, "<unk>")}
"""Default index and spelling of the special symbols, in Regard's order."""


def get_tokenizer_kind(side: Mapping[str, Any]) -> str:
    """Return Regard's name of a side's tokenizer; raises `InputError` for unsupported settings."""
    level = side["level"]
    if level == "bpe":
        level = side.get("tokenizer_type", side.get("bpe_type", "sentencepiece"))
    kinds = {"word": "words", "char": "characters", "sentencepiece": "sentencepiece"}
    if level not in kinds:
        raise InputError(f"tokenizer_type {level} is not supported: only word, char and sentencepiece are")
    if side.get("normalize", False):
        raise InputError("normalize is on: Regard does not support JoeyNMT's normalization")
    if (pretokenizer := side.get("tokenizer_cfg", {}).get("pretokenizer", "none")) != "none":
        raise InputError(f"pretokenizer {pretokenizer} is not supported: only none is")
    return kinds[level]


def get_special_symbols(data: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Return the special symbols in Regard's order; raises `InputError` for further ones."""
    settings = data.get("special_symbols", {})
    for name in ("sep_token", "lang_tags"):
        if settings.get(name):
            raise InputError(f"special_symbols.{name} {settings[name]} is not supported: Regard has no prompts")
    return {
        name: (settings.get(f"{name}_id", number), settings.get(f"{name}_token", token))
        for name, (number, token) in SPECIAL.items()
    }


def read_symbols(folder: Path, data: Mapping[str, Any], side: str) -> list[str]:
    """Return the symbols of a vocabulary file in the order of JoeyNMT's indices."""
    file = folder / f"{side}_vocab.txt"
    special = sorted(get_special_symbols(data).values())
    return list(dict.fromkeys([*(token for _, token in special), *read_text(file, MEND).splitlines()]))


def read_vocabulary(folder: Path, data: Mapping[str, Any], side: str) -> tuple[ExportableVocabulary, Rows]:
    """Return the vocabulary of a side, and JoeyNMT's index of each symbol."""
    settings, symbols = data[side], read_symbols(folder, data, side)
    special = get_special_symbols(data)
    for number, token in special.values():
        if symbols[number] != token:
            raise damaged_file(folder / f"{side}_vocab.txt", f"its symbol {number} is not {token}", MEND)
    special_indices = [number for number, _ in special.values()]
    rest = [number for number in range(len(symbols)) if number not in special_indices]
    names, kind, lowercase = (
        [symbols[number] for number in rest],
        get_tokenizer_kind(settings),
        bool(settings.get("lowercase", False)),
    )
    rows = [*special_indices, *rest]
    if kind != "sentencepiece":
        return vocabulary_from_symbols(names, words=kind == "words", lowercase=lowercase), rows
    file = find_sentencepiece_file(folder, settings)
    try:
        return SentencePieceVocabulary(read_bytes(file), names, lowercase=lowercase), rows
    except DamageError as error:
        raise damaged_file(file, error, MEND) from error


def find_sentencepiece_file(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Return the path of the SentencePiece model. JoeyNMT copies it to the training's folder."""
    named = Path(settings["tokenizer_cfg"]["model_file"])
    return folder / named.name if is_file(folder / named.name) else named
