"""Conversion of PyTorch's attention layers to Regard's and back, with the same parameters and outputs.

    layer = from_torch(nn.TransformerEncoderLayer(512, 8, batch_first=True))
    original = to_torch(layer)

| PyTorch | Regard |
|---|---|
| `nn.MultiheadAttention` | `MultiHeadAttention` |
| `nn.TransformerEncoderLayer`, `nn.TransformerEncoder` | `EncoderLayer`, `Encoder` |
| `nn.TransformerDecoderLayer`, `nn.TransformerDecoder` | `DecoderLayer`, `Decoder` |
| `nn.Transformer` | an `nn.ModuleDict` of `encoder` and `decoder` |

Features without a counterpart raise an error: learned extra keys, activations other than ReLU, grouped heads,
other scores, rotary positions. Only PyTorch has dropout inside the feed-forward network; outputs are equal in
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
    """Return Regard's counterpart of a PyTorch layer, with copies of its parameters (see the table).

    Raises `InputError` for a layer without a counterpart.

    >>> type(from_torch(nn.MultiheadAttention(12, 3))).__name__
    'MultiHeadAttention'
    """
    return _from(layer).train(layer.training)


def to_torch(layer: nn.Module) -> nn.Module:
    """Return PyTorch's counterpart of a layer, batch first, with copies of its parameters (see the table).

    Raises `InputError` for a layer without a counterpart.
    """
    return _to(layer).train(layer.training)


def _from(layer: Any) -> nn.Module:
    if isinstance(layer, nn.MultiheadAttention):
        return _attention_from(layer)
    if isinstance(layer, nn.TransformerEncoderLayer):
        converted: Any = EncoderLayer(*_sizes(layer), **_options(layer))
        parts = [(converted.self_attention, layer.self_attn)]
        residuals = [(converted.attention_residual, layer.norm1), (converted.feed_forward_residual, layer.norm2)]
    elif isinstance(layer, nn.TransformerDecoderLayer):
        converted = DecoderLayer(*_sizes(layer), **_options(layer))
        parts = [(converted.self_attention, layer.self_attn), (converted.cross, layer.multihead_attn)]
        residuals = [(converted.self_residual, layer.norm1), (converted.cross_residual, layer.norm2)]
        residuals.append((converted.feed_forward_residual, layer.norm3))
    elif isinstance(layer, nn.TransformerEncoder | nn.TransformerDecoder):
        return _stack_from(layer)
    elif isinstance(layer, nn.Transformer):
        return nn.ModuleDict({"encoder": _from(layer.encoder), "decoder": _from(layer.decoder)})
    else:
        raise InputError(
            f"{type(layer).__name__} has no counterpart: give nn.MultiheadAttention or a part of nn.Transformer"
        )
    for attention, original in parts:
        attention.load_state_dict(_attention_from(original).state_dict())
        attention.dropout = original.dropout
    for residual, norm in residuals:
        residual.norm = copy.deepcopy(norm)
    converted.feed_forward.inner.load_state_dict(layer.linear1.state_dict())
    converted.feed_forward.outer.load_state_dict(layer.linear2.state_dict())
    on_device: nn.Module = converted.to(layer.linear1.weight)
    return on_device


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
    attention = MultiHeadAttention(
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
        (attention.query, attention.key, attention.value, attention.output),
        (*weights, layer.out_proj.weight),
        (*biases, layer.out_proj.bias),
        strict=True,
    ):
        projection.weight = nn.Parameter(weight.detach().clone())
        if bias is not None:
            projection.bias = nn.Parameter(bias.detach().clone())
    return attention


def _stack_from(stack: Any) -> nn.Module:
    layers = [_from(layer) for layer in stack.layers]
    stack_class: Any = Encoder if isinstance(stack, nn.TransformerEncoder) else Decoder
    converted: nn.Module = stack_class(len(layers), *_sizes(stack.layers[0]))
    converted.layers = nn.ModuleList(layers)
    converted.norm = nn.Identity() if stack.norm is None else copy.deepcopy(stack.norm)
    return converted


def _to(layer: Any) -> nn.Module:
    if isinstance(layer, MultiHeadAttention):
        return _attention_to(layer)
    if isinstance(layer, EncoderLayer | DecoderLayer):
        return _layer_to(layer)
    if isinstance(layer, Encoder | Decoder):
        layers = [_to(part) for part in layer.layers]
        stack_class: Any = nn.TransformerEncoder if isinstance(layer, Encoder) else nn.TransformerDecoder
        norm = None if isinstance(layer.norm, nn.Identity) else copy.deepcopy(layer.norm)
        options = {"enable_nested_tensor": False} if isinstance(layer, Encoder) else {}
        stack: nn.Module = stack_class(layers[0], len(layers), norm, **options)
        stack.layers = nn.ModuleList(layers)
        return stack
    if isinstance(layer, nn.ModuleDict) and set(layer) == {"encoder", "decoder"}:
        encoder, decoder = _to(layer["encoder"]), _to(layer["decoder"])
        encoder_layers: Any = layer["encoder"].layers
        attention = encoder_layers[0].self_attention
        transformer = nn.Transformer(attention.query.in_features, attention.heads, 1, 1, 1, batch_first=True)
        # Set after construction: the constructor initializes parts passed to it again.
        transformer.encoder, transformer.decoder = encoder, decoder
        return transformer
    raise InputError(f"{type(layer).__name__} has no counterpart: give MultiHeadAttention or a block of layers")


def _attention_to(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    width = layer.query.in_features
    plain = type(layer.score) is ScaledDot and layer.rotary is None and layer.groups == layer.heads
    if not plain or layer.head_width * layer.heads != width:
        raise InputError(
            "PyTorch has no counterpart for grouped heads, heads of another width, other scores and rotation"
        )
    attention: Any = nn.MultiheadAttention(
        width,
        layer.heads,
        dropout=layer.dropout,
        bias=layer.query.bias is not None,
        kdim=layer.key.in_features,
        vdim=layer.value.in_features,
        batch_first=True,
    )
    projections = (layer.query, layer.key, layer.value)
    with torch.no_grad():
        if attention.in_proj_weight is not None:
            attention.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
        else:
            for name, projection in zip(("q", "k", "v"), projections, strict=True):
                getattr(attention, f"{name}_proj_weight").copy_(projection.weight)
        if attention.in_proj_bias is not None:
            attention.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
        attention.out_proj.load_state_dict(layer.output.state_dict())
    on_device: nn.MultiheadAttention = attention.to(layer.query.weight)
    return on_device


def _layer_to(layer: Any) -> nn.Module:
    attention: Any = layer.self_attention
    is_encoder = isinstance(layer, EncoderLayer)
    if not isinstance(attention, MultiHeadAttention):
        raise InputError("PyTorch has no counterpart for attention without heads")
    residual: Residual = layer.feed_forward_residual
    network: FeedForward = layer.feed_forward
    if network.activation != "relu":
        raise InputError(f"activation {network.activation} is not converted: build the layer with relu")
    layer_class: Any = nn.TransformerEncoderLayer if is_encoder else nn.TransformerDecoderLayer
    converted: Any = layer_class(
        attention.query.in_features,
        attention.heads,
        network.inner.out_features,
        residual.dropout.rate,
        norm_first=residual.pre_norm,
        batch_first=True,
    )
    converted.self_attn = _attention_to(attention)
    if is_encoder:
        norms = [layer.attention_residual.norm, residual.norm]
    else:
        converted.multihead_attn = _attention_to(layer.cross)
        norms = [layer.self_residual.norm, layer.cross_residual.norm, residual.norm]
    for number, norm in enumerate(norms):
        setattr(converted, f"norm{number + 1}", copy.deepcopy(norm))
    converted.linear1.load_state_dict(network.inner.state_dict())
    converted.linear2.load_state_dict(network.outer.state_dict())
    on_device: nn.Module = converted.to(network.inner.weight)
    return on_device
