"""Conversion between the attention layers of PyTorch and Regard, with the same parameters and outputs.

    layer = from_torch(nn.TransformerEncoderLayer(512, 8, batch_first=True))
    original = to_torch(layer)

| PyTorch | Regard |
|---|---|
| `nn.MultiheadAttention` | `MultiHeadAttention` |
| `nn.TransformerEncoderLayer`, `nn.TransformerEncoder` | `EncoderLayer`, `Encoder` |
| `nn.TransformerDecoderLayer`, `nn.TransformerDecoder` | `DecoderLayer`, `Decoder` |
| `nn.Transformer` | an `nn.ModuleDict` of `encoder` and `decoder` |

The following features have no counterpart and raise an error: learned extra keys, activations other than ReLU,
grouped heads, other scores, rotary positions. Only PyTorch has dropout inside the feed-forward network, so
outputs are equal only in evaluation mode.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.blocks import Decoder, DecoderLayer, Encoder, EncoderLayer
from regard.attention.multihead import MultiHeadAttention
from regard.errors import InputError


class Counterpart(NamedTuple):
    """Classes of a layer and of a stack in Regard and PyTorch, with the names of the layer's submodules."""

    layer: type[nn.Module]
    stack: type[nn.Module]
    torch_layer: type[nn.Module]
    torch_stack: type[nn.Module]
    attention: dict[str, str]
    """Attention layers."""
    norms: dict[str, str]
    """Names of Regard's residual connections and of PyTorch's normalizations."""


COUNTERPARTS = (
    Counterpart(
        EncoderLayer,
        Encoder,
        nn.TransformerEncoderLayer,
        nn.TransformerEncoder,
        attention={"self_attention": "self_attn"},
        norms={"attention_residual": "norm1", "feed_forward_residual": "norm2"},
    ),
    Counterpart(
        DecoderLayer,
        Decoder,
        nn.TransformerDecoderLayer,
        nn.TransformerDecoder,
        attention={"self_attention": "self_attn", "cross": "multihead_attn"},
        norms={"self_residual": "norm1", "cross_residual": "norm2", "feed_forward_residual": "norm3"},
    ),
)
MATRICES = {"inner": "linear1", "outer": "linear2"}
"""Matrices of the feed-forward network."""


def from_torch(layer: nn.Module) -> nn.Module:
    """Return the Regard counterpart of a PyTorch layer, with copies of its parameters (see the table above).

    Raises `InputError` for a layer without a counterpart.

    >>> type(from_torch(nn.MultiheadAttention(12, 3))).__name__
    'MultiHeadAttention'
    """
    return _from(layer).train(layer.training)


def to_torch(layer: nn.Module) -> nn.Module:
    """Return the PyTorch counterpart (batch first) of a layer, with copies of its parameters (see the table
    above).

    Raises `InputError` for a layer without a counterpart.

    >>> type(to_torch(MultiHeadAttention(12, heads=3))).__name__
    'MultiheadAttention'
    """
    return _to(layer).train(layer.training)


def _from(layer: Any) -> nn.Module:
    if isinstance(layer, nn.MultiheadAttention):
        return _attention_from(layer)
    if isinstance(layer, nn.Transformer):
        return nn.ModuleDict({"encoder": _from(layer.encoder), "decoder": _from(layer.decoder)})
    for counterpart in COUNTERPARTS:
        if isinstance(layer, counterpart.torch_layer):
            return _layer_from(layer, counterpart)
        if isinstance(layer, counterpart.torch_stack):
            return _stack_from(layer, counterpart)
    raise InputError(
        f"{type(layer).__name__} has no counterpart: give nn.MultiheadAttention or a part of nn.Transformer"
    )


def _layer_from(layer: Any, counterpart: Counterpart) -> nn.Module:
    converted: Any = counterpart.layer(*_sizes(layer), **_options(layer))
    for ours, theirs in counterpart.attention.items():
        original = getattr(layer, theirs)
        getattr(converted, ours).load_state_dict(_attention_from(original).state_dict())
        getattr(converted, ours).dropout = original.dropout
    for ours, theirs in counterpart.norms.items():
        getattr(converted, ours).norm = copy.deepcopy(getattr(layer, theirs))
    for ours, theirs in MATRICES.items():
        getattr(converted.feed_forward, ours).load_state_dict(getattr(layer, theirs).state_dict())
    on_device: nn.Module = converted.to(layer.linear1.weight)
    return on_device


def _sizes(layer: Any) -> tuple[int, int, int]:
    return layer.self_attn.embed_dim, layer.self_attn.num_heads, layer.linear1.out_features


def _options(layer: Any) -> dict[str, Any]:
    activation = layer.activation
    if activation not in (F.relu, torch.relu) and not isinstance(activation, nn.ReLU):
        raise InputError(
            f"activation {getattr(activation, '__name__', activation)!r} has no counterpart: use relu"
        )
    if layer.linear1.bias is None:
        raise InputError("bias False has no counterpart: feed-forward networks of Regard's blocks have a bias")
    return {
        "pre_norm": layer.norm_first,
        "dropout": layer.dropout1.p,
        "bias": layer.self_attn.in_proj_bias is not None,
    }


def _attention_from(layer: nn.MultiheadAttention) -> MultiHeadAttention:
    if layer.bias_k is not None or layer.add_zero_attn:
        raise InputError("add_bias_kv and add_zero_attn have no counterpart in Regard: leave them out")
    if layer.kdim != layer.vdim:
        raise InputError(
            f"kdim {layer.kdim} and vdim {layer.vdim} have no counterpart in Regard: give the same width for both"
        )
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


def _stack_from(stack: Any, counterpart: Counterpart) -> nn.Module:
    layers = [_from(layer) for layer in stack.layers]
    converted: Any = counterpart.stack(len(layers), *_sizes(stack.layers[0]))
    converted.layers = nn.ModuleList(layers)
    converted.norm = nn.Identity() if stack.norm is None else copy.deepcopy(stack.norm)
    stacked: nn.Module = converted
    return stacked


def _to(layer: Any) -> nn.Module:
    if isinstance(layer, MultiHeadAttention):
        return _attention_to(layer)
    for counterpart in COUNTERPARTS:
        if isinstance(layer, counterpart.layer):
            return _layer_to(layer, counterpart)
        if isinstance(layer, counterpart.stack):
            return _stack_to(layer, counterpart)
    if isinstance(layer, nn.ModuleDict) and set(layer) == {"encoder", "decoder"}:
        encoder_layers: Any = layer["encoder"].layers
        attention = encoder_layers[0].self_attention
        transformer = nn.Transformer(attention.query.in_features, attention.heads, 1, 1, 1, batch_first=True)
        # The parts are set after construction, because the constructor would initialize them again.
        transformer.encoder, transformer.decoder = _to(layer["encoder"]), _to(layer["decoder"])
        return transformer
    raise InputError(f"{type(layer).__name__} has no counterpart: give MultiHeadAttention or a block of layers")


def _stack_to(stack: Any, counterpart: Counterpart) -> nn.Module:
    layers = [_to(layer) for layer in stack.layers]
    norm = None if isinstance(stack.norm, nn.Identity) else copy.deepcopy(stack.norm)
    options = {"enable_nested_tensor": False} if isinstance(stack, Encoder) else {}
    converted: Any = counterpart.torch_stack(layers[0], len(layers), norm, **options)
    converted.layers = nn.ModuleList(layers)
    stacked: nn.Module = converted
    return stacked


def _attention_to(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    width = layer.query.in_features
    plain = layer.standard and layer.rotary is None and layer.groups == layer.heads
    if not plain or layer.head_width * layer.heads != width:
        raise InputError(
            "PyTorch has no counterpart for grouped heads, different head widths, rotary positions and other "
            "attention mechanisms"
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


def _layer_to(layer: Any, counterpart: Counterpart) -> nn.Module:
    attention, network = layer.self_attention, layer.feed_forward
    if not isinstance(attention, MultiHeadAttention):
        raise InputError("PyTorch has no counterpart for attention without heads")
    if network.activation != "relu":
        raise InputError(f"activation {network.activation} cannot be converted: build the layer with relu")
    converted: Any = counterpart.torch_layer(
        attention.query.in_features,
        attention.heads,
        network.inner.out_features,
        layer.feed_forward_residual.dropout.rate,
        norm_first=layer.feed_forward_residual.pre_norm,
        batch_first=True,
    )
    for ours, theirs in counterpart.attention.items():
        setattr(converted, theirs, _attention_to(getattr(layer, ours)))
    for ours, theirs in counterpart.norms.items():
        setattr(converted, theirs, copy.deepcopy(getattr(layer, ours).norm))
    for ours, theirs in MATRICES.items():
        getattr(converted, theirs).load_state_dict(getattr(network, ours).state_dict())
    on_device: nn.Module = converted.to(network.inner.weight)
    return on_device
