"""Transformer blocks: residual connections, normalization, feed-forward (Vaswani et al. 2017, figure 1).

Normalization comes after each residual sum, `norm(x + layer(x))`, as in the paper. With `pre_norm`,
normalization comes before the layer, `x + layer(norm(x))`, so that deep stacks train without warm-up (Xiong et
al. 2020). A final normalization follows the last layer of the stack. Dropout is applied to the output of each
layer.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from regard.arguments import public
from regard.attention.dropout import Dropout
from regard.attention.feed_forward import Activation, FeedForward
from regard.attention.key_values import KeyValues
from regard.attention.mechanism import Mechanism
from regard.attention.multihead import MultiHeadAttention
from regard.attention.parts import AttentionKind
from regard.attention.scores import ScaledDot, Score
from regard.attention.single import Attention
from regard.plugins import build_plugin, plugin_class

STANDARD = "standard"
"""Name of Regard's encoder layer."""
EPSILON = 1e-5
"""Number added to the variance in normalization; PyTorch's default."""
Norm = Literal["layer", "rms", "none"]
"""layer: layer normalization, Ba et al. 2016; rms: division by the root mean square, Zhang and Sennrich 2019;
none: no normalization."""


@public
class Block(nn.Module):
    """Base class of the layers of a stack. Each layer is compiled separately, and is split separately in
    sharded training."""


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
        sums: Tensor = states + output if self.pre_norm else self.norm(states + output)
        return sums


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

    def __init__(
        self, layers: Iterable[nn.Module], width: int, *, pre_norm: bool, epsilon: float, norm: Norm
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = make_norm(width, epsilon, norm) if pre_norm else nn.Identity()


@public
class Encoder(LayerStack):
    """A stack of `layers` encoder layers of the type `layer`. `options` are arguments of the standard layer.

    >>> import torch
    >>> Encoder(2, 12, 3, 24)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        inner_width: int,
        *,
        layer: str = STANDARD,
        pre_norm: bool = False,
        epsilon: float = EPSILON,
        norm: Norm = "layer",
        **options: Any,
    ) -> None:
        options |= {"pre_norm": pre_norm, "epsilon": epsilon, "norm": norm}
        parts = (make_encoder_layer(layer, width, heads, inner_width, **options) for _ in range(layers))
        super().__init__(parts, width, pre_norm=pre_norm, epsilon=epsilon, norm=norm)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the memory (B, T, D) for states (B, T, D). `mask` (B, T) is True before the end of each
        sequence."""
        for layer in self.layers:
            states = layer(states, mask)
        memory: Tensor = self.norm(states)
        return memory


@public
class DecoderLayer(Block):
    """Causal self-attention, cross-attention and a feed-forward network, each with a residual connection
    (section 3.1).

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
        return self.cross.project(memory)

    def forward(
        self,
        states: Tensor,
        memory: KeyValues,
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        past: KeyValues | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Return states (B, T, D), and the keys and values of all steps so far: `past` of the next call.

        `memory` is the result of `project`. If the batch of `states` is larger than that of `memory`, `states`
        contains one step of several hypotheses for each source. Without `past`, `states` contains all steps
        (teacher forcing); with `past`, it contains the next steps. `mask` is that of `MultiHeadAttention`, for
        all steps.
        """
        key_values: list[KeyValues] = []
        step = None if past is None else past.keys.shape[2]

        def self_attention(inputs: Tensor) -> Tensor:
            context, cache = self.self_attention.attend_self(inputs, mask, past=past, causal=True, step=step)
            key_values.append(cache)
            return context

        states = self.self_residual(states, self_attention)
        states = self.cross_residual(
            states, lambda inputs: self._attend_memory(inputs, memory, memory_mask, step)
        )
        return self.feed_forward_residual(states, self.feed_forward), key_values[0]

    def _attend_memory(self, states: Tensor, memory: KeyValues, mask: Tensor | None, step: int | None) -> Tensor:
        """Attend to the memory of B sources, with states (B, T, D), or (B K, 1, D) for K hypotheses of each
        source.

        The hypotheses of a source become the queries of one sequence, which avoids copies of the memory.
        """
        queries = states.reshape(memory.keys.shape[0], -1, states.shape[-1])
        return self.cross.attend(queries, memory, mask, step=step).view_as(states)


@public
class Decoder(LayerStack):
    """A stack of `layers` decoder layers. `options` are arguments of `DecoderLayer`.

    >>> import torch
    >>> decoder, memory = Decoder(2, 12, 3, 24), torch.zeros(2, 7, 12)
    >>> states, cache = decoder(torch.zeros(2, 5, 12), decoder.project(memory))
    >>> states.shape, cache[0].keys.shape
    (torch.Size([2, 5, 12]), torch.Size([2, 3, 5, 4]))
    """

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        inner_width: int,
        *,
        pre_norm: bool = False,
        epsilon: float = EPSILON,
        norm: Norm = "layer",
        **options: Any,
    ) -> None:
        options |= {"pre_norm": pre_norm, "epsilon": epsilon, "norm": norm}
        parts = (DecoderLayer(width, heads, inner_width, **options) for _ in range(layers))
        super().__init__(parts, width, pre_norm=pre_norm, epsilon=epsilon, norm=norm)

    def project(self, memory: Tensor) -> list[KeyValues]:
        """Return the keys and values of each layer for the encoder output (B, Tk, D), computed once per
        source."""
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
