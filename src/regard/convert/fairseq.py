"""Import of a fairseq Transformer (Ott et al. 2019) from a checkpoint and dictionaries.

Checkpoints are read with `weights_only`, which runs no code. fairseq differs from Regard in two points.
fairseq's targets start with the end symbol, so Regard's start symbol gets the row of the end symbol and is
never generated. fairseq's sinusoidal positions start at 2, have all sines before all cosines, and have a lower
last frequency than in the paper. These positions are imported as learned positions.
"""

import argparse
import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.convert.conversion import RESTORE, ImportedModel, check_equal, check_supported
from regard.convert.fairseq_model import FairseqModel, PositionTable
from regard.convert.fairseq_vocabulary import PADDING, is_same_vocabulary, read_vocabularies
from regard.convert.parameters import (
    FAIRSEQ,
    OuterWeights,
    check_tensors,
    convert_outer_weights,
    from_external,
    load_checkpoint,
    module_names,
    start_symbol_bias,
)
from regard.errors import InputError
from regard.io.reading import damaged_file, is_file, is_folder, list_files
from regard.libraries import import_library
from regard.plugins import describe_error

CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt")
FIRST_POSITION = PADDING + 1
"""fairseq's index of the first position."""
MAX_POSITIONS = 4096
"""Maximum number of sinusoidal positions to compute, enough for training on up to 1,023 tokens."""
MIN_POSITIONS = 5
"""Minimum number of positions of a usable model."""
ARCHITECTURES = re.compile(
    r"transformer(_tiny|_iwslt_de_en|_align|(_vaswani)?_wmt_en_(de|fr)(_big)?(_t2t|_align)?)?"
)
ACTIVATIONS = ("relu", "gelu")
UNSUPPORTED = (
    "adaptive_softmax_cutoff",
    "adaptive_input",
    "layernorm_embedding",
    "no_scale_embedding",
    "no_token_positional_embeddings",
    "no_cross_attention",
    "cross_self_attention",
    "encoder_layers_to_keep",
    "decoder_layers_to_keep",
    "no_decoder_final_norm",
    "base_layers",
    "char_inputs",
)
"""Settings that Regard's Transformer lacks."""
SETTINGS = {
    "hidden": "encoder_embed_dim",
    "heads": "encoder_attention_heads",
    "enc_layers": "encoder_layers",
    "dec_layers": "decoder_layers",
    "inner": "encoder_ffn_embed_dim",
}
"""Names of sizes in Regard and in fairseq's settings."""
SHARED_SETTINGS = ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before")
"""Settings that must be equal for encoder and decoder."""
NO_WEIGHTS = re.compile(
    r"(en|de)coder\.(version|embed_positions\.(_float_tensor|weights)"
    r"|layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias))"
)
"""Tensors of a checkpoint that are not parameters: sinusoids, and copies of encoder layers for PyTorch's fast
path."""


def read_fairseq(folder: Path) -> ImportedModel:
    """Read a folder with a checkpoint, `dict.SOURCE.txt`, `dict.TARGET.txt`, and BPE codes or a SentencePiece
    model.

    Raises `InputError` if the folder has no Transformer, if Regard's Transformer cannot represent the model, if
    a file is damaged, or if the extra `hub` (which the certificate needs) is not installed.
    """
    import_library("transformers", "the certificate", "hub")
    file = _find_checkpoint(folder)
    settings, state = _read_checkpoint(file)
    try:
        flags = _make_flags(settings)
        outer, tables = _take_outer_weights(state, settings, tied=flags["tied"])
        languages = (settings.get("source_lang"), settings.get("target_lang"))
        sides = read_vocabularies(folder, languages, (len(outer.source), len(outer.target)))
        names = module_names(FAIRSEQ, flags)
        parameters = from_external(state, names)
    except KeyError as error:
        raise damaged_file(file, f"it has no {error}", RESTORE) from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise damaged_file(file, describe_error(error, 100), RESTORE) from error
    known = {f"{module}.{kind}" for module in names.values() for kind in ("weight", "bias")}
    if unsupported := sorted(state.keys() - known):
        raise InputError(f"{str(file)!r} has {unsupported[0]}: Regard's Transformer does not have this part")
    if flags["joint"] and not is_same_vocabulary(*sides):
        raise InputError(
            "share_all_embeddings is on with two dictionaries: Regard needs one vocabulary per embedding matrix"
        )
    longest = min(len(table.vectors) for table in tables) - FIRST_POSITION
    if longest < MIN_POSITIONS:
        raise InputError(
            f"the model has {longest} positions for sources or targets: at least {MIN_POSITIONS} are needed"
        )
    flags |= {
        "tokenizer": sides[0].kind,
        "vocab_size": max(len(side.vocabulary) for side in sides),
        "max_len": (longest - 1) // 4,  # a run answers texts of up to four times max_len
    }
    rows = sides[0].rows, sides[1].rows
    parameters |= convert_outer_weights(outer, rows, flags) | {"output_bias": start_symbol_bias(rows[1])}
    steps = slice(FIRST_POSITION, FIRST_POSITION + 4 * flags["max_len"] + 1)
    parameters |= {
        f"{side}_positions.weight": table.vectors[steps]
        for side, table in zip(("source", "target"), tables, strict=True)
    }
    opened = partial(FairseqModel, settings=settings, state=state, outer=outer, tables=tables, sides=sides)
    return ImportedModel(flags, (sides[0].vocabulary, sides[1].vocabulary), parameters, lambda run: opened())


def _find_checkpoint(folder: Path) -> Path:
    if not is_folder(folder):
        raise InputError(f"{str(folder)!r} is not a folder: give a folder with a checkpoint and its dictionaries")
    for name in CHECKPOINTS:
        if is_file(folder / name):
            return folder / name
    checkpoints = [path for path in list_files(folder) if path.suffix == ".pt"]
    if len(checkpoints) != 1:
        has = f"has {', '.join(path.name for path in checkpoints)}" if checkpoints else "has no checkpoint"
        raise InputError(f"{str(folder)!r} {has}: give a folder with one checkpoint, such as {CHECKPOINTS[0]}")
    return checkpoints[0]


def _read_checkpoint(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the settings and parameters of a checkpoint, with names of older fairseq versions changed to current
    ones."""
    settings, state = load_checkpoint(
        file, [argparse.Namespace], lambda checkpoint: (_get_settings(checkpoint), checkpoint["model"]), RESTORE
    )
    return settings, _update_names(check_tensors(file, "model", state, RESTORE))


def _get_settings(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, which fairseq stores in `cfg` since version 0.10 and in `args` before."""
    if checkpoint.get("cfg") is None:
        return dict(vars(checkpoint["args"]))
    parts = [checkpoint["cfg"][name] for name in ("task", "model")]
    task, model = (dict(part if isinstance(part, dict) else vars(part)) for part in parts)
    languages = {name: task.get(name) or model.get(name) for name in ("source_lang", "target_lang")}
    return {**model, **languages, "arch": model.get("arch") or model["_name"]}


def _update_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return only the parameters, by the names that fairseq uses since version 0.9."""
    weights: dict[str, Tensor] = {}
    for name, value in state.items():
        norms = ["self_attn", "encoder_attn", "final"] if name.startswith("decoder") else ["self_attn", "final"]
        name = re.sub(r"layer_norms\.(\d)", lambda match: f"{norms[int(match[1])]}_layer_norm", name)  # noqa: B023
        prefix, joined, kind = name.partition(".in_proj_")
        if NO_WEIGHTS.fullmatch(name):
            continue
        parts = zip("qkv", value.chunk(3), strict=True) if joined else ()
        weights |= {f"{prefix}.{part}_proj.{kind}": rows for part, rows in parts} or {name: value}
    return weights


def _make_flags(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the settings of a checkpoint to flags of Regard's Transformer.

    Raises `InputError` with the name of an unsupported setting.
    """
    if not ARCHITECTURES.fullmatch(arch := str(settings.get("arch"))):
        raise InputError(f"arch {arch} is not supported: only fairseq's Transformers can be imported")
    for name in UNSUPPORTED:
        if value := settings.get(name):
            raise InputError(
                f"{name} {value} is not supported by Regard's Transformer: choose a model without this setting"
            )
    check_equal(settings, SHARED_SETTINGS)
    width = settings["encoder_embed_dim"]
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if (value := settings.get(name, width)) != width:
            raise InputError(f"{name} {value} differs from decoder_embed_dim {width}: Regard needs equal widths")
    activation = settings.get("activation_fn", "relu")
    check_supported("activation_fn", activation, ACTIVATIONS)
    joint = bool(settings.get("share_all_embeddings", False))
    return {
        **{ours: settings[theirs] for ours, theirs in SETTINGS.items()},
        "activation": activation,
        "dropout": float(settings.get("dropout", 0.1)),
        "positions": "learned",
        "pre_norm": bool(settings.get("encoder_normalize_before", False)),
        "bias": True,
        "tied": joint or bool(settings.get("share_decoder_input_output_embed", False)),
        "output_bias": True,
        "joint": joint,
    }


def _take_outer_weights(
    state: dict[str, Tensor], settings: Mapping[str, Any], *, tied: bool
) -> tuple[OuterWeights, list[PositionTable]]:
    """Remove the embeddings, output layer and positions from `state`, and return them; raises `KeyError` for a
    missing tensor."""
    source, target = (state.pop(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
    names = [name for name in ("decoder.output_projection.weight", "decoder.embed_out") if name in state]
    output = state.pop(names[0] if names else "decoder.output_projection.weight") if names or not tied else target
    tables = []
    for side, most in (("encoder", "max_source_positions"), ("decoder", "max_target_positions")):
        learned = bool(settings.get(f"{side}_learned_pos", False))
        count = FIRST_POSITION + min(settings[most], MAX_POSITIONS)
        name = f"{side}.embed_positions.weight"
        vectors = state.pop(name) if learned else make_sinusoids(count, source.shape[1])
        tables.append(PositionTable(vectors, learned))
    return OuterWeights(source, target, output), tables


def make_sinusoids(count: int, width: int) -> Tensor:
    """Return fairseq's sinusoidal positions from 0, (count, width), with all sines before all cosines.

    As in tensor2tensor, the exponent is divided by width/2 - 1. The operations have the same order as in fairseq,
    so that the rounding is equal.
    """
    half = width // 2
    rates = torch.exp(torch.arange(half) * -(math.log(10_000) / (half - 1)))
    angles = torch.arange(count).unsqueeze(1) * rates
    return nn.functional.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, width % 2))
