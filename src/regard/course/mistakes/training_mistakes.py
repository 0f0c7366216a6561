"""Mistakes in the label-smoothed loss and in training loops."""

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array

SMOOTHING = "Szegedy et al. 2016, section 7: q'(k) = (1 - ε) δ(k, y) + ε / K"
MEAN = "This exercise's stub: the mean over all steps whose target is not padding"
CROSS_ENTROPY = "Cross-entropy: -Σ q(k) log p(k), with p the softmax of the logits"
FORCING = "Williams and Zipser 1989 (teacher forcing); Vaswani et al. 2017, figure 1: 'outputs (shifted right)'"
DESCENT = "Gradient descent: θ ← θ - η ∇L(θ)"


class SpreadOverOthers(Solution, paper=SMOOTHING):
    """The smoothing is distributed over the other V - 1 tokens."""

    instead = "Distribute ε over all V tokens including the right one, which keeps 1 - ε + ε / V."

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        right = np.eye(size)[target]
        return np.asarray((1 - smoothing) * right + smoothing / (size - 1) * (1 - right))


class SpreadWithoutPadding(Solution, paper=SMOOTHING):
    """The smoothing is distributed over the V - 2 tokens that are neither right nor padding."""

    instead = "Distribute ε over all V tokens."

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        right = np.eye(size)[target]
        distribution: Array = (1 - smoothing) * right + smoothing / (size - 2) * (1 - right)
        distribution[:, 0] = 0
        return distribution


class NoSmoothing(Solution, paper=SMOOTHING):
    """The loss is not smoothed."""

    instead = "The target is 1 - ε for the right token plus ε / V for every token."

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        return super().target_distribution(target, size, 0.0)


class SmoothingInverted(Solution, paper=SMOOTHING):
    """The right token has ε and the others share 1 - ε."""

    instead = "Give 1 - ε to the right token, and distribute ε."

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        return super().target_distribution(target, size, 1 - smoothing)


class SmoothingNotTaken(Solution, paper=SMOOTHING):
    """ε / V is added for every token, but the right one keeps its full 1: the target sums to more than 1."""

    instead = "Give the right token 1 - ε + ε / V."

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        return np.asarray(np.eye(size)[target] + smoothing / size)


class PaddingCounted(Solution, paper=MEAN):
    """Padding is included in the loss: the model learns to write it."""

    instead = "Leave out the steps whose target is padding (ignore_index, or a mask)."

    def counted_steps(self, target: Array, padding: int) -> Array:
        return np.ones_like(target, bool)


class MeanWithPadding(Solution, paper=MEAN):
    """The sum leaves out padding, but is divided by the number of all steps."""

    instead = "Divide by the number of steps that are not padding."

    def mean_loss(self, losses: Array, counted: Array) -> float:
        return float(losses[counted].sum() / len(losses))


class SumForMean(Solution, paper=MEAN):
    """The loss is the sum over the steps, not their mean."""

    instead = "Divide by the number of steps that are not padding."

    def mean_loss(self, losses: Array, counted: Array) -> float:
        return float(losses[counted].sum())


class MeanOverVocabulary(Solution, paper=MEAN):
    """The loss is also divided by the size of the vocabulary: the mean is over all logits."""

    instead = "Sum over the vocabulary, and take the mean over the steps."

    def label_smoothed_loss(self, logits: Array, target: Array, smoothing: float, padding: int = 0) -> Array:
        return super().label_smoothed_loss(logits, target, smoothing, padding) / logits.shape[-1]


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


class NotShifted(Solution, paper=FORCING):
    """The target is not shifted: the decoder's input contains the token that it must predict, so it learns to
    repeat it.
    """

    instead = "Use target[:, :-1] as the decoder's input and target[:, 1:] as its target."

    def shift(self, target: Array) -> tuple[Array, Array]:
        return target, target


class AnswersGiven(Solution, paper=FORCING):
    """The decoder's input is target[:, 1:], which is also its target."""

    instead = "Use target[:, :-1] as the decoder's input and target[:, 1:] as its target."

    def shift(self, target: Array) -> tuple[Array, Array]:
        return target[:, 1:], target[:, 1:]


class RepeatsInput(Solution, paper=FORCING):
    """Input and target of the decoder are both target[:, :-1]: it learns to repeat its input."""

    instead = "Use target[:, 1:] as the target, the next token of each step."

    def shift(self, target: Array) -> tuple[Array, Array]:
        return target[:, :-1], target[:, :-1]


class PredictsPreviousToken(Solution, paper=FORCING):
    """The decoder's input is target[:, 1:], its target target[:, :-1]: it learns to predict earlier tokens."""

    instead = "Use target[:, :-1] as the decoder's input and target[:, 1:] as its target."

    def shift(self, target: Array) -> tuple[Array, Array]:
        return target[:, 1:], target[:, :-1]


class GradientsNotReset(Solution, paper="PyTorch adds gradients to earlier ones until they are reset"):
    """Gradients are not reset between batches: every step follows the sum of all gradients so far."""

    instead = "Call optimizer.zero_grad() for each batch, before loss.backward()."

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        decoder_input, gradient, _, changed, used = super().train_copy(target, table)
        return decoder_input, gradient, np.array(0.0), changed, used


class NeverSteps(Solution, paper=DESCENT):
    """The parameters never change: optimizer.step() is not called, or the optimizer has other parameters."""

    instead = "Create the optimizer with model.parameters(), and call optimizer.step() after loss.backward()."

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        decoder_input, gradient, reset, _, used = super().train_copy(target, table)
        return decoder_input, gradient, reset, np.array(0.0), used


class NoBackward(Solution, paper=DESCENT):
    """No gradient reaches the model: loss.backward() is not called, or the loss is detached."""

    instead = "Call loss.backward() on the loss itself, not on loss.item() or loss.detach()."

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        decoder_input, gradient, reset, _, used = super().train_copy(target, table)
        return decoder_input, 0 * gradient, reset, np.array(0.0), used


class FirstBatchOnly(Solution, paper="This exercise's stub: one optimizer step for every batch"):
    """Only the first batch is used."""

    instead = "Take a step for every batch: return after the loop, not inside it."

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        return (*super().train_copy(target, table)[:-1], np.array(0.0))
