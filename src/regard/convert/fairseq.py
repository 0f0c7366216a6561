"""Import of a fairseq Transformer (Ott et al. 2019) from a checkpoint and dictionaries.

Checkpoints are read with `weights_only`, which runs no code. fairseq differs from Regard in two points. Targets
start with the end symbol, so Regard's start symbol gets the same row and is never written. Sinusoidal positions
start at 2, have all sines before all cosines, and have a lower last frequency than in the paper; they are
imported as learned positions.
"""

import argparse
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.convert.fairseq_model import FairseqModel, OuterWeights
from regard.convert.fairseq_vocabulary import (
    MEND,
    PADDING,
    FairseqVocabulary,
    is_same_vocabulary,
    read_vocabularies,
)
from regard.convert.huggingface_import import ImportedModel
from regard.convert.parameters import (
    ModuleMapping,
    from_external,
    load_checkpoint,
    marian_modules,
    select_rows,
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
"""Maximum number of sinusoidal positions to compute, enough for training with up to 1,023 tokens."""
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
SHARED_SETTINGS = ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before")
"""Settings that must be equal for encoder and decoder."""
NO_WEIGHTS = re.compile(
    r"(en|de)coder\.(version|embed_positions\.(_float_tensor|weights)"
    r"|layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias))"
)
"""Other tensors of a checkpoint: sinusoids, and copies of encoder layers for PyTorch's fast path."""


def read_fairseq(folder: Path) -> ImportedModel:
    """Read a folder with a checkpoint, `dict.SOURCE.txt`, `dict.TARGET.txt`, and BPE codes or a SentencePiece
    model.

    Raises `InputError` if it has no Transformer, if Regard's cannot represent it, if a file is damaged, or if the
    extra `hub` is not installed, which the certificate needs.
    """
    import_library("transformers", "the certificate", "hub")
    file = _find_checkpoint(folder)
    settings, state = _read_checkpoint(file)
    try:
        flags = _make_flags(settings)
        outer = _take_outer_weights(state, settings, tied=flags["tied"])
        languages = (settings.get("source_lang"), settings.get("target_lang"))
        sides = read_vocabularies(folder, languages, (len(outer.source), len(outer.target)))
        modules = list(_modules(flags))
        parameters = from_external(state, modules, torch.arange(flags["hidden"]))
    except KeyError as error:
        raise damaged_file(file, f"it has no {error}", MEND) from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise damaged_file(file, describe_error(error, 100), MEND) from error
    known = {f"{module.theirs}.{kind}" for module in modules for kind in ("weight", "bias")}
    if unsupported := sorted(state.keys() - known):
        raise InputError(f"{str(file)!r} has {unsupported[0]}: Regard's Transformer has no such part")
    if flags["joint"] and not is_same_vocabulary(*sides):
        raise InputError(
            "share_all_embeddings is on with two dictionaries: Regard needs one vocabulary per embedding matrix"
        )
    longest = min(map(len, outer.tables)) - FIRST_POSITION
    if longest < MIN_POSITIONS:
        raise InputError(
            f"the model has {longest} positions for sources or targets: at least {MIN_POSITIONS} are needed"
        )
    flags |= {
        "tokenizer": sides[0].kind,
        "vocab_size": max(len(side.vocabulary) for side in sides),
        "max_len": (longest - 1) // 4,  # a run answers texts of up to four times max_len
    }
    parameters |= _convert_outer_weights(outer, sides, flags)
    opened = partial(FairseqModel, settings=settings, state=state, outside=outer, sides=sides)
    return ImportedModel(flags, (sides[0].vocabulary, sides[1].vocabulary), parameters, lambda run: opened())


def _find_checkpoint(folder: Path) -> Path:
    if not is_folder(folder):
        raise InputError(f"{str(folder)!r} is not a folder: give one with a checkpoint and its dictionaries")
    for name in CHECKPOINTS:
        if is_file(folder / name):
            return folder / name
    checkpoints = [path for path in list_files(folder) if path.suffix == ".pt"]
    if len(checkpoints) != 1:
        has = f"has {', '.join(path.name for path in checkpoints)}" if checkpoints else "has no checkpoint"
        raise InputError(f"{str(folder)!r} {has}: give a folder with one, such as {CHECKPOINTS[0]}")
    return checkpoints[0]


def _read_checkpoint(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the settings and parameters of a checkpoint; names of older fairseq versions are updated."""
    settings, state = load_checkpoint(
        file, [argparse.Namespace], lambda checkpoint: (_get_settings(checkpoint), checkpoint["model"]), MEND
    )
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise damaged_file(file, "its model holds more than tensors", MEND)
    return settings, _update_names({name: tensor.float() for name, tensor in state.items()})


def _get_settings(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings: fairseq stores them in `cfg` since 0.10, in `args` before."""
    if checkpoint.get("cfg") is None:
        return dict(vars(checkpoint["args"]))
    parts = [checkpoint["cfg"][name] for name in ("task", "model")]
    task, model = (dict(part if isinstance(part, dict) else vars(part)) for part in parts)
    languages = {name: task.get(name) or model.get(name) for name in ("source_lang", "target_lang")}
    return {**model, **languages, "arch": model.get("arch") or model["_name"]}


def _update_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights by the names used since fairseq 0.9, without other tensors."""
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
                f"{name} {value} is not supported by Regard's Transformer: only models without it can be imported"
            )
    for name in SHARED_SETTINGS:
        encoder, decoder = (settings.get(f"{side}_{name}") for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise InputError(
                f"decoder_{name} {decoder} differs from encoder_{name} {encoder}: Regard needs equal values"
            )
    width = settings["encoder_embed_dim"]
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if (value := settings.get(name, width)) != width:
            raise InputError(f"{name} {value} differs from decoder_embed_dim {width}: Regard needs equal widths")
    if (activation := settings.get("activation_fn", "relu")) not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise InputError(f"activation_fn {activation} is not supported: choose {known}")
    joint = bool(settings.get("share_all_embeddings", False))
    return {
        "hidden": width,
        "heads": settings["encoder_attention_heads"],
        "enc_layers": settings["encoder_layers"],
        "dec_layers": settings["decoder_layers"],
        "inner": settings["encoder_ffn_embed_dim"],
        "activation": activation,
        "dropout": float(settings.get("dropout", 0.1)),
        "positions": "learned",
        "pre_norm": bool(settings.get("encoder_normalize_before", False)),
        "bias": True,
        "tied": joint or bool(settings.get("share_decoder_input_output_embed", False)),
        "output_bias": True,
        "joint": joint,
    }


def _modules(flags: Mapping[str, Any]) -> Iterator[ModuleMapping]:
    """Yield all modules of fairseq's Transformer except embeddings and output layer.

    Hugging Face's Marian uses the same names, as its code was derived from fairseq's.
    """
    for module in marian_modules(flags["enc_layers"], flags["dec_layers"]):
        yield ModuleMapping(module.theirs.removeprefix("model."), module.ours)
    if flags["pre_norm"]:
        for side in ("encoder", "decoder"):
            yield ModuleMapping(f"{side}.layer_norm", f"{side}.norm")


def _take_outer_weights(state: dict[str, Tensor], settings: Mapping[str, Any], *, tied: bool) -> OuterWeights:
    """Remove the weights outside of the layers from `state` and return them; raises `KeyError` if one is
    missing."""
    source, target = (state.pop(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
    names = [name for name in ("decoder.output_projection.weight", "decoder.embed_out") if name in state]
    output = state.pop(names[0] if names else "decoder.output_projection.weight") if names or not tied else target
    tables, learned = [], []
    for side, most in (("encoder", "max_source_positions"), ("decoder", "max_target_positions")):
        learned.append(bool(settings.get(f"{side}_learned_pos", False)))
        name = f"{side}.embed_positions.weight"
        count = FIRST_POSITION + min(settings[most], MAX_POSITIONS)
        tables.append(state.pop(name) if learned[-1] else make_sinusoids(count, source.shape[1]))
    return OuterWeights(source, target, output, tables, learned)


def _convert_outer_weights(
    outer: OuterWeights, sides: tuple[FairseqVocabulary, FairseqVocabulary], flags: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return the weights outside of the layers by Regard's names."""
    source, target = sides
    parameters = {
        "target_embedding.weight": select_rows(outer.target, target.rows),
        "output_bias": start_symbol_bias(target.rows),
    }
    if not flags["joint"]:
        parameters["source_embedding.weight"] = select_rows(outer.source, source.rows)
    if not flags["tied"]:
        parameters["output.weight"] = select_rows(outer.output, target.rows)
    for name, table in zip(("source", "target"), outer.tables, strict=True):
        parameters[f"{name}_positions.weight"] = table[FIRST_POSITION : FIRST_POSITION + 4 * flags["max_len"] + 1]
    return parameters


def make_sinusoids(count: int, width: int) -> Tensor:
    """Return fairseq's sinusoidal positions from 0, (count, width), with all sines before all cosines.

    As in tensor2tensor, the exponent is divided by width/2 - 1. The operations have fairseq's order, so that the
    rounding is equal.
    """
    half = width // 2
    rates = torch.exp(torch.arange(half) * -(math.log(10_000) / (half - 1)))
    angles = torch.arange(count).unsqueeze(1) * rates
    return nn.functional.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, width % 2))
