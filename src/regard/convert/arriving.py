"""Models of Hugging Face on their way in: a Marian model and its tokenizer, as a Transformer of ours.

Special symbols move to the first four indices, the width into the order of our waves. Marian begins a target with
padding: that symbol is our begin of sequence then, and our padding has no counterpart.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from torch import Tensor

from regard.convert.certificate import Opened
from regard.convert.exportable import Cut, Exportable
from regard.convert.huggingface import InHuggingFace, load_marian
from regard.convert.marian import modules, settings_of
from regard.convert.parameters import NEVER, Rows, halves, rows_of, to_ours
from regard.data import UNKNOWN
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.errors import InputError
from regard.io.reading import (
    DamageError,
    damaged_file,
    is_file,
    is_folder,
    parse_json,
    read_bytes,
    read_json,
    read_text,
)

MEND = "fetch the folder anew"


class Arrived(NamedTuple):
    """A model from elsewhere: what it is here."""

    flags: dict[str, Any]
    """Of the task and of the model."""
    vocabularies: tuple[Cut, Cut]
    """Of source and target."""
    parameters: Mapping[str, Tensor]
    """By our names."""
    open: Callable[[Exportable], Opened]
    """Open it in its own program, beside the run that it has become."""


class _About(msgspec.Struct):
    """What is asked of the model's config before transformers reads it."""

    model_type: str


class _Tokenizer(msgspec.Struct):
    """What is asked of the tokenizer's config."""

    separate_vocabs: bool = False
    unk_token: Any = "<unk>"


def read_huggingface(folder: Path) -> Arrived:
    """Read a folder as `save_pretrained` writes it.

    Raises `InputError` where it holds no Marian model, one that a Transformer here cannot be, or a damaged one;
    and where the extra `hub` is not installed.
    """
    if not is_folder(folder):
        raise InputError(f"{str(folder)!r} is no folder: give one with a model as save_pretrained writes it")
    if not is_file(folder / "config.json"):
        raise InputError(
            f"{str(folder)!r} has no config.json, as models of Hugging Face have: for one of another program say "
            f"--from joeynmt or --from fairseq"
        )
    kind = read_json(folder / "config.json", _About, MEND, finite=False).model_type
    if kind != "marian":
        raise InputError(
            f"model_type {kind} is not marian: models of other architectures are looked at, `regard look`"
        )
    if not is_file(folder / "tokenizer.json"):
        for name in ("source.spm", "target.spm", "vocab.json"):
            if not is_file(folder / name):
                raise InputError(f"{str(folder / name)!r} is missing: {MEND}")
    theirs, _ = load_marian(folder)
    config = theirs.config
    flags, state = settings_of(config), theirs.state_dict()
    vocabularies, rows = _vocabularies(folder, config, shared=flags["joint"])
    source, target = rows
    order = halves(config.d_model)
    back = order.argsort()
    found = to_ours(state, modules(config.encoder_layers, config.decoder_layers), order)
    found["target_embedding.weight"] = rows_of(state["model.decoder.embed_tokens.weight"], target)[:, back]
    if not flags["joint"]:
        found["source_embedding.weight"] = rows_of(state["model.encoder.embed_tokens.weight"], source)[:, back]
    if not flags["tied"]:
        found["output.weight"] = rows_of(state["lm_head.weight"], target)[:, back]
    found["output_bias"] = rows_of(state["final_logits_bias"][0], target, NEVER)
    pieces = isinstance(vocabularies[0], SentencePieceVocabulary)
    flags |= {
        "tokenizer": "sentencepiece" if pieces else "bpe",
        "vocab_size": max(map(len, vocabularies)),
        "max_len": max(1, (config.max_position_embeddings - 1) // 4),  # four times as much is answered
    }
    return Arrived(flags, vocabularies, found, lambda run: InHuggingFace(run, folder, rows))


def _vocabularies(folder: Path, config: Any, *, shared: bool) -> tuple[tuple[Cut, Cut], tuple[Rows, Rows]]:
    """Return the vocabularies of source and target, and their indices of our symbols."""
    if not is_file(folder / "source.spm") and is_file(folder / "tokenizer.json"):
        return _of_ours(folder, config)
    about = _Tokenizer()
    if is_file(folder / "tokenizer_config.json"):
        about = read_json(folder / "tokenizer_config.json", _Tokenizer, MEND, finite=False)
    files = ["vocab.json", "target_vocab.json" if about.separate_vocabs else "vocab.json"]
    sizes = [config.vocab_size, config.vocab_size if shared else config.decoder_vocab_size]
    if shared and about.separate_vocabs:
        raise InputError(
            "separate_vocabs is on with share_encoder_decoder_embeddings: here one matrix has one vocabulary"
        )
    found = []
    for file, size, model in zip(files, sizes, ("source.spm", "target.spm"), strict=True):
        symbols, rows = _symbols(folder / file, config, size, about)
        try:
            cut = SentencePieceVocabulary(read_bytes(folder / model), symbols, codes=True)
        except DamageError as error:
            raise damaged_file(folder / model, error, MEND) from error
        found.append((cut, rows))
    (source, source_rows), (target, target_rows) = found
    return (source, target), (source_rows, target_rows)


def _symbols(file: Path, config: Any, size: int, about: _Tokenizer) -> tuple[list[str], Rows]:
    """Return the symbols of a vocabulary but the special ones, and their indices with those of all of ours."""
    numbers = read_json(file, dict[str, int], MEND)
    if sorted(numbers.values()) != list(range(size)):
        raise InputError(
            f"vocab_size {size} is not that of {str(file)!r}, which is to have a symbol for each number "
            f"from 0 to {size - 1}: {MEND}"
        )
    unknown = about.unk_token["content"] if isinstance(about.unk_token, dict) else about.unk_token
    if unknown not in numbers:
        raise damaged_file(file, f"it has no {unknown}", MEND)
    rows = _special(config, size, numbers[unknown])
    taken = {row for row in rows if row is not None}
    rest = sorted((number, symbol) for symbol, number in numbers.items() if number not in taken)
    return [symbol for _, symbol in rest], [*rows, *(number for number, _ in rest)]


def _special(config: Any, size: int, unknown: int) -> list[int | None]:
    """Return their numbers of our special symbols; None for padding that is the begin of a target too."""
    named = {name: getattr(config, name) for name in ("pad_token_id", "decoder_start_token_id", "eos_token_id")}
    for name, number in named.items():
        if not isinstance(number, int) or not 0 <= number < size:
            raise InputError(
                f"{name} {number} is no symbol of the vocabulary: give one number from 0 to {size - 1}"
            )
    pad, start, end = named.values()
    found = [None if pad == start else pad, start, end, unknown]
    if len(set(found)) < len(found):
        raise InputError(
            f"{', '.join(named)} and the unknown symbol are not told apart: {pad}, {start}, {end}, {unknown}"
        )
    return found


def _of_ours(folder: Path, config: Any) -> tuple[tuple[Cut, Cut], tuple[Rows, Rows]]:
    """Return the vocabulary of a folder that `regard export` wrote: its special symbols are the first already."""
    file = folder / "tokenizer.json"
    try:
        stored = parse_json(read_text(file, MEND))
        if not isinstance(stored, dict):
            raise DamageError("it is no object")
        plain = {**stored, "added_tokens": [], "post_processor": None}
        found = SubwordVocabulary.from_json(json.dumps(plain))
    except (DamageError, InputError) as error:
        raise InputError(
            f"{str(file)!r} is no vocabulary of ours, and source.spm is missing: give a folder with source.spm, "
            f"target.spm and vocab.json, as Marian's models have"
        ) from error
    rows = list(range(len(found)))
    special = [config.pad_token_id, config.decoder_start_token_id, config.eos_token_id]
    if len(found) != config.vocab_size or special != rows[:UNKNOWN]:
        raise damaged_file(
            file, f"it does not belong to the model: {', '.join(RESERVED[:UNKNOWN])} are others", MEND
        )
    return (found, found), (rows, rows)
