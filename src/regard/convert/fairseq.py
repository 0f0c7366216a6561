"""Models of fairseq (Ott et al. 2019) on their way in: a checkpoint and dictionaries, as a Transformer of ours.

Its Transformer has our order of the width; a checkpoint is read as `weights_only`, which runs nothing of it. Two
things are otherwise there. A target begins with the symbol that ends it: our begin of sequence has its row, and
is never written. And its waves count from 2, all sines before all cosines, and the slowest is slower than the
paper's: they arrive as positions that have been learned.
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

from regard.convert.arriving import Arrived
from regard.convert.fairtext import MEND, PADDING, Side, same_side, sides_in
from regard.convert.infairseq import InFairseq, Outside
from regard.convert.marian import modules
from regard.convert.parameters import Renamed, load_checkpoint, never_begun, rows_of, to_ours
from regard.errors import InputError
from regard.io.reading import damaged_file, is_file, is_folder, list_files
from regard.libraries import import_library
from regard.plugins import describe_error

CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt")
FIRST = PADDING + 1
"""Its number of the first position."""
MOST = 4096
"""Positions of waves that are worked out: what a limit of 1,023 tokens in training asks for."""
LEAST = 5
"""Positions of a model that answers anything."""
ARCHITECTURES = re.compile(
    r"transformer(_tiny|_iwslt_de_en|_align|(_vaswani)?_wmt_en_(de|fr)(_big)?(_t2t|_align)?)?"
)
ACTIVATIONS = ("relu", "gelu")
OFF = (
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
"""Settings that a Transformer here has not."""
ALIKE = ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before")
"""Settings of encoder and decoder that are one here."""
NO_WEIGHTS = re.compile(
    r"(en|de)coder\.(version|embed_positions\.(_float_tensor|weights)"
    r"|layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias))"
)
"""What a checkpoint holds besides: waves, and copies of an encoder's layers for PyTorch's fast path."""


def read_fairseq(folder: Path) -> Arrived:
    """Read a folder with a checkpoint, `dict.SOURCE.txt`, `dict.TARGET.txt`, and what the text is cut by.

    Raises `InputError` where it holds no Transformer, one that ours cannot be, or damaged files; and where the
    extra `hub` is not installed, without which there is no certificate.
    """
    import_library("transformers", "the certificate", "hub")
    file = _checkpoint_in(folder)
    settings, state = _read(file)
    try:
        flags = _settings(settings)
        outside = _take_outside(state, settings, tied=flags["tied"])
        languages = (settings.get("source_lang"), settings.get("target_lang"))
        sides = sides_in(folder, languages, (len(outside.source), len(outside.target)))
        named = list(_modules(flags))
        found = to_ours(state, named, torch.arange(flags["hidden"]))
    except KeyError as error:
        raise damaged_file(file, f"it has no {error}", MEND) from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise damaged_file(file, describe_error(error, 100), MEND) from error
    known = {f"{each.theirs}.{kind}" for each in named for kind in ("weight", "bias")}
    if strange := sorted(state.keys() - known):
        raise InputError(f"{str(file)!r} has {strange[0]}: no Transformer here has such a part")
    if flags["joint"] and not same_side(*sides):
        raise InputError("share_all_embeddings is on with two dictionaries: one matrix has one vocabulary here")
    longest = min(map(len, outside.tables)) - FIRST
    if longest < LEAST:
        raise InputError(f"sources or targets of {longest} positions are too short: at least {LEAST} are needed")
    flags |= {
        "tokenizer": sides[0].kind,
        "vocab_size": max(len(side.vocabulary) for side in sides),
        "max_len": (longest - 1) // 4,  # four times as much is answered
    }
    found |= _ours(outside, sides, flags)
    opened = partial(InFairseq, settings=settings, state=state, outside=outside, sides=sides)
    return Arrived(flags, (sides[0].vocabulary, sides[1].vocabulary), found, lambda run: opened())


def _checkpoint_in(folder: Path) -> Path:
    if not is_folder(folder):
        raise InputError(f"{str(folder)!r} is no folder: give one with a checkpoint and its dictionaries")
    for name in CHECKPOINTS:
        if is_file(folder / name):
            return folder / name
    found = [path for path in list_files(folder) if path.suffix == ".pt"]
    if len(found) != 1:
        has = f"has {', '.join(path.name for path in found)}" if found else "has no checkpoint"
        raise InputError(f"{str(folder)!r} {has}: give a folder with one, such as {CHECKPOINTS[0]}")
    return found[0]


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the settings and the parameters of a checkpoint, those of older versions of fairseq by today's
    names."""
    settings, state = load_checkpoint(
        file, [argparse.Namespace], lambda found: (_asked(found), found["model"]), MEND
    )
    if not isinstance(state, dict) or not all(isinstance(each, Tensor) for each in state.values()):
        raise damaged_file(file, "its model holds more than tensors", MEND)
    return settings, _renamed({name: each.float() for name, each in state.items()})


def _asked(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was asked for: in `cfg` by parts since fairseq 0.10, in `args` before."""
    if checkpoint.get("cfg") is None:
        return dict(vars(checkpoint["args"]))
    parts = [checkpoint["cfg"][name] for name in ("task", "model")]
    task, model = (dict(part if isinstance(part, dict) else vars(part)) for part in parts)
    languages = {name: task.get(name) or model.get(name) for name in ("source_lang", "target_lang")}
    return {**model, **languages, "arch": model.get("arch") or model["_name"]}


def _renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return parameters by the names that fairseq has had since 0.9, without what is no weight."""
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        norms = ["self_attn", "encoder_attn", "final"] if name.startswith("decoder") else ["self_attn", "final"]
        name = re.sub(r"layer_norms\.(\d)", lambda match: f"{norms[int(match[1])]}_layer_norm", name)  # noqa: B023
        place, joined, kind = name.partition(".in_proj_")
        if NO_WEIGHTS.fullmatch(name):
            continue
        parts = zip("qkv", value.chunk(3), strict=True) if joined else ()
        found |= {f"{place}.{part}_proj.{kind}": rows for part, rows in parts} or {name: value}
    return found


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of a Transformer that is the model of a checkpoint.

    Raises `InputError`, which names the setting, for a model that ours cannot be.
    """
    if not ARCHITECTURES.fullmatch(arch := str(settings.get("arch"))):
        raise InputError(f"arch {arch} is none of fairseq's Transformers: no other is imported")
    for name in OFF:
        if value := settings.get(name):
            raise InputError(f"{name} {value} is not off: a Transformer here has nothing of the kind")
    for name in ALIKE:
        one, other = (settings.get(f"{side}_{name}") for side in ("encoder", "decoder"))
        if one != other:
            raise InputError(f"decoder_{name} {other} is not encoder_{name} {one}: they are one setting here")
    width = settings["encoder_embed_dim"]
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if (found := settings.get(name, width)) != width:
            raise InputError(f"{name} {found} is not decoder_embed_dim {width}: all states are as wide here")
    if (activation := settings.get("activation_fn", "relu")) not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise InputError(f"activation_fn {activation} is not imported: there are {known}")
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


def _modules(flags: Mapping[str, Any]) -> Iterator[Renamed]:
    """Yield all modules of fairseq's Transformer but its embeddings and its output layer.

    They are called as Marian's are in Hugging Face, whose code grew out of fairseq's.
    """
    for each in modules(flags["enc_layers"], flags["dec_layers"]):
        yield Renamed(each.theirs.removeprefix("model."), each.ours)
    if flags["pre_norm"]:
        for side in ("encoder", "decoder"):
            yield Renamed(f"{side}.layer_norm", f"{side}.norm")


def _take_outside(state: dict[str, Tensor], settings: Mapping[str, Any], *, tied: bool) -> Outside:
    """Take what stands outside of the layers out of the parameters; raises `KeyError` where something is
    missing."""
    source, target = (state.pop(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
    names = [name for name in ("decoder.output_projection.weight", "decoder.embed_out") if name in state]
    output = state.pop(names[0] if names else "decoder.output_projection.weight") if names or not tied else target
    tables, learned = [], []
    for side, most in (("encoder", "max_source_positions"), ("decoder", "max_target_positions")):
        learned.append(bool(settings.get(f"{side}_learned_pos", False)))
        name = f"{side}.embed_positions.weight"
        count = FIRST + min(settings[most], MOST)
        tables.append(state.pop(name) if learned[-1] else waves(count, source.shape[1]))
    return Outside(source, target, output, tables, learned)


def _ours(outside: Outside, sides: tuple[Side, Side], flags: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return what stands outside of the layers, by our names."""
    source, target = sides
    found = {
        "target_embedding.weight": rows_of(outside.target, target.rows),
        "output_bias": never_begun(target.rows),
    }
    if not flags["joint"]:
        found["source_embedding.weight"] = rows_of(outside.source, source.rows)
    if not flags["tied"]:
        found["output.weight"] = rows_of(outside.output, target.rows)
    for name, table in zip(("source", "target"), outside.tables, strict=True):
        found[f"{name}_positions.weight"] = table[FIRST : FIRST + 4 * flags["max_len"] + 1]
    return found


def waves(count: int, width: int) -> Tensor:
    """Return fairseq's waves at positions from 0, (count, width): as tensor2tensor's, all sines before all
    cosines, and rounded as there."""
    half = width // 2
    rates = torch.exp(torch.arange(half) * -(math.log(10_000) / (half - 1)))
    angles = torch.arange(count).unsqueeze(1) * rates
    return nn.functional.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, width % 2))
