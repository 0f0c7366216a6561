"""Import of a Hugging Face Marian model with its tokenizer (language models: `language_import`).

Special symbols move to the first four indices, and the width is permuted to Regard's order of sines and cosines.
Marian starts targets with the padding symbol. Marian's padding becomes Regard's start symbol, and Regard's
padding has no counterpart.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from regard.convert.conversion import (
    ExportableVocabulary,
    ImportedModel,
    check_equal,
    check_supported,
    name_damaged,
)
from regard.convert.huggingface import SETTINGS
from regard.convert.language_import import read_language_model
from regard.convert.language_models import FAMILIES
from regard.convert.parameters import (
    MARIAN,
    MISSING_LOGIT,
    OuterWeights,
    Rows,
    convert_outer_weights,
    from_external,
    get_sines_first_order,
    module_names,
    select_rows,
)
from regard.convert.transformers_model import MarianModel, load_marian
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.data.vocabulary import UNKNOWN
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

MEND = "download the folder again"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
"""Regard's activations by their names in Hugging Face."""
MATRICES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
"""Names of Marian's source embedding, target embedding and output layer."""
Vocabularies = tuple[ExportableVocabulary, ExportableVocabulary]


class _ModelConfig(msgspec.Struct):
    """The part of the model's config that is checked before transformers reads the config."""

    model_type: str


class _TokenizerConfig(msgspec.Struct):
    """The part of the tokenizer's config that is needed."""

    separate_vocabs: bool = False
    unk_token: Any = "<unk>"


def read_huggingface(folder: Path) -> ImportedModel:
    """Read a folder written by `save_pretrained`.

    Raises `InputError` if the folder has no supported model or is damaged, if Regard's models cannot represent
    the model, or if the extra `hub` is not installed.
    """
    if not is_folder(folder):
        raise InputError(f"{str(folder)!r} is not a folder: give a folder written by save_pretrained")
    if not is_file(folder / "config.json"):
        raise InputError(
            f"{str(folder)!r} has no config.json, which all Hugging Face models have: convert models of other "
            f"programs to Hugging Face first"
        )
    kind = read_json(folder / "config.json", _ModelConfig, MEND, finite=False).model_type
    if kind in FAMILIES:
        return read_language_model(folder)
    if kind != "marian":
        raise InputError(
            f"model_type {kind} is not supported: choose a model of {', '.join(('marian', *FAMILIES))}; inspect "
            f"other models with `regard look`"
        )
    if not is_file(folder / "tokenizer.json"):
        for name in ("source.spm", "target.spm", "vocab.json"):
            if not is_file(folder / name):
                raise InputError(f"{str(folder / name)!r} is missing: {MEND}")
    theirs, _ = load_marian(folder)
    config, state = theirs.config, theirs.state_dict()
    flags = read_settings(config)
    vocabularies, rows = _vocabularies(folder, config, shared=flags["joint"])
    order = get_sines_first_order(config.d_model)
    parameters = from_external(state, module_names(MARIAN, flags), order)
    parameters |= convert_outer_weights(OuterWeights(*(state[name] for name in MATRICES)), rows, flags, order)
    parameters["output_bias"] = select_rows(state["final_logits_bias"][0], rows[1], MISSING_LOGIT)
    pieces = isinstance(vocabularies[0], SentencePieceVocabulary)
    flags |= {
        "tokenizer": "sentencepiece" if pieces else "bpe",
        "vocab_size": max(map(len, vocabularies)),
        # A run accepts texts of up to four times `max_len` tokens.
        "max_len": max(1, (config.max_position_embeddings - 1) // 4),
    }
    return ImportedModel(flags, vocabularies, parameters, lambda run: MarianModel(run, folder, rows))


def _vocabularies(folder: Path, config: Any, *, shared: bool) -> tuple[Vocabularies, tuple[Rows, Rows]]:
    """Return the source and the target vocabulary, and Marian's index of each symbol in the two vocabularies."""
    if not is_file(folder / "source.spm") and is_file(folder / "tokenizer.json"):
        return _read_exported(folder, config)
    tokenizer = _TokenizerConfig()
    if is_file(folder / "tokenizer_config.json"):
        tokenizer = read_json(folder / "tokenizer_config.json", _TokenizerConfig, MEND, finite=False)
    files = ["vocab.json", "target_vocab.json" if tokenizer.separate_vocabs else "vocab.json"]
    sizes = [config.vocab_size, config.vocab_size if shared else config.decoder_vocab_size]
    if shared and tokenizer.separate_vocabs:
        raise InputError(
            "separate_vocabs is on with share_encoder_decoder_embeddings: Regard needs one vocabulary per "
            "embedding matrix"
        )
    sides = []
    for file, size, model in zip(files, sizes, ("source.spm", "target.spm"), strict=True):
        symbols, rows = _symbols(folder / file, config, size, tokenizer)
        with name_damaged(folder / model, MEND):
            vocabulary = SentencePieceVocabulary(read_bytes(folder / model), symbols, codes=True)
        sides.append((vocabulary, rows))
    (source, source_rows), (target, target_rows) = sides
    return (source, target), (source_rows, target_rows)


def _symbols(file: Path, config: Any, size: int, tokenizer: _TokenizerConfig) -> tuple[list[str], Rows]:
    """Return the non-special symbols of a vocabulary, and Marian's index of each symbol of the run."""
    numbers = read_json(file, dict[str, int], MEND)
    if sorted(numbers.values()) != list(range(size)):
        raise InputError(
            f"vocab_size {size} does not match {str(file)!r}, which must have one symbol for each index from 0 "
            f"to {size - 1}: {MEND}"
        )
    unknown = tokenizer.unk_token["content"] if isinstance(tokenizer.unk_token, dict) else tokenizer.unk_token
    if unknown not in numbers:
        raise damaged_file(file, f"it has no {unknown}", MEND)
    rows = _special_indices(config, size, numbers[unknown])
    taken = {row for row in rows if row is not None}
    rest = sorted((number, symbol) for symbol, number in numbers.items() if number not in taken)
    return [symbol for _, symbol in rest], [*rows, *(number for number, _ in rest)]


def _special_indices(config: Any, size: int, unknown: int) -> list[int | None]:
    """Return Marian's indices of the special symbols; the padding index is None if the start symbol is the
    padding symbol."""
    named = {name: getattr(config, name) for name in ("pad_token_id", "decoder_start_token_id", "eos_token_id")}
    for name, number in named.items():
        if not isinstance(number, int) or not 0 <= number < size:
            raise InputError(
                f"{name} {number} is not in the vocabulary: it must be an index from 0 to {size - 1}"
            )
    pad, start, end = named.values()
    indices = [None if pad == start else pad, start, end, unknown]
    if len(set(indices)) < len(indices):
        raise InputError(
            f"{', '.join(named)} and the unknown symbol must differ, not {pad}, {start}, {end}, {unknown}"
        )
    return indices


def _read_exported(folder: Path, config: Any) -> tuple[Vocabularies, tuple[Rows, Rows]]:
    """Read the vocabulary of a folder written by `regard export`, where the special symbols are already first."""
    file = folder / "tokenizer.json"
    try:
        stored = parse_json(read_text(file, MEND))
        if not isinstance(stored, dict):
            raise DamageError("the file is not a JSON object")
        plain = {**stored, "added_tokens": [], "post_processor": None}
        vocabulary = SubwordVocabulary.from_json(json.dumps(plain))
    except (DamageError, InputError) as error:
        raise InputError(
            f"{str(file)!r} is not a vocabulary of Regard, and source.spm is missing: give a folder with "
            "source.spm, target.spm and vocab.json"
        ) from error
    rows = list(range(len(vocabulary)))
    special = [config.pad_token_id, config.decoder_start_token_id, config.eos_token_id]
    if len(vocabulary) != config.vocab_size or special != rows[:UNKNOWN]:
        raise damaged_file(
            file, f"the vocabulary does not belong to the model: {', '.join(RESERVED[:UNKNOWN])} differ", MEND
        )
    return (vocabulary, vocabulary), (rows, rows)


def read_settings(config: Any) -> dict[str, Any]:
    """Convert a `MarianConfig` to flags of Regard's Transformer.

    Raises `InputError` with the name of an unsupported setting.
    """
    check_equal(config.to_dict(), ("attention_heads", "ffn_dim"))
    check_supported("activation_function", config.activation_function, ACTIVATIONS)
    if not config.scale_embedding:
        raise InputError("scale_embedding is off: Regard always scales embeddings")
    if config.d_model % 2:
        raise InputError(f"d_model {config.d_model} is odd: sinusoidal positions need an even width")
    shared, tied = bool(config.share_encoder_decoder_embeddings), bool(config.tie_word_embeddings)
    if shared and not tied:
        raise InputError(
            "tie_word_embeddings is off with share_encoder_decoder_embeddings on: "
            "Regard ties all matrices of a shared vocabulary"
        )
    return {
        **{ours: getattr(config, theirs) for ours, (theirs, *_) in SETTINGS.items()},
        "activation": ACTIVATIONS[config.activation_function],
        "dropout": float(config.dropout),
        "positions": "sinusoidal",
        "pre_norm": False,
        "bias": True,
        "tied": tied,
        "output_bias": True,
        "joint": shared,
    }
