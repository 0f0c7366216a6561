"""Mistakes in the feed-forward network, residual connections and layer normalization."""

from typing import Any

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Parameters

EQUATION_2 = "Vaswani et al. 2017, equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2"
SUBLAYER = "Vaswani et al. 2017, section 3.1: LayerNorm(x + Sublayer(x))"
LAYER_NORM = "Ba et al. 2016, equation 4: mean and variance over the width of one step"


class NoActivation(Solution, paper=EQUATION_2):
    """There is no ReLU between the two layers, so they are one linear layer."""

    instead = "Take max(0, ·) of the first layer's output."

    def activation(self, hidden: Array) -> Array:
        return hidden


class Tanh(Solution, paper=EQUATION_2):
    """The activation is tanh."""

    instead = "The activation is ReLU, max(0, ·)."

    def activation(self, hidden: Array) -> Array:
        return np.tanh(hidden)


class Sigmoid(Solution, paper=EQUATION_2):
    """The activation is the sigmoid."""

    instead = "The activation is ReLU, max(0, ·)."

    def activation(self, hidden: Array) -> Array:
        return 1 / (1 + np.exp(-hidden))


class Gelu(Solution, paper=EQUATION_2):
    """The activation is GELU, as in later models."""

    instead = "The activation is ReLU, max(0, ·)."

    def activation(self, hidden: Array) -> Array:
        from scipy.special import ndtr

        output: Array = hidden * ndtr(hidden)
        return output


class ReluTwice(Solution, paper=EQUATION_2):
    """There is a ReLU after the second layer too: negative outputs are lost."""

    instead = "Use no activation after the second layer."

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return self.activation(super().feed_forward(states, w_1, b_1, w_2, b_2))


class NoBiases(Solution, paper=EQUATION_2):
    """The biases b_1 and b_2 are missing."""

    instead = "Add b_1 before the ReLU and b_2 at the end (nn.Linear with bias=True)."

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return super().feed_forward(states, w_1, 0 * b_1, w_2, 0 * b_2)


class NoSecondBias(Solution, paper=EQUATION_2):
    """The bias b_2 is missing."""

    instead = "Add b_2 at the end."

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return super().feed_forward(states, w_1, b_1, w_2, 0 * b_2)


class ResidualInside(Solution, paper=EQUATION_2):
    """The feed-forward network adds its input to its output, which is the task of the layer around it."""

    instead = "Return only max(0, x W_1 + b_1) W_2 + b_2; the layer adds the residual connection."

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return states + super().feed_forward(states, w_1, b_1, w_2, b_2)


class BiasAfterActivation(Solution, paper=EQUATION_2):
    """The bias b_1 is added after the ReLU."""

    instead = "Add b_1 before the ReLU: it moves the threshold."

    def feed_forward(self, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
        return (self.activation(states @ w_1) + b_1) @ w_2 + b_2


class NormBefore(Solution, paper=SUBLAYER):
    """The norm comes before the sublayer instead of after the residual: x + Sublayer(LayerNorm(x))."""

    instead = "Add first, then normalize: LayerNorm(x + Sublayer(x)). Norm first is a later variant, pre-norm."

    def sublayer(self, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
        update = function(self.normalize(states, p[f"gain_{norm}"], p[f"shift_{norm}"]))
        return np.asarray(states + update)


class NormBeforeAdding(Solution, paper=SUBLAYER):
    """The sublayer's output is normalized before it is added: x + LayerNorm(Sublayer(x))."""

    instead = "Add first, then normalize: LayerNorm(x + Sublayer(x))."

    def sublayer(self, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
        return states + self.normalize(function(states), p[f"gain_{norm}"], p[f"shift_{norm}"])


class NoResiduals(Solution, paper=SUBLAYER):
    """There are no residual connections: LayerNorm(Sublayer(x))."""

    instead = "Add each sublayer's input to its output before the norm."

    def sublayer(self, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
        return self.normalize(function(states), p[f"gain_{norm}"], p[f"shift_{norm}"])


class NoResidualAroundAttention(Solution, paper=SUBLAYER):
    """The residual connection around self-attention is missing."""

    instead = "Add the layer's input to the output of self-attention, before the norm."

    def sublayer(self, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
        if kind != "self_attention":
            return super().sublayer(states, kind, function, p, norm)
        return self.normalize(function(states), p[f"gain_{norm}"], p[f"shift_{norm}"])


class NoResidualAroundFeedForward(Solution, paper=SUBLAYER):
    """The residual connection around the feed-forward network is missing."""

    instead = "Add the input of the feed-forward network to its output, before the norm."

    def sublayer(self, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
        if kind != "feed_forward":
            return super().sublayer(states, kind, function, p, norm)
        return self.normalize(function(states), p[f"gain_{norm}"], p[f"shift_{norm}"])


class NoNorm(Solution, paper=SUBLAYER):
    """There is no layer normalization."""

    instead = "Normalize after every residual connection: LayerNorm(x + Sublayer(x))."

    def normalize(self, states: Array, gain: Array, shift: Array) -> Array:
        return states


class UnitLength(Solution, paper=LAYER_NORM):
    """The states are divided by their length (L2 norm): the mean is not subtracted, the variance not set."""

    instead = "Subtract the mean of each step and divide by its standard deviation."

    def normalize(self, states: Array, gain: Array, shift: Array) -> Array:
        return states / np.linalg.norm(states, axis=-1, keepdims=True) * gain + shift


class SampleDeviation(Solution, paper=LAYER_NORM):
    """The standard deviation divides by D - 1 (the default of torch.std), not by D."""

    instead = "Divide by the root of the mean square: std(unbiased=False), or ddof=0."

    def standard_deviation(self, states: Array) -> Array:
        return np.sqrt(states.var(-1, ddof=1, keepdims=True) + self.epsilon)


class VarianceForDeviation(Solution, paper=LAYER_NORM):
    """The norm divides by the variance, not by its root."""

    instead = "Divide by the standard deviation, √(variance + ε)."

    def standard_deviation(self, states: Array) -> Array:
        return states.var(-1, keepdims=True) + self.epsilon


class MeanNotSubtracted(Solution, paper=LAYER_NORM):
    """The norm divides by the root mean square without subtracting the mean, as RMSNorm does."""

    instead = "Subtract each step's mean first."

    def normalize(self, states: Array, gain: Array, shift: Array) -> Array:
        return states / np.sqrt((states**2).mean(-1, keepdims=True) + self.epsilon) * gain + shift


class NormOverTime(Solution, paper=LAYER_NORM):
    """The norm is over time (axis 1): steps affect each other, and the past depends on the future."""

    instead = "Normalize each step over its width, the last dimension."

    def normalize(self, states: Array, gain: Array, shift: Array) -> Array:
        deviation = np.sqrt(states.var(1, keepdims=True) + self.epsilon)
        return (states - states.mean(1, keepdims=True)) / deviation * gain + shift


class NormOverBatch(Solution, paper=LAYER_NORM):
    """The norm is over batch and time, like batch normalization."""

    instead = "Normalize each step over its width, the last dimension."

    def normalize(self, states: Array, gain: Array, shift: Array) -> Array:
        deviation = np.sqrt(states.var((0, 1), keepdims=True) + self.epsilon)
        return (states - states.mean((0, 1), keepdims=True)) / deviation * gain + shift


class NormOverAll(Solution, paper=LAYER_NORM):
    """The norm is over time and width of a sequence together."""

    instead = "Normalize each step separately, over the last dimension."

    def normalize(self, states: Array, gain: Array, shift: Array) -> Array:
        deviation = np.sqrt(states.var((1, 2), keepdims=True) + self.epsilon)
        return (states - states.mean((1, 2), keepdims=True)) / deviation * gain + shift


class NoGain(Solution, paper=LAYER_NORM):
    """The norm has no gain and no shift."""

    instead = "Multiply by the gain and add the shift, one number for each dimension."

    def normalize(self, states: Array, gain: Array, shift: Array) -> Array:
        return super().normalize(states, np.ones_like(gain), np.zeros_like(shift))


class OneNorm(Solution, paper=SUBLAYER):
    """All sublayers share the first norm."""

    instead = "Give each sublayer its own norm, with its own gain and shift."

    def sublayer(self, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
        return super().sublayer(states, kind, function, p, 1)


class NoFeedForward(
    Solution,
    paper="Vaswani et al. 2017, section 3.1: 'the second is a simple, position-wise fully connected feed-forward "
    "network'",
):
    """The feed-forward network is missing: its norm receives only its input."""

    instead = "Add the output of the feed-forward network before the last norm."

    def apply_feed_forward(self, states: Array, p: Parameters) -> Array:
        return np.zeros_like(states)
