"""The correct solution to all exercises in replaceable steps: decoder steps, search, loss and training loop."""

import functools
import math
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from regard_course.mistakes.analysis_solution import AnalysisSolution
from regard_course.mistakes.transformer_solution import PADDING, Array, Mask

Hypothesis = tuple[float, list[int]]
"""Hypothesis: sum of log-probabilities, and tokens with the start token."""
Step = Callable[[list[int]], Array]
P = ParamSpec("P")
R = TypeVar("R")


class RecurrentSolution(AnalysisSolution):
    """One step of a recurrent decoder with attention."""

    def tanh(self, states: Array) -> Array:
        """Apply tanh, as additive scores and Luong's output layer do."""
        return np.tanh(states)

    def additive_scores(self, state: Array, memory: Array, w: Array, u: Array, v: Array) -> Array:
        """Return Bahdanau's scores (B, T)."""
        return self.tanh((state @ w)[:, None] + memory @ u) @ v

    def memory_context(self, weights: Array, memory: Array) -> Array:
        """Return the context (B, M)."""
        return np.einsum("bt,btm->bm", weights, memory)

    def cell_input(self, previous: Array, context: Array) -> Array:
        """Return the input of Bahdanau's cell."""
        return np.concatenate([previous, context], -1)

    def query_state(self, previous: Array, state: Array, memory: Array, cell: Any) -> Array:
        """Return the query of Bahdanau's step: the state before the step."""
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
        """Return the next state s_i, and the weights α_i.

        e_ij = v · tanh(s_(i-1) W + h_j U);  α_i = softmax(e_i);  c_i = Σ_j α_ij h_j;
        s_i = cell([y_(i-1); c_i], s_(i-1))

        previous (B, E): the previous word's embedding y_(i-1); state (B, D): s_(i-1); memory (B, T, M): the h_j;
        cell: a function, cell(input (B, E + M), state (B, D)) returns the next state (B, D);
        w (D, A), u (M, A), v (A,); mask (B, T), True = may attend. Returns s_i (B, D), α_i (B, T).
        The softmax with a mask is exercise 2 (masked_softmax).

        Or as a module with its own weights: class BahdanauStep(nn.Module): __init__(self, width, memory, inner)
        for D, M and A, forward(self, previous, state, memory, cell, mask=None)
        """
        query = self.query_state(previous, state, memory, cell)
        weights = self.masked_softmax(self.additive_scores(query, memory, w, u, v), mask)
        return cell(self.cell_input(previous, self.memory_context(weights, memory)), state), weights

    def luong_query(self, new: Array, old: Array) -> Array:
        """Return the query of Luong's step: the state after the step."""
        return new

    def luong_output_state(self, new: Array, old: Array) -> Array:
        """Return the state that is joined with Luong's context: the state after the step."""
        return new

    def general_scores(self, state: Array, memory: Array, w_a: Array) -> Array:
        """Return Luong's scores (B, T)."""
        return np.einsum("bd,dm,btm->bt", state, w_a, memory)

    def join_context(self, context: Array, state: Array) -> Array:
        """Return the input of W_c."""
        return np.concatenate([context, state], -1)

    def luong_step(
        self, previous: Array, state: Array, memory: Array, cell: Any, w_a: Array, w_c: Array, mask: Mask = None
    ) -> tuple[Array, ...]:
        """Return the attentional state h̃_t, the next state h_t, and the weights a_t.

        h_t = cell(y_(t-1), h_(t-1));  a_t = softmax over s of h_tᵀ W_a h̄_s;  c_t = Σ_s a_ts h̄_s;
        h̃_t = tanh([c_t; h_t] W_c)

        previous (B, E): the previous word's embedding y_(t-1); state (B, D): h_(t-1); memory (B, T, M): the h̄_s;
        cell: a function, cell(input (B, E), state (B, D)) returns the next state (B, D);
        w_a (D, M), w_c (M + D, D); mask (B, T), True = may attend. Returns h̃_t (B, D), h_t (B, D), a_t (B, T).
        The softmax with a mask is exercise 2 (masked_softmax).

        Or as a module with its own weights: class LuongStep(nn.Module): __init__(self, width, memory) for D and
        M, forward(self, previous, state, memory, cell, mask=None)
        """
        new = cell(previous, state)
        weights = self.masked_softmax(self.general_scores(self.luong_query(new, state), memory, w_a), mask)
        mixture = self.join_context(self.memory_context(weights, memory), self.luong_output_state(new, state))
        return self.tanh(mixture @ w_c), new, weights


class SearchSolution(RecurrentSolution):
    """Greedy search and beam search."""

    def choose_token(self, log_probabilities: Array) -> int:
        """Return the next token of greedy search."""
        return int(np.argmax(log_probabilities))

    def step_input(self, tokens: list[int]) -> list[int]:
        """Return the input of the model."""
        return tokens

    def is_end(self, token: int, end: int) -> bool:
        """Return whether greedy search stops after this token."""
        return token == end

    def token_limit(self, longest: int) -> int:
        """Return the maximum number of tokens."""
        return longest

    def strip_tokens(self, tokens: list[int], start: int, end: int) -> list[int]:
        """Return the tokens of the answer."""
        return tokens[1:]

    def greedy_search(self, step: Step, start: int, end: int, longest: int) -> Array:
        """Return the tokens that a model generates if it always chooses the most likely next token.

        step: a function; step(tokens) returns the log-probabilities (V,) of the token that follows a list of
        tokens, which begins with `start`. Stop after `end`, or after `longest` tokens.
        Returns a list of tokens, without `start`, with `end` if it was reached.
        """
        tokens = [start]
        for _ in range(self.token_limit(longest)):
            tokens.append(self.choose_token(step(self.step_input(tokens))))
            if self.is_end(tokens[-1], end):
                break
        return np.array(self.strip_tokens(tokens, start, end))

    def token_gains(self, log_probabilities: Array) -> Array:
        """Return the value that each token adds to the sum of a hypothesis."""
        return log_probabilities

    def is_finished(self, tokens: list[int], end: int) -> bool:
        """Return whether a hypothesis has ended."""
        return len(tokens) > 1 and tokens[-1] == end

    def keep_finished(self, hypothesis: Hypothesis) -> list[Hypothesis]:
        """Return the candidates that a finished hypothesis adds: the hypothesis itself, which competes for its
        place."""
        return [hypothesis]

    def select_top(self, candidates: list[Hypothesis], width: int, parents: list[int]) -> list[Hypothesis]:
        """Return the candidates with the largest sums. `parents` contains the hypothesis that each candidate
        continues."""
        return sorted(candidates, key=lambda candidate: -candidate[0])[:width]

    def prune(
        self, candidates: list[Hypothesis], width: int, parents: list[int], alpha: float
    ) -> list[Hypothesis]:
        """Return the next beam. The length normalization is not applied here."""
        return self.select_top(candidates, width, parents)

    def normalize_length(self, total: float, length: int, alpha: float) -> float:
        """Return the score by which hypotheses of different lengths are compared."""
        return total / length**alpha

    def is_done(self, beam: list[Hypothesis], end: int) -> bool:
        """Return whether the search is over."""
        return all(self.is_finished(tokens, end) for _, tokens in beam)

    def select_answer(self, beam: list[Hypothesis], alpha: float, end: int) -> Hypothesis:
        """Return the best hypothesis with its score."""
        ranked = [(self.normalize_length(total, len(tokens) - 1, alpha), tokens) for total, tokens in beam]
        return max(ranked, key=lambda hypothesis: hypothesis[0])

    def beam_search(
        self, step: Step, start: int, end: int, width: int, longest: int, alpha: float
    ) -> tuple[Array, ...]:
        """Return the tokens of the best hypothesis in a beam of `width`, and its score.

        step: a function; step(tokens) returns the log-probabilities (V,) of the token that follows a list of
        tokens, which begins with `start`.
        After each step the beam keeps the `width` hypotheses with the largest sums of log-probabilities, among
        all continuations of all hypotheses. A hypothesis that ends with `end` is not continued, but keeps
        competing for its place in the beam. Stop when all hypotheses have ended, or after `longest` tokens. The
        answer is the hypothesis of the beam with the largest score: sum of log-probabilities / length ** alpha,
        where the length is the number of tokens in the answer. Returns a list of tokens, without `start`, with
        `end` if it was reached; and the score.
        """
        beam: list[Hypothesis] = [(0.0, [start])]
        for _ in range(self.token_limit(longest)):
            candidates, parents = [], []
            for parent, (total, tokens) in enumerate(beam):
                if self.is_finished(tokens, end):
                    continuations = self.keep_finished((total, tokens))
                else:
                    gains = self.token_gains(step(self.step_input(tokens)))
                    continuations = [(total + float(gain), [*tokens, token]) for token, gain in enumerate(gains)]
                candidates += continuations
                parents += [parent] * len(continuations)
            beam = self.prune(candidates, width, parents, alpha)
            if self.is_done(beam, end):
                break
        score, tokens = self.select_answer(beam, alpha, end)
        return np.array(self.strip_tokens(tokens, start, end)), np.array(score)


class Solution(SearchSolution):
    """The correct solution to all exercises. Mistakes are derived from this class.

    class NoScale(Solution, paper=EQUATION_1): ...
    """

    instead = ""
    """The correction, as a sentence."""
    paper = ""
    """The line of a paper or of the stub that a mistake contradicts."""
    companion = False
    """Whether the mistake may have an effect only together with another mistake, in exercises that it does not
    affect alone."""
    broken: frozenset[str] = frozenset()
    """Names of inputs for which every answer with NaN or infinity is attributed to this mistake.

    The positions of NaN or infinity depend on the order of operations and on the number of bits.
    """

    rounded: frozenset[str] = frozenset()
    """Names of inputs on which the answers of this mistake depend on rounding. They are not compared."""

    def __init_subclass__(cls, paper: str = "", **options: Any) -> None:
        """Set `paper` for several related mistakes."""
        super().__init_subclass__(**options)
        if paper:
            cls.paper = paper

    def log_softmax(self, logits: Array) -> Array:
        """Return log-probabilities."""
        top = logits.max(-1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))

    def target_distribution(self, target: Array, size: int, smoothing: float) -> Array:
        """Return the smoothed target (N, V)."""
        return (1 - smoothing) * np.eye(size)[target] + smoothing / size

    def counted_steps(self, target: Array, padding: int) -> Array:
        """Return which steps count."""
        return target != padding

    def mean_loss(self, losses: Array, counted: Array) -> float:
        """Return the mean of the loss over the steps that are not padding."""
        return float(losses[counted].sum() / counted.sum())

    def label_smoothed_loss(
        self, logits: Array, target: Array, smoothing: float, padding: int = PADDING
    ) -> Array:
        """Return the mean of -Σ_k q'(k) log p(k) over all steps whose target is not padding.

        q'(k) = (1 - smoothing) δ(k, target) + smoothing / V, and p is the softmax of the logits.
        logits (N, V); target (N,), token numbers; returns one number, in nats.
        """
        distribution = self.target_distribution(target, logits.shape[-1], smoothing)
        losses = -(distribution * self.log_softmax(logits)).sum(-1)
        return np.array(self.mean_loss(losses, self.counted_steps(target, padding)))

    def shift(self, target: Array) -> tuple[Array, Array]:
        """Return the decoder's input and its expected output."""
        return target[:, :-1], target[:, 1:]

    def logit_gradient(self, logits: Array, gold: Array) -> Array:
        """Return the gradient of each step's loss with respect to its logits."""
        return np.exp(self.log_softmax(logits)) - np.eye(logits.shape[-1])[gold]

    def train_copy(self, target: Array, table: Array) -> tuple[Array, ...]:
        """Return the result of `record_training`: decoder input, normalized gradient and four numbers."""
        decoder_input, gold = self.shift(target)
        gradient = self.logit_gradient(table[:, : decoder_input.shape[1]], gold)
        gradient = gradient * self.counted_steps(gold, PADDING)[..., None]
        return decoder_input, normalize_gradient(gradient), *(np.array(1.0) for _ in range(4))


def normalize_gradient(gradient: Array) -> Array:
    """Return a gradient scaled to length 1. Zeros remain zeros."""
    length = math.sqrt(float((gradient**2).sum()))
    return gradient / length if length else gradient


def mistake(
    step: Callable[Concatenate[Any, P], R],
    paper: str,
    instead: str,
    *,
    companion: bool = False,
    broken: frozenset[str] = frozenset(),
    rounded: frozenset[str] = frozenset(),
) -> Callable[[Callable[Concatenate[Any, P], R]], type[Solution]]:
    """Turn a function into a mistake: the correct solution, with one step replaced by the function.

    step: the method of `Solution` that the function replaces, with the same arguments. The docstring of the
    function describes the error. The other arguments are the attributes of `Solution`.

    >>> @mistake(Solution.project_output, "Vaswani et al. 2017, section 3.2.2", "Multiply by W^O.")
    ... def no_output_projection(self, joined, w_o):
    ...     '''The output projection is missing.'''
    ...     return joined
    >>> issubclass(no_output_projection, Solution), no_output_projection.instead
    (True, 'Multiply by W^O.')
    """

    def derive(wrong: Callable[Concatenate[Any, P], R]) -> type[Solution]:
        attributes = {"paper": paper, "instead": instead, "companion": companion}
        names = {"__doc__": wrong.__doc__, "__module__": wrong.__module__, step.__name__: wrong}
        return type(wrong.__name__, (Solution,), {**attributes, "broken": broken, "rounded": rounded, **names})

    return derive


def mistakes_in(
    step: Callable[Concatenate[Any, P], R], paper: str
) -> Callable[..., Callable[[Callable[Concatenate[Any, P], R]], type[Solution]]]:
    """Return `mistake` for several mistakes in the same step, which contradict the same line of a paper."""
    return functools.partial(mistake, step, paper)
