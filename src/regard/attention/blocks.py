"""Transformer blocks: residual connections, dropout, normalization, feed-forward (Vaswani et al. 2017, figure 1).

Normalization comes after each residual sum, `norm(x + layer(x))`, as in the paper. With `pre_norm`, normalization comes
before the layer, `x + layer(norm(x))`, so that deep stacks train without warm-up (Xiong et al. 2020). A final
normalization follows the last layer of the stack. Dropout is applied to the output of each layer.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.arguments import Limits, public
from regard.attention.layer import Attention
from regard.attention.mechanism import Mechanism
from regard.attention.multihead import KeyValues, MultiHeadAttention
from regard.attention.parts import AttentionKind
from regard.attention.scores import ScaledDot, Score
from regard.fast.compiled_relu import compiled_relu
from regard.plugins import build_plugin, plugin_class

# PyTorch draws a random number for each value, which takes a sixth of the time of a Transformer's training step
# on a CPU. `Dropout` draws one random byte for each value and compares the byte with 256 times the rate, which is
# 7 times faster (docs/dev/benchmarks.md, "Parts of a translation step").
BYTE = 256


@public
class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014): set a random fraction of the values to zero during training, and scale
    the remaining values to keep the mean.

    `rate`: at least 0 and less than 1. On a CPU, a nonzero rate is rounded to the nearest multiple of 1/256 that is
    above 0 and below 1. The random bytes come from PyTorch's generator. Raises `InputError` for a rate out of range.

    >>> Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, rate: Annotated[float, Limits(0, 1, "high")]) -> None:
        super().__init__()
        self.rate = rate

    def extra_repr(self) -> str:
        return f"rate={self.rate}"

    def forward(self, states: Tensor) -> Tensor:
        """Return states of any shape with a random fraction of the values set to zero."""
        if not self.training or not self.rate:
            return states
        if states.device.type != "cpu":
            return F.dropout(states, self.rate)
        dropped = min(max(round(self.rate * BYTE), 1), BYTE - 1)
        mask = torch.empty(-(-states.numel() // 8) * 8, dtype=torch.uint8)
        draw = _draw_when_compiled if torch.compiler.is_compiling() else _draw_mask
        draw(mask, dropped)
        mask = mask[: states.numel()].view_as(states)
        return states * mask.to(states.dtype).mul_(BYTE / (BYTE - dropped))


def _draw_mask(mask: Tensor, dropped: int) -> None:
    """Set each value of a mask to 0 with a probability of `dropped` / 256, and otherwise to 1.

    `mask`: (N,) uint8; N is divisible by 8.
    """
    mask.view(torch.int64).random_(torch.iinfo(torch.int64).min, None)
    # The result is 1 for bytes of at least `dropped`, and 0 for smaller bytes. Clamping keeps the dtype uint8. A
    # comparison would convert the bytes to a wider dtype and take ten times as long.
    mask.clamp_(dropped - 1, dropped).sub_(dropped - 1)


# A compiler calls this operation without looking into it: its own random numbers take most of the time of a
# compiled step on a CPU. It merges equal operations, but not operations that write to different tensors.
_draw_when_compiled = torch.library.custom_op("regard::draw_mask", _draw_mask, mutates_args=("mask",))


Activation = Literal["relu", "gelu", "swish"]
"""relu: Vaswani et al. 2017; gelu: Hendrycks and Gimpel 2016; swish: x sigmoid(x), Ramachandran et al. 2017."""
GatedActivation = Literal["relu", "gelu", "gelu_tanh", "swiglu"]
"""Activations of decoder-only models. gelu_tanh: GPT-2's approximation; swiglu: Shazeer 2020, equation 6."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swish": F.silu,
    "swiglu": F.silu,
}


@public
class FeedForward(nn.Module):
    """Position-wise network of section 3.3: `W2 relu(W1 x + b1) + b2`, with the same weights at every position.

    `activation` replaces ReLU; with swiglu, `W2 (silu(W3 x) * (W1 x))` (Shazeer 2020, equation 6). Raises
    `InputError` for an unknown activation.

    >>> import torch
    >>> FeedForward(12, 24)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self, width: int, inner_width: int, activation: Activation | GatedActivation = "relu", *, bias: bool = True
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner_width, bias=bias)
        self.gate = nn.Linear(width, inner_width, bias=bias) if activation == "swiglu" else None
        self.outer = nn.Linear(inner_width, width, bias=bias)
        self.activation = activation

    def forward(self, states: Tensor) -> Tensor:
        """Map states (..., D) to (..., D)."""
        inner = self.inner(states)
        inner = self.activate(inner) if self.gate is None else self.activate(self.gate(states)) * inner
        outputs: Tensor = self.outer(inner)
        return outputs

    @property
    def activate(self) -> Callable[[Tensor], Tensor]:
        """The activation function."""
        if self.activation == "relu" and torch.compiler.is_compiling():
            return compiled_relu
        return ACTIVATIONS[self.activation]


STANDARD = "standard"
"""Name of Regard's encoder layer."""
EPSILON = 1e-5
"""Number added to the variance in normalization; PyTorch's default."""
Norm = Literal["layer", "rms", "none"]
"""layer: layer normalization, Ba et al. 2016; rms: division by the root mean square, Zhang and Sennrich 2019;
none: no normalization."""


@public
class Block(nn.Module):
    """Base class of the layers of a stack, each of which is compiled, and split in sharded training, separately."""


@public
def make_norm(width: int, epsilon: float = EPSILON, norm: Norm = "layer", *, bias: bool = True) -> nn.Module:
    """Return the normalization layer `norm` for states (..., D). `bias` applies only to layer normalization.

    >>> make_norm(12, norm="rms")
    RMSNorm((12,), eps=1e-05, elementwise_affine=True)
    """
    if norm == "none":
        return nn.Identity()
    return nn.RMSNorm(width, epsilon) if norm == "rms" else nn.LayerNorm(width, epsilon, bias=bias)


@public
class Residual(nn.Module):
    """Residual connection around a layer, with normalization and dropout."""

    def __init__(
        self,
        width: int,
        *,
        pre_norm: bool = False,
        dropout: float = 0.0,
        epsilon: float = EPSILON,
        norm: Norm = "layer",
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.norm = make_norm(width, epsilon, norm, bias=bias)
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(self, states: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the sum of `states` (B, T, D) and the output of `layer`."""
        output: Tensor = self.dropout(layer(self.norm(states) if self.pre_norm else states))
        return states + output if self.pre_norm else self.norm(states + output)


@public
def attention_layer(
    width: int,
    heads: int | None,
    *,
    score: type[Score] = ScaledDot,
    mechanism: Mechanism | None = None,
    kind: AttentionKind = "self",
    **options: Any,
) -> Attention | MultiHeadAttention:
    """Return a multi-head attention layer, or a single-head layer without projections if `heads` is None.

    Parts of `mechanism` that have no meaning in a layer of this `kind` are left out.

    >>> attention_layer(12, 3).heads, attention_layer(12, None).heads
    (3, 1)
    """
    mechanism = None if mechanism is None else mechanism.for_kind(kind)
    if heads is None:
        return Attention(score(width, width), mechanism=mechanism, kind=kind)
    return MultiHeadAttention(width, heads, score=score, mechanism=mechanism, kind=kind, **options)


@public
class EncoderLayer(Block):
    """Self-attention and a feed-forward network, each with a residual connection (section 3.1).

    `heads`: number of heads, or None for single-head attention without projections. `epsilon`: number added to
    the variance in normalization. `options`: passed to `MultiHeadAttention`.

    >>> import torch
    >>> EncoderLayer(12, 3, 24)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        width: int,
        heads: int | None,
        inner_width: int,
        *,
        pre_norm: bool = False,
        dropout: float = 0.0,
        activation: Activation = "relu",
        epsilon: float = EPSILON,
        norm: Norm = "layer",
        **options: Any,
    ) -> None:
        super().__init__()
        self.self_attention = attention_layer(width, heads, **options)
        residual: dict[str, Any] = {"pre_norm": pre_norm, "dropout": dropout, "epsilon": epsilon, "norm": norm}
        self.attention_residual = Residual(width, **residual)
        self.feed_forward = FeedForward(width, inner_width, activation)
        self.feed_forward_residual = Residual(width, **residual)

    def forward(self, states: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return states (B, T, D) for states (B, T, D); `mask` as in `MultiHeadAttention`."""
        states = self.attention_residual(
            states, lambda inputs: self.self_attention(inputs, inputs, inputs, mask, causal=causal)
        )
        outputs: Tensor = self.feed_forward_residual(states, self.feed_forward)
        return outputs


@public
def check_encoder_layer(name: str) -> None:
    """Raise `InputError` unless `name` is `standard` or the `module:Class` of a custom layer.

    >>> check_encoder_layer("standard")
    """
    if name != STANDARD:
        plugin_class("layer", name, nn.Module, (STANDARD,))


@public
def make_encoder_layer(name: str, width: int, heads: int | None, inner_width: int, **options: Any) -> nn.Module:
    """Return the standard encoder layer with `options`, or the custom layer named by `module:Class`.

    The constructor of a custom layer takes the width, the number of heads (1 without projections) and the inner
    width. Its `forward` takes states (B, T, D) and a mask, which is None or (B, 1, T) with True before the end
    of each sequence. Raises `InputError` if the layer cannot be built.

    >>> type(make_encoder_layer("standard", 12, 3, 24)).__name__
    'EncoderLayer'
    """
    if name == STANDARD:
        return EncoderLayer(width, heads, inner_width, **options)
    layer = plugin_class("layer", name, nn.Module, (STANDARD,))
    sizes = f"width {width}, {heads or 1} heads, inner width {inner_width}"
    return build_plugin("layer", name, lambda: layer(width, heads or 1, inner_width), sizes, "these three")


class LayerStack(nn.Module):
    """A stack of layers. With `pre_norm`, a normalization follows the last layer."""

    norm_options = frozenset(("pre_norm", "epsilon", "norm"))  # options of a layer that the final norm shares

    def __init__(self, layers: Iterable[nn.Module], width: int, *, pre_norm: bool = False, **norm: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = make_norm(width, **norm) if pre_norm else nn.Identity()


@public
class Encoder(LayerStack):
    """A stack of `layers` encoder layers of the type `layer`. `options` are arguments of the standard layer.

    >>> import torch
    >>> Encoder(2, 12, 3, 24)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self, layers: int, width: int, heads: int, inner_width: int, *, layer: str = STANDARD, **options: Any
    ) -> None:
        parts = (make_encoder_layer(layer, width, heads, inner_width, **options) for _ in range(layers))
        super().__init__(parts, width, **{name: options[name] for name in self.norm_options & options.keys()})

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the memory (B, T, D) for states (B, T, D). `mask` (B, T) is True before the end of each sequence."""
        for layer in self.layers:
            states = layer(states, mask)
        memory: Tensor = self.norm(states)
        return memory


@public
class DecoderLayer(Block):
    """Causal self-attention, cross-attention and a feed-forward network, each with a residual connection (section 3.1).

    >>> import torch
    >>> layer, memory = DecoderLayer(12, 3, 24), torch.zeros(2, 7, 12)
    >>> layer(torch.zeros(2, 5, 12), layer.project(memory))[0].shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner_width: int,
        *,
        pre_norm: bool = False,
        dropout: float = 0.0,
        activation: Activation = "relu",
        epsilon: float = EPSILON,
        norm: Norm = "layer",
        **options: Any,
    ) -> None:
        super().__init__()
        residual: dict[str, Any] = {"pre_norm": pre_norm, "dropout": dropout, "epsilon": epsilon, "norm": norm}
        mechanism = options.pop("mechanism", None) or Mechanism()
        self.self_attention = MultiHeadAttention(
            width, heads, mechanism=mechanism.for_kind("causal"), kind="causal", **options
        )
        self.self_residual = Residual(width, **residual)
        # Target positions are meaningless in the source, so cross-attention has no rotary positions.
        self.cross = MultiHeadAttention(
            width, heads, mechanism=mechanism.for_kind("cross"), kind="cross", **{**options, "rotary": False}
        )
        self.cross_residual = Residual(width, **residual)
        self.feed_forward = FeedForward(width, inner_width, activation)
        self.feed_forward_residual = Residual(width, **residual)

    def project(self, memory: Tensor) -> KeyValues:
        """Return the keys and values of the encoder output (B, Tk, D) for `forward`."""
        return self.cross.project(memory)  # a method of the layer, for which FSDP2 gathers the layer's parameters

    def forward(
        self,
        states: Tensor,
        memory: KeyValues,
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        past: KeyValues | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Return states (B, T, D), and the keys and values of all steps so far: `past` of the next call.

        `memory` is the result of `project`. If the batch of `states` is larger than that of `memory`, `states` contains
        one step of several hypotheses for each source. Without `past`, `states` contains all steps (teacher forcing);
        with `past`, it contains the next steps. `mask` is that of `MultiHeadAttention`, for all steps.
        """
        key_values: list[KeyValues] = []
        step = None if past is None else past.keys.shape[2]

        def self_attention(inputs: Tensor) -> Tensor:
            context, cache = self.self_attention.attend_self(inputs, mask, past=past, causal=True, step=step)
            key_values.append(cache)
            return context

        def cross_attention(inputs: Tensor) -> Tensor:
            # The K hypotheses of a source become the queries of one sequence, which avoids copies of the memory.
            queries = inputs.reshape(memory.keys.shape[0], -1, inputs.shape[-1])
            return self.cross.attend(queries, memory, memory_mask, step=step).view_as(inputs)

        states = self.self_residual(states, self_attention)
        states = self.cross_residual(states, cross_attention)
        return self.feed_forward_residual(states, self.feed_forward), key_values[0]


@public
class Decoder(LayerStack):
    """A stack of `layers` decoder layers. `options` are arguments of `DecoderLayer`.

    >>> import torch
    >>> decoder, memory = Decoder(2, 12, 3, 24), torch.zeros(2, 7, 12)
    >>> states, cache = decoder(torch.zeros(2, 5, 12), decoder.project(memory))
    >>> states.shape, cache[0].keys.shape
    (torch.Size([2, 5, 12]), torch.Size([2, 3, 5, 4]))
    """

    def __init__(self, layers: int, width: int, heads: int, inner_width: int, **options: Any) -> None:
        parts = (DecoderLayer(width, heads, inner_width, **options) for _ in range(layers))
        super().__init__(parts, width, **{name: options[name] for name in self.norm_options & options.keys()})

    def project(self, memory: Tensor) -> list[KeyValues]:
        """Return the keys and values of each layer for the encoder output (B, Tk, D), computed once per source."""
        return [layer.project(memory) for layer in self.layers]  # type: ignore[operator]

    def forward(
        self,
        states: Tensor,
        memory: Sequence[KeyValues],
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        past: Sequence[KeyValues | None] | None = None,
    ) -> tuple[Tensor, list[KeyValues]]:
        """Return states (B, T, D) and the keys and values of each layer, as `DecoderLayer.forward` does."""
        cache = []
        for layer, source, before in zip(self.layers, memory, past or [None] * len(self.layers), strict=True):
            states, key_values = layer(states, source, memory_mask, mask, before)
            cache.append(key_values)
        return self.norm(states), cache
