"""Usual mistakes in losses and training loops."""

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array

SMOOTHING = "Szegedy et al. 2016, section 7: q'(k) = (1 - ε) δ(k, y) + ε / K"
PADDED = "Padding is no word: it has no part in the loss"
FORCING = "Williams and Zipser 1989 (teacher forcing); Vaswani et al. 2017, figure 1: 'outputs (shifted right)'"


class SpreadOverOthers(Solution):
    """The smoothing is spread over the other V - 1 tokens."""

    instead = "Spread ε over all V tokens, the right one included: it keeps 1 - ε + ε / V."
    paper = SMOOTHING

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        right = np.eye(size)[target]
        found: Array = (1 - smoothing) * right + smoothing / (size - 1) * (1 - right)
        return found


class SpreadWithoutPadding(Solution):
    """The smoothing is spread over the V - 2 tokens that are neither right nor padding."""

    instead = "Spread ε over all V tokens."
    paper = SMOOTHING

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        right = np.eye(size)[target]
        found: Array = (1 - smoothing) * right + smoothing / (size - 2) * (1 - right)
        found[:, 0] = 0
        return found


class NoSmoothing(Solution):
    """The loss is not smoothed."""

    instead = "Aim at 1 - ε for the right token and ε / V for every token."
    paper = SMOOTHING

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        return super().target_distribution(target, size, 0.0)


class SmoothingInverted(Solution):
    """The right token gets ε and the others share 1 - ε."""

    instead = "The right token gets 1 - ε, and ε is spread."
    paper = SMOOTHING

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        return super().target_distribution(target, size, 1 - smoothing)


class SmoothingNotTaken(Solution):
    """ε / V is added for every token, but the right one keeps all of its 1: the target sums to more than 1."""

    instead = "The right token gets 1 - ε + ε / V."
    paper = SMOOTHING

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        found: Array = np.eye(size)[target] + smoothing / size
        return found


class PaddingCounted(Solution):
    """Padding is counted: the model is taught to write it."""

    instead = "Leave out the steps whose target is padding (ignore_index, or a mask)."
    paper = PADDED

    def counted_steps(self, target: Array, padding: int) -> Array:
        return np.ones_like(target, bool)


class MeanWithPadding(Solution):
    """The sum leaves out padding, but is divided by the number of all steps."""

    instead = "Divide by the number of steps that are no padding."
    paper = PADDED

    def mean_loss(self, losses: Array, counted: Array) -> float:
        return float(losses[counted].sum() / len(losses))


class SumForMean(Solution):
    """The loss is the sum over the steps, not their mean."""

    instead = "Divide by the number of steps that are no padding."
    paper = "This exercise's stub: the mean over what is no padding"

    def mean_loss(self, losses: Array, counted: Array) -> float:
        return float(losses[counted].sum())


class MeanOverVocabulary(Solution):
    """The loss is divided by the size of the vocabulary too: the mean runs over all logits."""

    instead = "Sum over the vocabulary, and take the mean over the steps."
    paper = "This exercise's stub: the mean over what is no padding"

    def label_smoothed_loss(self, logits: Array, target: Array, smoothing: float, padding: int = 0) -> Array:
        return super().label_smoothed_loss(logits, target, smoothing, padding) / logits.shape[-1]


class WrongSign(Solution):
    """The loss has the wrong sign: training would make it worse."""

    instead = "Take minus the log-probability."
    paper = "Cross-entropy: -Σ q(k) log p(k)"

    def mean_loss(self, losses: Array, counted: Array) -> float:
        return -super().mean_loss(losses, counted)

    def logit_gradient(self, logits: Array, gold: Array) -> Array:
        return -super().logit_gradient(logits, gold)


class SoftmaxTwice(Solution):
    """The softmax is taken twice: of probabilities, as where cross_entropy gets a softmax's output."""

    instead = "Give the loss logits: it takes the softmax itself."
    paper = "Cross-entropy: log p(k) is the log-softmax of the logits"

    def log_softmax(self, logits: Array) -> Array:
        return super().log_softmax(np.exp(super().log_softmax(logits)))

    def logit_gradient(self, logits: Array, gold: Array) -> Array:
        chances = np.exp(Solution.log_softmax(self, logits))
        again = np.exp(Solution.log_softmax(self, chances)) - np.eye(logits.shape[-1])[gold]
        found: Array = chances * (again - (again * chances).sum(-1, keepdims=True))
        return found


class NoLogSoftmax(Solution):
    """The logits themselves are taken for log-probabilities."""

    instead = "Take the log-softmax of the logits first."
    paper = "Cross-entropy: log p(k) is the log-softmax of the logits"

    def log_softmax(self, logits: Array) -> Array:
        return logits

    def logit_gradient(self, logits: Array, gold: Array) -> Array:
        return -np.eye(logits.shape[-1])[gold]


class NotShifted(Solution):
    """Teacher forcing is not shifted: the decoder is given the very token that it is to say, and learns to
    repeat it.
    """

    instead = "Give the decoder target[:, :-1], and ask it for target[:, 1:]."
    paper = FORCING

    def shift(self, target: Array) -> tuple[Array, Array]:
        return target, target


class AnswersGiven(Solution):
    """The decoder is given target[:, 1:], the answers, and is asked for the same."""

    instead = "Give the decoder target[:, :-1], and ask it for target[:, 1:]."
    paper = FORCING

    def shift(self, target: Array) -> tuple[Array, Array]:
        return target[:, 1:], target[:, 1:]


class RepeatsInput(Solution):
    """The decoder is given target[:, :-1] and asked for target[:, :-1]: it learns to repeat what it is given."""

    instead = "Ask for target[:, 1:], each step's next token."
    paper = FORCING

    def shift(self, target: Array) -> tuple[Array, Array]:
        return target[:, :-1], target[:, :-1]


class Backwards(Solution):
    """The decoder is given target[:, 1:] and asked for target[:, :-1]: it learns to say what came before."""

    instead = "Give the decoder target[:, :-1], and ask it for target[:, 1:]."
    paper = FORCING

    def shift(self, target: Array) -> tuple[Array, Array]:
        return target[:, 1:], target[:, :-1]


class GradientsPileUp(Solution):
    """Gradients are not set to zero between batches: every step follows all batches so far."""

    instead = "Call optimizer.zero_grad() for each batch, before loss.backward()."
    paper = "PyTorch adds gradients up until they are set to zero"

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        entering, slope, _, moved, used = super().train_copy(target, table)
        return entering, slope, np.array(0.0), moved, used


class NeverSteps(Solution):
    """The parameters never change: optimizer.step() is not called, or the optimizer has other parameters."""

    instead = "Make the optimizer of model.parameters(), and call optimizer.step() after loss.backward()."
    paper = "Gradient descent: θ ← θ - η ∇L(θ)"

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        entering, slope, fresh, _, used = super().train_copy(target, table)
        return entering, slope, fresh, np.array(0.0), used


class NoBackward(Solution):
    """No gradient comes back to the model: loss.backward() is not called, or the loss was detached."""

    instead = "Call loss.backward() on the loss itself, not on loss.item() or loss.detach()."
    paper = "Gradient descent: θ ← θ - η ∇L(θ)"

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        entering, slope, fresh, _, used = super().train_copy(target, table)
        return entering, 0 * slope, fresh, np.array(0.0), used


class FirstBatchOnly(Solution):
    """Only the first batch is used."""

    instead = "Take a step for every batch: return after the loop, not in it."
    paper = "This exercise's stub: a step for every batch"

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        return (*super().train_copy(target, table)[:-1], np.array(0.0))
