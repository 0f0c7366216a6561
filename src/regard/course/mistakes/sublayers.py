"""Usual mistakes in feed-forward parts, residuals and norms."""

from typing import Any

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Parameters

EQUATION_2 = "Vaswani et al. 2017, equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2"
SUBLAYER = "Vaswani et al. 2017, section 3.1: LayerNorm(x + Sublayer(x))"
LAYER_NORM = "Ba et al. 2016, equation 4: mean and variance over the width of one step"


class NoActivation(Solution):
    """There is no ReLU between the two layers, which makes them one linear layer."""

    instead = "Take max(0, ·) of the first layer's output."
    paper = EQUATION_2

    def activation(self, hidden: Array) -> Array:
        return hidden


class Tanh(Solution):
    """The activation is tanh."""

    instead = "The activation is ReLU, max(0, ·)."
    paper = EQUATION_2

    def activation(self, hidden: Array) -> Array:
        return np.tanh(hidden)


class Sigmoid(Solution):
    """The activation is the sigmoid."""

    instead = "The activation is ReLU, max(0, ·)."
    paper = EQUATION_2

    def activation(self, hidden: Array) -> Array:
        return 1 / (1 + np.exp(-hidden))


class Gelu(Solution):
    """The activation is GELU, as in later models."""

    instead = "The activation is ReLU, max(0, ·)."
    paper = EQUATION_2

    def activation(self, hidden: Array) -> Array:
        from scipy.special import ndtr

        found: Array = hidden * ndtr(hidden)
        return found


class ReluTwice(Solution):
    """There is a ReLU after the second layer too: what is negative is lost."""

    instead = "The second layer's output stays as it is."
    paper = EQUATION_2

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return self.activation(super().feed_forward(states, w_1, b_1, w_2, b_2))


class NoBiases(Solution):
    """The biases b_1 and b_2 are left out."""

    instead = "Add b_1 before the ReLU and b_2 at the end (nn.Linear with bias=True)."
    paper = EQUATION_2

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return super().feed_forward(states, w_1, 0 * b_1, w_2, 0 * b_2)


class NoSecondBias(Solution):
    """The bias b_2 is left out."""

    instead = "Add b_2 at the end."
    paper = EQUATION_2

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return super().feed_forward(states, w_1, b_1, w_2, 0 * b_2)


class ResidualInside(Solution):
    """The feed-forward part adds its input to its output: that is the encoder layer's doing."""

    instead = "Return max(0, x W_1 + b_1) W_2 + b_2 alone; the residual connection comes around it."
    paper = EQUATION_2

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return states + super().feed_forward(states, w_1, b_1, w_2, b_2)


class BiasAfterActivation(Solution):
    """The bias b_1 is added after the ReLU."""

    instead = "Add b_1 before the ReLU: it moves the threshold."
    paper = EQUATION_2

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return (self.activation(states @ w_1) + b_1) @ w_2 + b_2


class NormBefore(Solution):
    """The norm comes before the sub-layer instead of after the residual: x + Sublayer(LayerNorm(x))."""

    instead = "Add first, then normalise: LayerNorm(x + Sublayer(x)). Norm first is a later variant, pre-norm."
    paper = SUBLAYER

    def sublayer(self, states: Array, kind: str, work: Any, p: Parameters, which: int) -> Array:
        found: Array = states + work(self.normalise(states, p[f"gain_{which}"], p[f"shift_{which}"]))
        return found


class NormBeforeAdding(Solution):
    """The sub-layer's output is normalised before it is added: x + LayerNorm(Sublayer(x))."""

    instead = "Add first, then normalise: LayerNorm(x + Sublayer(x))."
    paper = SUBLAYER

    def sublayer(self, states: Array, kind: str, work: Any, p: Parameters, which: int) -> Array:
        return states + self.normalise(work(states), p[f"gain_{which}"], p[f"shift_{which}"])


class NoResiduals(Solution):
    """There are no residual connections: LayerNorm(Sublayer(x))."""

    instead = "Add each sub-layer's input to its output before the norm."
    paper = SUBLAYER

    def sublayer(self, states: Array, kind: str, work: Any, p: Parameters, which: int) -> Array:
        return self.normalise(work(states), p[f"gain_{which}"], p[f"shift_{which}"])


class NoResidualAroundAttention(Solution):
    """The residual connection around self-attention is missing."""

    instead = "Add the layer's input to what self-attention gives, before the norm."
    paper = SUBLAYER

    def sublayer(self, states: Array, kind: str, work: Any, p: Parameters, which: int) -> Array:
        if kind != "self_attention":
            return super().sublayer(states, kind, work, p, which)
        return self.normalise(work(states), p[f"gain_{which}"], p[f"shift_{which}"])


class NoResidualAroundFeedForward(Solution):
    """The residual connection around the feed-forward part is missing."""

    instead = "Add the feed-forward part's input to its output, before the norm."
    paper = SUBLAYER

    def sublayer(self, states: Array, kind: str, work: Any, p: Parameters, which: int) -> Array:
        if kind != "feed_forward":
            return super().sublayer(states, kind, work, p, which)
        return self.normalise(work(states), p[f"gain_{which}"], p[f"shift_{which}"])


class NoNorm(Solution):
    """There is no layer normalisation."""

    instead = "Normalise after every residual: LayerNorm(x + Sublayer(x))."
    paper = SUBLAYER

    def normalise(self, states: Array, gain: Array, shift: Array) -> Array:
        return states


class UnitLength(Solution):
    """The states are divided by their length: an L2 norm, which takes no mean away and sets no variance."""

    instead = "Take the mean from each step and divide by its standard deviation."
    paper = LAYER_NORM

    def normalise(self, states: Array, gain: Array, shift: Array) -> Array:
        return states / np.linalg.norm(states, axis=-1, keepdims=True) * gain + shift


class SampleDeviation(Solution):
    """The norm divides by the deviation over D - 1 (torch.std's default), not over D."""

    instead = "Divide by the root of the mean square: std(unbiased=False), or ddof=0."
    paper = LAYER_NORM

    def standard_deviation(self, states: Array) -> Array:
        return np.sqrt(states.var(-1, ddof=1, keepdims=True) + self.epsilon)


class VarianceForDeviation(Solution):
    """The norm divides by the variance, not by its root."""

    instead = "Divide by the standard deviation, √(variance + ε)."
    paper = LAYER_NORM

    def standard_deviation(self, states: Array) -> Array:
        return states.var(-1, keepdims=True) + self.epsilon


class MeanStays(Solution):
    """The norm divides by the root mean square without taking the mean away, as RMSNorm does."""

    instead = "Take each step's mean from it first."
    paper = LAYER_NORM

    def normalise(self, states: Array, gain: Array, shift: Array) -> Array:
        return states / np.sqrt((states**2).mean(-1, keepdims=True) + self.epsilon) * gain + shift


class NormOverTime(Solution):
    """The norm runs over time (axis 1): steps change each other, the future included."""

    instead = "Normalise each step over its width, the last dimension."
    paper = LAYER_NORM

    def normalise(self, states: Array, gain: Array, shift: Array) -> Array:
        spread = np.sqrt(states.var(1, keepdims=True) + self.epsilon)
        return (states - states.mean(1, keepdims=True)) / spread * gain + shift


class NormOverBatch(Solution):
    """The norm runs over batch and time, as batch normalisation does."""

    instead = "Normalise each step over its width, the last dimension."
    paper = LAYER_NORM

    def normalise(self, states: Array, gain: Array, shift: Array) -> Array:
        spread = np.sqrt(states.var((0, 1), keepdims=True) + self.epsilon)
        return (states - states.mean((0, 1), keepdims=True)) / spread * gain + shift


class NormOverAll(Solution):
    """The norm runs over time and width of a sequence together."""

    instead = "Normalise each step by itself, over the last dimension."
    paper = LAYER_NORM

    def normalise(self, states: Array, gain: Array, shift: Array) -> Array:
        spread = np.sqrt(states.var((1, 2), keepdims=True) + self.epsilon)
        return (states - states.mean((1, 2), keepdims=True)) / spread * gain + shift


class NoGain(Solution):
    """The norm has no gain and no shift."""

    instead = "Multiply by the gain and add the shift, a number for each dimension."
    paper = LAYER_NORM

    def normalise(self, states: Array, gain: Array, shift: Array) -> Array:
        return super().normalise(states, np.ones_like(gain), np.zeros_like(shift))


class OneNorm(Solution):
    """All sub-layers share the first norm."""

    instead = "Each sub-layer has a norm of its own, with gain and shift of its own."
    paper = SUBLAYER

    def sublayer(self, states: Array, kind: str, work: Any, p: Parameters, which: int) -> Array:
        return super().sublayer(states, kind, work, p, 1)


class NoFeedForward(Solution):
    """The feed-forward part is missing: its norm gets its input alone."""

    instead = "Add the feed-forward part's output before the last norm."
    paper = (
        "Vaswani et al. 2017, section 3.1: 'the second is a simple, position-wise fully connected feed-"
        "forward network'"
    )

    def apply_feed_forward(self, states: Array, p: Parameters) -> Array:
        return np.zeros_like(states)
