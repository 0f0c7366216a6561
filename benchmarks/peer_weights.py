"""Convert the weights of Regard's post-norm Transformer to MarianMT and JoeyNMT."""

from typing import Any

import torch
from torch import Tensor

from regard.data.vocabulary import BOS, EOS, PAD, UNKNOWN
from regard.models.transformer import Transformer

JOEYNMT_ORDER = (UNKNOWN, PAD, BOS, EOS)
"""Regard's special tokens in JoeyNMT's order; they precede all other tokens."""


def for_marian(model: Transformer, steps: int) -> dict[str, Tensor]:
    """Return the state dict of `MarianMTModel` with `steps` positions."""
    shared = model.target_embedding.weight
    positions = _positions(model, steps)
    state = {
        "model.shared.weight": shared,
        "lm_head.weight": shared,
        "final_logits_bias": shared.new_zeros(1, len(shared)),
    }
    for side in ("encoder", "decoder"):
        state[f"model.{side}.embed_tokens.weight"] = shared
        state[f"model.{side}.embed_positions.weight"] = positions
    projections = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    for name, attention, norm in _attentions(model):
        other = {"self_attention": "self_attn", "cross": "encoder_attn"}[name.split(".")[-1]]
        layer = f"model.{_layer(name)}"
        state |= _linears(attention, f"{layer}.{other}", projections)
        state |= _norm(norm, f"{layer}.{other}_layer_norm")
    for name, layer in _layers(model):
        state |= _linears(layer.feed_forward, f"model.{name}", {"inner": "fc1", "outer": "fc2"})
        state |= _norm(layer.feed_forward_residual.norm, f"model.{name}.final_layer_norm")
    return _plain(state)


def for_joeynmt(model: Transformer, steps: int) -> dict[str, Tensor]:
    """Return the state dict of JoeyNMT's model, whose vocabulary is in `JOEYNMT_ORDER`."""
    order = torch.tensor([*JOEYNMT_ORDER, *range(len(JOEYNMT_ORDER), len(model.target_embedding.weight))])
    shared = model.target_embedding.weight[order]
    names = ("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight")
    state = dict.fromkeys(names, shared)
    for side in ("encoder", "decoder"):
        state[f"{side}.pe.pe"] = _positions(model, steps).unsqueeze(0)
    projections = {"query": "q_layer", "key": "k_layer", "value": "v_layer", "output": "output_layer"}
    for name, attention, norm in _attentions(model):
        inside, kind = name.split(".")[0], name.split(".")[-1]
        theirs = {
            ("encoder", "self_attention"): ("src_src_att", "layer_norm"),
            ("decoder", "self_attention"): ("trg_trg_att", "x_layer_norm"),
            ("decoder", "cross"): ("src_trg_att", "dec_layer_norm"),
        }[inside, kind]
        state |= _linears(attention, f"{_layer(name)}.{theirs[0]}", projections)
        state |= _norm(norm, f"{_layer(name)}.{theirs[1]}")
    for name, layer in _layers(model):
        state |= _linears(layer.feed_forward, f"{name}.feed_forward.pwff_layer", {"inner": "0", "outer": "3"})
        state |= _norm(layer.feed_forward_residual.norm, f"{name}.feed_forward.layer_norm")
    return _plain(state)


def _layers(model: Transformer) -> list[tuple[str, Any]]:
    return [
        (f"{side}.layers.{number}", layer)
        for side in ("encoder", "decoder")
        for number, layer in enumerate(getattr(model, side).layers)
    ]


def _attentions(model: Transformer) -> list[tuple[str, Any, Any]]:
    """Return each attention layer with its name and its normalization."""
    attentions = []
    for name, layer in _layers(model):
        if name.startswith("encoder"):
            attentions.append((f"{name}.self_attention", layer.self_attention, layer.attention_residual.norm))
        else:
            attentions.append((f"{name}.self_attention", layer.self_attention, layer.self_residual.norm))
            attentions.append((f"{name}.cross", layer.cross, layer.cross_residual.norm))
    return attentions


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _linears(module: Any, prefix: str, names: dict[str, str]) -> dict[str, Tensor]:
    """Return weights and biases, with zeros for parameters that Regard does not have."""
    state = {}
    for own, other in names.items():
        linear = getattr(module, own)
        state[f"{prefix}.{other}.weight"] = linear.weight
        bias = linear.weight.new_zeros(len(linear.weight)) if linear.bias is None else linear.bias
        state[f"{prefix}.{other}.bias"] = bias
    return state


def _norm(norm: Any, prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}.weight": norm.weight, f"{prefix}.bias": norm.bias}


def _positions(model: Transformer, steps: int) -> Tensor:
    vectors: Tensor = model.target_positions.vectors(0, steps)  # type: ignore[union-attr, operator]
    return vectors


def _plain(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}
