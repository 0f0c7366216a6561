"""Layers from PyTorch's own, and to them: the same parameters, and the same answers.

    mine = from_torch(nn.TransformerEncoderLayer(512, 8, batch_first=True))
    theirs = to_torch(mine)

| PyTorch | Regard |
|---|---|
| `nn.MultiheadAttention` | `MultiHeadAttention` |
| `nn.TransformerEncoderLayer`, `nn.TransformerEncoder` | `EncoderLayer`, `Encoder` |
| `nn.TransformerDecoderLayer`, `nn.TransformerDecoder` | `DecoderLayer`, `Decoder` |
| `nn.Transformer` | an `nn.ModuleDict` of `encoder` and `decoder` |

What the other side does not have is refused: keys of its own, other activations than ReLU, grouped heads, other
scores, rotary positions. Dropout inside of the feed-forward network is PyTorch's alone; answers are equal in
evaluation mode.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.blocks import Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward, Residual
from regard.attention.multihead import MultiHeadAttention
from regard.attention.scores import ScaledDot
from regard.errors import InputError


def from_torch(layer: nn.Module) -> nn.Module:
    """Return Regard's layer with copies of the parameters of one of PyTorch's (see the table).

    Raises `InputError` for a layer that has no counterpart.
    """
    made = _from(layer)
    return made.train(layer.training)


def to_torch(layer: nn.Module) -> nn.Module:
    """Return PyTorch's layer, batch first, with copies of the parameters of one of Regard's (see the table).

    Raises `InputError` for a layer that has no counterpart.
    """
    return _to(layer).train(layer.training)


def _from(layer: Any) -> nn.Module:
    if isinstance(layer, nn.MultiheadAttention):
        return _attention_from(layer)
    if isinstance(layer, nn.TransformerEncoderLayer):
        made: Any = EncoderLayer(*_sizes(layer), **_options(layer))
        parts = [(made.self_attention, layer.self_attn)]
        residuals = [(made.attention_residual, layer.norm1), (made.feed_forward_residual, layer.norm2)]
    elif isinstance(layer, nn.TransformerDecoderLayer):
        made = DecoderLayer(*_sizes(layer), **_options(layer))
        parts = [(made.self_attention, layer.self_attn), (made.cross, layer.multihead_attn)]
        residuals = [(made.self_residual, layer.norm1), (made.cross_residual, layer.norm2)]
        residuals.append((made.feed_forward_residual, layer.norm3))
    elif isinstance(layer, nn.TransformerEncoder | nn.TransformerDecoder):
        return _stack_from(layer)
    elif isinstance(layer, nn.Transformer):
        return nn.ModuleDict({"encoder": _from(layer.encoder), "decoder": _from(layer.decoder)})
    else:
        raise InputError(
            f"{type(layer).__name__} has no counterpart: give nn.MultiheadAttention or a part of nn.Transformer"
        )
    for mine, theirs in parts:
        mine.load_state_dict(_attention_from(theirs).state_dict())
        mine.dropout = theirs.dropout
    for residual, norm in residuals:
        residual.norm = copy.deepcopy(norm)
    made.feed_forward.inner.load_state_dict(layer.linear1.state_dict())
    made.feed_forward.outer.load_state_dict(layer.linear2.state_dict())
    placed: nn.Module = made.to(layer.linear1.weight)
    return placed


def _sizes(layer: Any) -> tuple[int, int, int]:
    return layer.self_attn.embed_dim, layer.self_attn.num_heads, layer.linear1.out_features


def _options(layer: Any) -> dict[str, Any]:
    activation = layer.activation
    if activation not in (F.relu, torch.relu) and not isinstance(activation, nn.ReLU):
        raise InputError(
            f"activation {getattr(activation, '__name__', activation)!r} has no counterpart: only relu has"
        )
    if layer.linear1.bias is None:
        raise InputError("bias False has no counterpart: Regard's feed-forward networks have one")
    return {
        "pre_norm": layer.norm_first,
        "dropout": layer.dropout1.p,
        "bias": layer.self_attn.in_proj_bias is not None,
    }


def _attention_from(layer: nn.MultiheadAttention) -> MultiHeadAttention:
    if layer.bias_k is not None or layer.add_zero_attn:
        raise InputError("add_bias_kv and add_zero_attn have no counterpart: leave them out")
    if layer.kdim != layer.vdim:
        raise InputError(f"kdim {layer.kdim} and vdim {layer.vdim} have no counterpart: give one width for both")
    made = MultiHeadAttention(
        layer.embed_dim,
        layer.num_heads,
        memory_width=layer.kdim,
        bias=layer.in_proj_bias is not None,
        dropout=layer.dropout,
    )
    if layer.in_proj_weight is not None:
        weights: Sequence[Tensor] = layer.in_proj_weight.chunk(3)
    else:
        weights = [layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight]
    biases = (None,) * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
    for projection, weight, bias in zip(
        (made.query, made.key, made.value, made.output),
        (*weights, layer.out_proj.weight),
        (*biases, layer.out_proj.bias),
        strict=True,
    ):
        projection.weight = nn.Parameter(weight.detach().clone())
        if bias is not None:
            projection.bias = nn.Parameter(bias.detach().clone())
    return made


def _stack_from(stack: Any) -> nn.Module:
    layers = [_from(each) for each in stack.layers]
    kind: Any = Encoder if isinstance(stack, nn.TransformerEncoder) else Decoder
    made: nn.Module = kind(len(layers), *_sizes(stack.layers[0]))
    made.layers = nn.ModuleList(layers)
    made.norm = nn.Identity() if stack.norm is None else copy.deepcopy(stack.norm)
    return made


def _to(layer: Any) -> nn.Module:
    if isinstance(layer, MultiHeadAttention):
        return _attention_to(layer)
    if isinstance(layer, EncoderLayer | DecoderLayer):
        return _layer_to(layer)
    if isinstance(layer, Encoder | Decoder):
        layers = [_to(each) for each in layer.layers]
        kind: Any = nn.TransformerEncoder if isinstance(layer, Encoder) else nn.TransformerDecoder
        norm = None if isinstance(layer.norm, nn.Identity) else copy.deepcopy(layer.norm)
        options = {"enable_nested_tensor": False} if isinstance(layer, Encoder) else {}
        made: nn.Module = kind(layers[0], len(layers), norm, **options)
        made.layers = nn.ModuleList(layers)
        return made
    if isinstance(layer, nn.ModuleDict) and set(layer) == {"encoder", "decoder"}:
        encoder, decoder = _to(layer["encoder"]), _to(layer["decoder"])
        first: Any = layer["encoder"].layers
        mine: Any = first[0].self_attention
        whole = nn.Transformer(mine.query.in_features, mine.heads, 1, 1, 1, batch_first=True)
        whole.encoder, whole.decoder = encoder, decoder  # later: what it is given it draws anew
        return whole
    raise InputError(f"{type(layer).__name__} has no counterpart: give MultiHeadAttention or a block of layers")


def _attention_to(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    width = layer.query.in_features
    plain = type(layer.score) is ScaledDot and layer.rotary is None and layer.groups == layer.heads
    if not plain or layer.head_width * layer.heads != width:
        raise InputError(
            "PyTorch has no counterpart for grouped heads, heads of another width, other scores and rotation"
        )
    made: Any = nn.MultiheadAttention(
        width,
        layer.heads,
        dropout=layer.dropout,
        bias=layer.query.bias is not None,
        kdim=layer.key.in_features,
        vdim=layer.value.in_features,
        batch_first=True,
    )
    parts = (layer.query, layer.key, layer.value)
    with torch.no_grad():
        if made.in_proj_weight is not None:
            made.in_proj_weight.copy_(torch.cat([each.weight for each in parts]))
        else:
            for name, each in zip(("q", "k", "v"), parts, strict=True):
                getattr(made, f"{name}_proj_weight").copy_(each.weight)
        if made.in_proj_bias is not None:
            made.in_proj_bias.copy_(torch.cat([each.bias for each in parts]))
        made.out_proj.load_state_dict(layer.output.state_dict())
    placed: nn.MultiheadAttention = made.to(layer.query.weight)
    return placed


def _layer_to(layer: Any) -> nn.Module:
    attention: Any = layer.self_attention
    encodes = isinstance(layer, EncoderLayer)
    if not isinstance(attention, MultiHeadAttention):
        raise InputError("PyTorch has no counterpart for attention without heads")
    last: Residual = layer.feed_forward_residual
    network: FeedForward = layer.feed_forward
    if network.activation != "relu":
        raise InputError(f"activation {network.activation} is not converted: build the layer with relu")
    kind: Any = nn.TransformerEncoderLayer if encodes else nn.TransformerDecoderLayer
    made: Any = kind(
        attention.query.in_features,
        attention.heads,
        network.inner.out_features,
        last.dropout.rate,
        norm_first=last.pre_norm,
        batch_first=True,
    )
    made.self_attn = _attention_to(attention)
    if encodes:
        norms = [layer.attention_residual.norm, last.norm]
    else:
        made.multihead_attn = _attention_to(layer.cross)
        norms = [layer.self_residual.norm, layer.cross_residual.norm, last.norm]
    for number, norm in enumerate(norms):
        setattr(made, f"norm{number + 1}", copy.deepcopy(norm))
    made.linear1.load_state_dict(network.inner.state_dict())
    made.linear2.load_state_dict(network.outer.state_dict())
    placed: nn.Module = made.to(network.inner.weight)
    return placed
