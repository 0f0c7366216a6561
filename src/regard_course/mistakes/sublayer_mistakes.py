"""Mistakes in the feed-forward network, residual connections and layer normalization."""

from typing import Any

import numpy as np

from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array, Parameters

EQUATION_2 = "Vaswani et al. 2017, equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2"
SUBLAYER = "Vaswani et al. 2017, section 3.1: LayerNorm(x + Sublayer(x))"
LAYER_NORM = "Ba et al. 2016, equation 4: mean and variance over the width of one step"
activation = mistakes_in(Solution.activation, EQUATION_2)
feed_forward = mistakes_in(Solution.feed_forward, EQUATION_2)
sublayer = mistakes_in(Solution.sublayer, SUBLAYER)
residual = mistakes_in(Solution.residual, SUBLAYER)
normalize = mistakes_in(Solution.normalize, LAYER_NORM)
standard_deviation = mistakes_in(Solution.standard_deviation, LAYER_NORM)


@activation("Take max(0, ·) of the first layer's output.")
def no_activation(self: Solution, hidden: Array) -> Array:
    """There is no ReLU between the two layers, so they are one linear layer."""
    return hidden


@activation("The activation is ReLU, max(0, ·).")
def tanh(self: Solution, hidden: Array) -> Array:
    """The activation is tanh."""
    return np.tanh(hidden)


@activation("The activation is ReLU, max(0, ·).")
def sigmoid(self: Solution, hidden: Array) -> Array:
    """The activation is the sigmoid."""
    return 1 / (1 + np.exp(-hidden))


@activation("The activation is ReLU, max(0, ·).")
def gelu(self: Solution, hidden: Array) -> Array:
    """The activation is GELU, as in later models."""
    from scipy.special import ndtr

    output: Array = hidden * ndtr(hidden)
    return output


@activation("The activation is ReLU, max(0, ·).")
def approximate_gelu(self: Solution, hidden: Array) -> Array:
    """The activation is GELU in its approximation with tanh, as in GPT-2."""
    inner = np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)
    return np.asarray(0.5 * hidden * (1 + np.tanh(inner)))


@activation("The activation is ReLU, max(0, ·).")
def silu(self: Solution, hidden: Array) -> Array:
    """The activation is SiLU (swish), x times its sigmoid."""
    return np.asarray(hidden / (1 + np.exp(-hidden)))


@activation("The activation is ReLU, max(0, ·).")
def leaky_relu(self: Solution, hidden: Array) -> Array:
    """The activation is a leaky ReLU: negative numbers are multiplied by 0.01 instead of removed."""
    return np.where(hidden > 0, hidden, 0.01 * hidden)


@activation("The activation is ReLU, max(0, ·).")
def absolute_value(self: Solution, hidden: Array) -> Array:
    """The activation is the absolute value: negative numbers become positive."""
    return np.abs(hidden)


@feed_forward("Apply the ReLU between the two layers, and no activation after the second layer.")
def relu_at_the_end(self: Solution, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
    """The ReLU is after the second layer instead of between the layers."""
    return self.activation((states @ w_1 + b_1) @ w_2 + b_2)


@feed_forward("Use no activation after the second layer.")
def relu_twice(self: Solution, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
    """There is a ReLU after the second layer too: negative outputs are lost."""
    return self.activation(Solution.feed_forward(self, states, w_1, b_1, w_2, b_2))


@feed_forward("Add b_1 before the ReLU and b_2 at the end (nn.Linear with bias=True).")
def no_biases(self: Solution, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
    """The biases b_1 and b_2 are missing."""
    return Solution.feed_forward(self, states, w_1, 0 * b_1, w_2, 0 * b_2)


@feed_forward("Add b_1 before the ReLU.")
def no_first_bias(self: Solution, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
    """The bias b_1 is missing."""
    return Solution.feed_forward(self, states, w_1, 0 * b_1, w_2, b_2)


@feed_forward("Add b_2 at the end.")
def no_second_bias(self: Solution, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
    """The bias b_2 is missing."""
    return Solution.feed_forward(self, states, w_1, b_1, w_2, 0 * b_2)


@feed_forward("Return only max(0, x W_1 + b_1) W_2 + b_2; the layer adds the residual connection.")
def residual_inside(self: Solution, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
    """The feed-forward network adds its input to its output, but the layer adds the residual connection."""
    return states + Solution.feed_forward(self, states, w_1, b_1, w_2, b_2)


@feed_forward("Add b_1 before the ReLU: it moves the threshold.")
def bias_after_activation(self: Solution, states: Array, w_1: Array, b_1: Array, w_2: Array, b_2: Array) -> Array:
    """The bias b_1 is added after the ReLU."""
    return (self.activation(states @ w_1) + b_1) @ w_2 + b_2


@sublayer(
    "Add first, then normalize: LayerNorm(x + Sublayer(x)). Normalizing first is a later variant, pre-norm.",
)
def norm_before(self: Solution, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
    """The norm comes before the sublayer instead of after the residual: x + Sublayer(LayerNorm(x))."""
    update = function(self.normalize(states, p[f"gain_{norm}"], p[f"shift_{norm}"]))
    return np.asarray(states + update)


@sublayer("Add first, then normalize: LayerNorm(x + Sublayer(x)).")
def norm_before_adding(
    self: Solution, states: Array, kind: str, function: Any, p: Parameters, norm: int
) -> Array:
    """The sublayer's output is normalized before it is added: x + LayerNorm(Sublayer(x))."""
    return states + self.normalize(function(states), p[f"gain_{norm}"], p[f"shift_{norm}"])


@residual("Add each sublayer's input to its output before the norm.")
def no_residuals(self: Solution, states: Array, kind: str, norm: int) -> Array:
    """There are no residual connections: LayerNorm(Sublayer(x))."""
    return np.zeros_like(states)


@residual("Add the layer's input to the output of self-attention, before the norm.")
def no_residual_around_attention(self: Solution, states: Array, kind: str, norm: int) -> Array:
    """The residual connection around self-attention is missing."""
    return states * (kind != "self_attention")


@residual("Add the input of the feed-forward network to its output, before the norm.")
def no_residual_around_feed_forward(self: Solution, states: Array, kind: str, norm: int) -> Array:
    """The residual connection around the feed-forward network is missing."""
    return states * (kind != "feed_forward")


@mistake(Solution.normalize, SUBLAYER, "Normalize after every residual connection: LayerNorm(x + Sublayer(x)).")
def no_norm(self: Solution, states: Array, gain: Array, shift: Array) -> Array:
    """There is no layer normalization."""
    return states


@normalize("Subtract the mean of each step and divide by its standard deviation.")
def unit_length(self: Solution, states: Array, gain: Array, shift: Array) -> Array:
    """The states are divided by their length (L2 norm): the mean is not subtracted, and the variance is not
    normalized."""
    return states / np.linalg.norm(states, axis=-1, keepdims=True) * gain + shift


@standard_deviation("Divide by the root of the mean square: std(unbiased=False), or ddof=0.")
def sample_deviation(self: Solution, states: Array) -> Array:
    """The standard deviation divides by D - 1 (the default of torch.std), not by D."""
    return np.sqrt(states.var(-1, ddof=1, keepdims=True) + self.epsilon)


@standard_deviation("Divide by the standard deviation, √(variance + ε).")
def variance_for_deviation(self: Solution, states: Array) -> Array:
    """The norm divides by the variance, not by its root."""
    return states.var(-1, keepdims=True) + self.epsilon


@normalize("Subtract each step's mean first.")
def mean_not_subtracted(self: Solution, states: Array, gain: Array, shift: Array) -> Array:
    """The norm divides by the root mean square without subtracting the mean, as RMSNorm does."""
    return states / np.sqrt((states**2).mean(-1, keepdims=True) + self.epsilon) * gain + shift


class NormOverTime(Solution, paper=LAYER_NORM):
    """The norm is over time (axis 1): steps affect each other, and the past depends on the future."""

    instead = "Normalize each step over its width, the last dimension."
    norm_axes = (1,)


class NormOverBatch(Solution, paper=LAYER_NORM):
    """The norm is over batch and time, like batch normalization."""

    instead = "Normalize each step over its width, the last dimension."
    norm_axes = (0, 1)


class NormOverAll(Solution, paper=LAYER_NORM):
    """The norm is over time and width of a sequence together."""

    instead = "Normalize each step separately, over the last dimension."
    norm_axes = (1, 2)


@normalize("Multiply by the gain and add the shift, one number for each dimension.")
def no_gain(self: Solution, states: Array, gain: Array, shift: Array) -> Array:
    """The norm has no gain and no shift."""
    return Solution.normalize(self, states, np.ones_like(gain), np.zeros_like(shift))


@normalize("Add the shift, one number for each dimension.")
def no_shift(self: Solution, states: Array, gain: Array, shift: Array) -> Array:
    """The norm has no shift."""
    return Solution.normalize(self, states, gain, np.zeros_like(shift))


class ResidualsFromInput(Solution, paper=SUBLAYER):
    """Every residual connection adds the input of the layer, not the input of its sublayer."""

    instead = (
        "Add the input of each sublayer to its output: x = LayerNorm(x + Sublayer(x)), with the new x each time."
    )
    places: tuple[tuple[str, int], ...] = (("cross_attention", 2), ("feed_forward", 2), ("feed_forward", 3))
    """Kinds and numbers of the sublayers whose residual connection is wrong."""
    layer_input: Array

    def encoder_layer(self, states: Array, *inputs: Any, **options: Any) -> Array:
        self.layer_input = states
        return super().encoder_layer(states, *inputs, **options)

    def decoder_layer(self, states: Array, *inputs: Any, **options: Any) -> Array:
        self.layer_input = states
        return super().decoder_layer(states, *inputs, **options)

    def residual(self, states: Array, kind: str, norm: int) -> Array:
        return self.layer_input if (kind, norm) in self.places else states


@sublayer("Give each sublayer a separate norm, with a separate gain and shift.")
def one_norm(self: Solution, states: Array, kind: str, function: Any, p: Parameters, norm: int) -> Array:
    """All sublayers share the first norm."""
    return Solution.sublayer(self, states, kind, function, p, 1)


@mistake(
    Solution.apply_feed_forward,
    "Vaswani et al. 2017, section 3.1: 'the second is a simple, position-wise fully connected feed-forward "
    "network'",
    "Add the output of the feed-forward network before the last norm.",
)
def no_feed_forward(self: Solution, states: Array, p: Parameters) -> Array:
    """The feed-forward network is missing: its norm receives only its input."""
    return np.zeros_like(states)
