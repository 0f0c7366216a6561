"""Blocks that wrap attention: residual, normalisation, feed-forward (Vaswani et al. 2017, figure 1).

Normalisation comes after each residual sum, `norm(x + layer(x))`, as in the paper, or with `pre_norm` before
the layer, `x + layer(norm(x))`, which trains deep stacks without warm-up (Xiong et al. 2020); then the stack
ends in a normalisation of its own. Dropout acts on what each layer adds.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.dropout import Dropout
from regard.attention.multihead import KeyValues, MultiHeadAttention
from regard.attention.scores import ScaledDot, Score
from regard.attention.single import Attention
from regard.errors import unknown_choice
from regard.plugins import build_plugin, plugin_class

STANDARD = "standard"
"""What the package's own encoder layer is called."""
EPSILON = 1e-5
"""What normalisation adds to the variance: PyTorch's own choice."""
Activation = Literal["relu", "gelu", "swish"]
"""Of the feed-forward layers: the paper's; Hendrycks and Gimpel 2016; x sigmoid(x) (Ramachandran et al. 2017)."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class FeedForward(nn.Module):
    """The point-wise network of section 3.3: `W2 relu(W1 x + b1) + b2`, the same at every position.

    Another `activation` stands in ReLU's place. Raises `InputError` for one that is unknown.
    """

    def __init__(self, width: int, inner_width: int, activation: Activation = "relu") -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise unknown_choice("activation", activation, get_args(Activation))
        self.inner = nn.Linear(width, inner_width)
        self.outer = nn.Linear(inner_width, width)
        self.activation = activation

    def forward(self, states: Tensor) -> Tensor:
        """Map states (..., D) to (..., D)."""
        found: Tensor = self.outer(ACTIVATIONS[self.activation](self.inner(states)))
        return found


class Residual(nn.Module):
    """What surrounds every layer of a block: sum, normalisation and dropout."""

    def __init__(
        self, width: int, *, pre_norm: bool = False, dropout: float = 0.0, epsilon: float = EPSILON
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, epsilon)
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(self, states: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return states (B, T, D) with what `layer` makes of them added."""
        added: Tensor = self.dropout(layer(self.norm(states) if self.pre_norm else states))
        joined: Tensor = states + added if self.pre_norm else self.norm(states + added)
        return joined


def attention_layer(
    width: int, heads: int | None, *, score: type[Score] = ScaledDot, **options: Any
) -> Attention | MultiHeadAttention:
    """Return the attention layer with `heads` heads, or the single-head one without projections for None."""
    if heads is None:
        return Attention(score(width, width))
    return MultiHeadAttention(width, heads, score=score, **options)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each in a residual (section 3.1).

    `heads` None is single-head attention without projections. `epsilon`: what normalisation adds to the variance.
    `options` go to `MultiHeadAttention`.
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
        **options: Any,
    ) -> None:
        super().__init__()
        self.self_attention = attention_layer(width, heads, **options)
        around: dict[str, Any] = {"pre_norm": pre_norm, "dropout": dropout, "epsilon": epsilon}
        self.attention_residual = Residual(width, **around)
        self.feed_forward = FeedForward(width, inner_width, activation)
        self.feed_forward_residual = Residual(width, **around)

    def forward(self, states: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return states (B, T, D) for states (B, T, D); `mask` as in `MultiHeadAttention`."""
        states = self.attention_residual(
            states, lambda each: self.self_attention(each, each, each, mask, causal=causal)
        )
        found: Tensor = self.feed_forward_residual(states, self.feed_forward)
        return found


def check_encoder_layer(name: str) -> None:
    """Raise `InputError` unless `name` is `standard`, or `module:Class` of a module of one's own."""
    if name != STANDARD:
        plugin_class("layer", name, nn.Module, (STANDARD,))


def make_encoder_layer(name: str, width: int, heads: int | None, inner_width: int, **options: Any) -> nn.Module:
    """Return an encoder layer: the package's own, to which `options` go, or one of the user's.

    His is built from width, heads (1 where there are no projections) and inner width, and called on states
    (B, T, D) and a mask (B, 1, T), True before the end, or None. Raises `InputError` where it cannot be built.
    """
    if name == STANDARD:
        return EncoderLayer(width, heads, inner_width, **options)
    layer = plugin_class("layer", name, nn.Module, (STANDARD,))
    sizes = f"width {width}, {heads or 1} heads, inner width {inner_width}"
    return build_plugin("layer", name, lambda: layer(width, heads or 1, inner_width), sizes, "these three")


class Encoder(nn.Module):
    """A stack of `layers` encoder layers of the kind that `layer` names; `options` go to the standard ones."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        inner_width: int,
        *,
        pre_norm: bool = False,
        layer: str = STANDARD,
        epsilon: float = EPSILON,
        **options: Any,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            make_encoder_layer(layer, width, heads, inner_width, pre_norm=pre_norm, epsilon=epsilon, **options)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width, epsilon) if pre_norm else nn.Identity()

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the memory (B, T, D) of states (B, T, D); `mask` (B, T), True before the end."""
        for layer in self.layers:
            states = layer(states, mask)
        found: Tensor = self.norm(states)
        return found


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the memory, feed-forward, each in a residual (section 3.1)."""

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
        **options: Any,
    ) -> None:
        super().__init__()
        around: dict[str, Any] = {"pre_norm": pre_norm, "dropout": dropout, "epsilon": epsilon}
        self.self_attention = MultiHeadAttention(width, heads, **options)
        self.self_residual = Residual(width, **around)
        # Positions of the target mean nothing in the source: no rotation between the two.
        self.cross = MultiHeadAttention(width, heads, **{**options, "rotary": False})
        self.cross_residual = Residual(width, **around)
        self.feed_forward = FeedForward(width, inner_width, activation)
        self.feed_forward_residual = Residual(width, **around)

    def project(self, memory: Tensor) -> KeyValues:
        """Return the keys and values of the encoder's output (B, Tk, D) that `forward` attends to."""
        return self.cross.project(memory)

    def forward(
        self,
        states: Tensor,
        memory: KeyValues,
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        past: KeyValues | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Return states (B, T, D), and the keys and values of all steps so far, for the next call's `past`.

        `memory` is what `cross.project` made of the encoder's output, once; where it is of fewer sources than
        there are sequences of states, these are the hypotheses of each source, one step of each. Without `past`,
        `states` are all steps (teacher forcing); with it, those that follow. `mask` as in `MultiHeadAttention`,
        over all steps.
        """
        seen: list[KeyValues] = []
        step = None if past is None else past.keys.shape[2]

        def look_back(each: Tensor) -> Tensor:
            seen.append(self.self_attention.project(each, past=past))
            return self.self_attention.attend(each, seen[0], mask, causal=True, step=step)

        states = self.self_residual(states, look_back)
        states = self.cross_residual(states, lambda each: self._look_up(each, memory, memory_mask, step))
        return self.feed_forward_residual(states, self.feed_forward), seen[0]

    def _look_up(self, states: Tensor, memory: KeyValues, mask: Tensor | None, step: int | None) -> Tensor:
        """Attend to the memory of B sources; states (B, T, D), or (B K, 1, D) of K hypotheses of each source.

        The hypotheses of a source ask side by side, as steps would, so that its memory is not copied for each.
        """
        together = states.reshape(memory.keys.shape[0], -1, states.shape[-1])
        return self.cross.attend(together, memory, mask, step=step).view_as(states)


class Decoder(nn.Module):
    """A stack of `layers` decoder layers; `options` go to each."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        inner_width: int,
        *,
        pre_norm: bool = False,
        epsilon: float = EPSILON,
        **options: Any,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            DecoderLayer(width, heads, inner_width, pre_norm=pre_norm, epsilon=epsilon, **options)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width, epsilon) if pre_norm else nn.Identity()

    def project(self, memory: Tensor) -> list[KeyValues]:
        """Return each layer's keys and values of the encoder's output (B, Tk, D), computed once per source."""
        return [layer.project(memory) for layer in self.layers]  # type: ignore[operator]

    def forward(
        self,
        states: Tensor,
        memory: Sequence[KeyValues],
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        past: Sequence[KeyValues | None] | None = None,
    ) -> tuple[Tensor, list[KeyValues]]:
        """Return states (B, T, D) and each layer's keys and values so far, as in `DecoderLayer`."""
        seen = []
        for layer, source, before in zip(self.layers, memory, past or [None] * len(self.layers), strict=True):
            states, now = layer(states, source, memory_mask, mask, before)
            seen.append(now)
        return self.norm(states), seen
