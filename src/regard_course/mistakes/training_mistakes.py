"""Mistakes in the label-smoothed loss and in training loops."""

import numpy as np

from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array

SMOOTHING = "Szegedy et al. 2016, section 7: q'(k) = (1 - ε) δ(k, y) + ε / K"
MEAN = "This exercise's stub: the mean over all steps whose target is not padding"
CROSS_ENTROPY = "Cross-entropy: -Σ q(k) log p(k), with p the softmax of the logits"
FORCING = "Williams and Zipser 1989 (teacher forcing); Vaswani et al. 2017, figure 1: 'outputs (shifted right)'"
DESCENT = "Gradient descent: θ ← θ - η ∇L(θ)"
target_distribution = mistakes_in(Solution.target_distribution, SMOOTHING)
mean_loss = mistakes_in(Solution.mean_loss, MEAN)
shift = mistakes_in(Solution.shift, FORCING)
train_copy = mistakes_in(Solution.train_copy, DESCENT)


@target_distribution("Distribute ε over all V tokens including the correct token, which keeps 1 - ε + ε / V.")
def spread_over_others(self: Solution, target: Array, size: int, smoothing: float) -> Array:
    """The smoothing is distributed over the other V - 1 tokens."""
    right = np.eye(size)[target]
    return np.asarray((1 - smoothing) * right + smoothing / (size - 1) * (1 - right))


@target_distribution("Distribute ε over all V tokens.")
def spread_without_padding(self: Solution, target: Array, size: int, smoothing: float) -> Array:
    """The smoothing is distributed over the V - 2 tokens that are neither correct nor padding."""
    right = np.eye(size)[target]
    distribution: Array = (1 - smoothing) * right + smoothing / (size - 2) * (1 - right)
    distribution[:, 0] = 0
    return distribution


@target_distribution("The target is 1 - ε for the correct token plus ε / V for every token.")
def no_smoothing(self: Solution, target: Array, size: int, smoothing: float) -> Array:
    """The loss is not smoothed."""
    return Solution.target_distribution(self, target, size, 0.0)


@target_distribution("Give 1 - ε to the correct token, and distribute ε.")
def smoothing_inverted(self: Solution, target: Array, size: int, smoothing: float) -> Array:
    """The correct token has ε, and the other tokens share 1 - ε."""
    return Solution.target_distribution(self, target, size, 1 - smoothing)


@target_distribution("Give the correct token 1 - ε + ε / V.")
def smoothing_only_added(self: Solution, target: Array, size: int, smoothing: float) -> Array:
    """ε / V is added for every token, but the correct token keeps its full 1: the target sums to more than 1."""
    return np.asarray(np.eye(size)[target] + smoothing / size)


@mistake(Solution.counted_steps, MEAN, "Leave out the steps whose target is padding (ignore_index, or a mask).")
def padding_counted(self: Solution, target: Array, padding: int) -> Array:
    """Padding is included in the loss: the model learns to write it."""
    return np.ones_like(target, bool)


@mean_loss("Divide by the number of steps that are not padding.")
def mean_with_padding(self: Solution, losses: Array, counted: Array) -> float:
    """The sum leaves out padding, but is divided by the number of all steps."""
    return float(losses[counted].sum() / len(losses))


@mean_loss("Divide by the number of steps that are not padding.")
def sum_for_mean(self: Solution, losses: Array, counted: Array) -> float:
    """The loss is the sum over the steps, not their mean."""
    return float(losses[counted].sum())


@mistake(Solution.label_smoothed_loss, MEAN, "Sum over the vocabulary, and take the mean over the steps.")
def mean_over_vocabulary(
    self: Solution, logits: Array, target: Array, smoothing: float, padding: int = 0
) -> Array:
    """The loss is also divided by the size of the vocabulary: the mean is over all logits."""
    return Solution.label_smoothed_loss(self, logits, target, smoothing, padding) / logits.shape[-1]


@mistake(Solution.label_smoothed_loss, "This exercise's stub: one number, in nats", "Use the natural logarithm.")
def bits(self: Solution, logits: Array, target: Array, smoothing: float, padding: int = 0) -> Array:
    """The loss is in bits: the logarithm has the base 2."""
    return Solution.label_smoothed_loss(self, logits, target, smoothing, padding) / np.log(2)


@mistake(Solution.label_smoothed_loss, CROSS_ENTROPY, "Leave out Σ q log q: cross-entropy is -Σ q log p.")
def divergence(self: Solution, logits: Array, target: Array, smoothing: float, padding: int = 0) -> Array:
    """The loss is the Kullback-Leibler divergence (nn.KLDivLoss): cross-entropy less the entropy of the smoothed
    target."""
    distribution = self.target_distribution(target, logits.shape[-1], smoothing)
    logs = np.log(np.where(distribution > 0, distribution, 1)) - self.log_softmax(logits)
    losses = (distribution * logs).sum(-1)
    return np.array(self.mean_loss(losses, self.counted_steps(target, padding)))


class WrongSign(Solution, paper=CROSS_ENTROPY):
    """The loss has the wrong sign: training makes the model worse."""

    instead = "Take the negative log-probability."

    def mean_loss(self, losses: Array, counted: Array) -> float:
        return -super().mean_loss(losses, counted)

    def logit_gradient(self, logits: Array, gold: Array) -> Array:
        return -super().logit_gradient(logits, gold)


class SoftmaxTwice(Solution, paper=CROSS_ENTROPY):
    """The softmax is applied twice, for example if cross_entropy receives the output of a softmax."""

    instead = "Give logits to the loss: it applies the softmax itself."

    def log_softmax(self, logits: Array) -> Array:
        return super().log_softmax(np.exp(super().log_softmax(logits)))

    def logit_gradient(self, logits: Array, gold: Array) -> Array:
        once = np.exp(Solution.log_softmax(self, logits))
        gradient = np.exp(Solution.log_softmax(self, once)) - np.eye(logits.shape[-1])[gold]
        return np.asarray(once * (gradient - (gradient * once).sum(-1, keepdims=True)))


class NoLogSoftmax(Solution, paper=CROSS_ENTROPY):
    """The logits are used as log-probabilities."""

    instead = "Take the log-softmax of the logits first."

    def log_softmax(self, logits: Array) -> Array:
        return logits

    def logit_gradient(self, logits: Array, gold: Array) -> Array:
        return -np.eye(logits.shape[-1])[gold]


@shift("Use target[:, :-1] as the decoder's input and target[:, 1:] as its target.")
def not_shifted(self: Solution, target: Array) -> tuple[Array, Array]:
    """The target is not shifted: the decoder's input contains the token that it must predict, so it learns to
    repeat it."""
    return target, target


@shift("Use target[:, :-1] as the decoder's input and target[:, 1:] as its target.")
def answers_given(self: Solution, target: Array) -> tuple[Array, Array]:
    """The decoder's input is target[:, 1:], which is also its target."""
    return target[:, 1:], target[:, 1:]


@shift("Use target[:, 1:] as the target, the next token of each step.")
def repeats_input(self: Solution, target: Array) -> tuple[Array, Array]:
    """Input and target of the decoder are both target[:, :-1]: it learns to repeat its input."""
    return target[:, :-1], target[:, :-1]


@shift("Use target[:, :-1] as the decoder's input and target[:, 1:] as its target.")
def predicts_previous_token(self: Solution, target: Array) -> tuple[Array, Array]:
    """The decoder's input is target[:, 1:], its target target[:, :-1]: it learns to predict earlier tokens."""
    return target[:, 1:], target[:, :-1]


@shift("Train on the target: model(source, target[:, :-1]) is compared with target[:, 1:].")
def source_as_target(self: Solution, target: Array) -> tuple[Array, Array]:
    """Input and target of the decoder are the source, which has no start and no end token."""
    return target[:, 1:-1], target[:, 1:-1]


@mistake(
    Solution.train_copy,
    "Kingma and Ba 2015: m_t and v_t are running means over all steps",
    "Create the optimizer once, before the loop.",
)
def new_optimizer(self: Solution, target: Array, table: Array) -> tuple[Array, ...]:
    """A new optimizer is created for each batch: its running means start again from zero."""
    *others, used, _ = Solution.train_copy(self, target, table)
    return *others, used, np.array(0.0)


@mistake(
    Solution.train_copy,
    "PyTorch adds new gradients to earlier gradients until the gradients are reset",
    "Call optimizer.zero_grad() for each batch, before loss.backward().",
)
def gradients_not_reset(self: Solution, target: Array, table: Array) -> tuple[Array, ...]:
    """Gradients are not reset between batches: every optimizer step uses the sum of all earlier gradients."""
    decoder_input, gradient, _, *others = Solution.train_copy(self, target, table)
    return decoder_input, gradient, np.array(0.0), *others


@train_copy(
    "Create the optimizer with model.parameters() and a rate, and call optimizer.step() after loss.backward()."
)
def never_steps(self: Solution, target: Array, table: Array) -> tuple[Array, ...]:
    """The parameters never change: optimizer.step() is not called, its rate is 0, or it has other parameters."""
    decoder_input, gradient, reset, _, *others = Solution.train_copy(self, target, table)
    return decoder_input, gradient, reset, np.array(0.0), *others


@train_copy("Call loss.backward() on the loss itself, not on loss.item() or loss.detach().")
def no_backward(self: Solution, target: Array, table: Array) -> tuple[Array, ...]:
    """No gradient reaches the model: loss.backward() is not called, or the loss is detached."""
    decoder_input, gradient, reset, _, *others = Solution.train_copy(self, target, table)
    return decoder_input, 0 * gradient, reset, np.array(0.0), *others


@mistake(
    Solution.train_copy,
    "This exercise's stub: one optimizer step for every batch",
    "Take a step for every batch: return after the loop, not inside it.",
)
def first_batch_only(self: Solution, target: Array, table: Array) -> tuple[Array, ...]:
    """Only the first batch is used."""
    *others, _, kept = Solution.train_copy(self, target, table)
    return *others, np.array(1 / 3), kept
