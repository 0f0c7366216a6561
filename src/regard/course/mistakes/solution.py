"""Recurrent steps, searches, a loss and a training, worked out right in steps that a mistake can take the place
of.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from regard.course.mistakes.transformer_solution import PADDING, Array, Mask, WholeModel

Hypothesis = tuple[float, list[int]]


class Recurrent(WholeModel):
    """One step of a decoder that attends."""

    def tanh(self, states: Array) -> Array:
        """Return the tanh inside of a score or before an output."""
        return np.tanh(states)

    def additive_scores(self, state: Array, memory: Array, w: Array, u: Array, v: Array) -> Array:
        """Return Bahdanau's scores (B, T)."""
        return self.tanh((state @ w)[:, None] + memory @ u) @ v

    def memory_context(self, weights: Array, memory: Array) -> Array:
        """Return the context (B, M)."""
        return np.einsum("bt,btm->bm", weights, memory)

    def cell_input(self, previous: Array, context: Array) -> Array:
        """Return what enters Bahdanau's cell."""
        return np.concatenate([previous, context], -1)

    def query_state(self, previous: Array, state: Array, memory: Array, cell: Any) -> Array:
        """Return the state that asks in Bahdanau's step: the one from before."""
        return state

    def bahdanau_step(
        self,
        previous: Array,
        state: Array,
        memory: Array,
        cell: Any,
        w: Array,
        u: Array,
        v: Array,
        mask: Mask = None,
    ) -> tuple[Array, ...]:
        """Return the next state and the weights."""
        asks = self.query_state(previous, state, memory, cell)
        weights = self.masked_softmax(self.additive_scores(asks, memory, w, u, v), mask)
        return cell(self.cell_input(previous, self.memory_context(weights, memory)), state), weights

    def luong_query(self, new: Array, old: Array) -> Array:
        """Return the state that asks in Luong's step: the one that the cell just gave."""
        return new

    def luong_output_state(self, new: Array, old: Array) -> Array:
        """Return the state that goes beside Luong's context: the one that the cell just gave."""
        return new

    def general_scores(self, state: Array, memory: Array, w_a: Array) -> Array:
        """Return Luong's scores (B, T)."""
        return np.einsum("bd,dm,btm->bt", state, w_a, memory)

    def join_context(self, context: Array, state: Array) -> Array:
        """Return what W_c is applied to."""
        return np.concatenate([context, state], -1)

    def luong_step(
        self, previous: Array, state: Array, memory: Array, cell: Any, w_a: Array, w_c: Array, mask: Mask = None
    ) -> tuple[Array, ...]:
        """Return the attentional state, the next state and the weights."""
        new = cell(previous, state)
        asks = self.luong_query(new, state)
        weights = self.masked_softmax(self.general_scores(asks, memory, w_a), mask)
        mixture = self.join_context(self.memory_context(weights, memory), self.luong_output_state(new, state))
        return self.tanh(mixture @ w_c), new, weights


class Searching(Recurrent):
    """Greedy and beam search."""

    def choose_token(self, chances: Array) -> int:
        """Return the next token of greedy search."""
        return int(np.argmax(chances))

    def step_input(self, tokens: list[int]) -> list[int]:
        """Return what the model is asked about."""
        return tokens

    def is_end(self, token: int, end: int) -> bool:
        """Whether greedy search stops here."""
        return token == end

    def token_limit(self, longest: int) -> int:
        """Return how many tokens may come."""
        return longest

    def strip_tokens(self, tokens: list[int], start: int, end: int) -> list[int]:
        """Return the tokens that a search answers with."""
        return tokens[1:]

    def greedy_search(self, step: Callable[[list[int]], Array], start: int, end: int, longest: int) -> Array:
        """Return the tokens found."""
        tokens = [start]
        for _ in range(self.token_limit(longest)):
            tokens.append(self.choose_token(step(self.step_input(tokens))))
            if self.is_end(tokens[-1], end):
                break
        return np.array(self.strip_tokens(tokens, start, end))

    def token_gains(self, chances: Array) -> Array:
        """Return what continuing by each token adds."""
        return chances

    def is_finished(self, tokens: list[int], end: int) -> bool:
        """Whether a hypothesis is at its end."""
        return len(tokens) > 1 and tokens[-1] == end

    def keep_finished(self, hypothesis: Hypothesis) -> list[Hypothesis]:
        """Return what becomes of a hypothesis that has ended: it keeps its place, while it is among the best."""
        return [hypothesis]

    def select_top(self, found: list[Hypothesis], width: int, parents: list[int]) -> list[Hypothesis]:
        """Return the beam: the best of what was found, wherever it comes from."""
        return sorted(found, key=lambda each: -each[0])[:width]

    def prune(self, found: list[Hypothesis], width: int, parents: list[int], alpha: float) -> list[Hypothesis]:
        """Return the beam; what hypotheses of several lengths are compared by at the end has no part in it."""
        return self.select_top(found, width, parents)

    def normalise_length(self, total: float, length: int, alpha: float) -> float:
        """Return what hypotheses of several lengths are compared by."""
        return total / length**alpha

    def is_done(self, beam: list[Hypothesis], end: int) -> bool:
        """Whether the search is over."""
        return all(self.is_finished(tokens, end) for _, tokens in beam)

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        """Return the hypothesis that the search answers with, and its figure."""
        ranked = [(self.normalise_length(total, len(tokens) - 1, alpha), tokens) for total, tokens in beam]
        return max(ranked, key=lambda each: each[0])

    def beam_search(
        self, step: Callable[[list[int]], Array], start: int, end: int, width: int, longest: int, alpha: float
    ) -> tuple[Array, ...]:
        """Return tokens and figure of the best hypothesis."""
        beam: list[Hypothesis] = [(0.0, [start])]
        for _ in range(self.token_limit(longest)):
            found, parents = [], []
            for parent, (total, tokens) in enumerate(beam):
                if self.is_finished(tokens, end):
                    more = self.keep_finished((total, tokens))
                else:
                    gains = self.token_gains(step(self.step_input(tokens)))
                    more = [(total + float(gain), [*tokens, token]) for token, gain in enumerate(gains)]
                found += more
                parents += [parent] * len(more)
            beam = self.prune(found, width, parents, alpha)
            if self.is_done(beam, end):
                break
        figure, tokens = self.select_answer(beam, alpha, end)
        return np.array(self.strip_tokens(tokens, start, end)), np.array(figure)


class Solution(Searching):
    """All exercises worked out; the loss and the training come last."""

    instead = ""
    """What is to be done, as a sentence."""
    paper = ""
    """The line that a mistake departs from."""
    companion = False
    """Whether this only shows through another mistake, in exercises where it makes no difference by itself."""
    broken: frozenset[str] = frozenset()
    """Inputs to which any answer is this mistake's that holds what is no number: which ones are none depends on
    the order of the steps, and on the bits of a number."""

    def log_softmax(self, logits: Array) -> Array:
        """Return log-probabilities."""
        top = logits.max(-1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        """Return the distribution that is aimed at: (N, V)."""
        return (1 - smoothing) * np.eye(size)[target] + smoothing / size

    def counted_steps(self, target: Array, padding: int) -> Array:
        """Return which steps count."""
        return target != padding

    def mean_loss(self, losses: Array, counted: Array) -> float:
        """Return one number for all steps."""
        return float(losses[counted].sum() / counted.sum())

    def label_smoothed_loss(
        self, logits: Array, target: Array, smoothing: float, padding: int = PADDING
    ) -> Array:
        """Return the loss."""
        wanted = self.target_distribution(target, logits.shape[-1], smoothing)
        losses = -(wanted * self.log_softmax(logits)).sum(-1)
        return np.array(self.mean_loss(losses, self.counted_steps(target, padding)))

    def shift(self, target: Array) -> tuple[Array, Array]:
        """Return what enters the decoder and what it is to answer."""
        return target[:, :-1], target[:, 1:]

    def logit_gradient(self, logits: Array, gold: Array) -> Array:
        """Return the gradient of a step's loss by its logits."""
        chances = np.exp(self.log_softmax(logits))
        return chances - np.eye(logits.shape[-1])[gold]

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        """Return what enters the decoder, the direction of the gradient that comes back to its logits, whether
        that gradient came fresh to each batch, whether the parameters moved, and how many batches were used."""
        entering, gold = self.shift(target)
        gradient = self.logit_gradient(table[:, : entering.shape[1]], gold)
        gradient = gradient * self.counted_steps(gold, PADDING)[..., None]
        return entering, direction(gradient), np.array(1.0), np.array(1.0), np.array(1.0)


def direction(gradient: Array) -> Array:
    """Return a gradient without its length."""
    length = math.sqrt(float((gradient**2).sum()))
    return gradient / length if length else gradient
