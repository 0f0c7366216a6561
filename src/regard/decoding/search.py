"""Search for the most likely targets of a model: greedy search, sampling and beam search.

Greedy search extends one prefix of each source by the most likely token; sampling extends the prefix by a
random token. Beam search keeps the best `width` prefixes. Each step extends every prefix by every token, and
keeps the best extensions. Prefixes with an end symbol are finished hypotheses, ranked by their score,
`log-probability / length_penalty`. A source is done when `width` of its hypotheses are finished, or when no
prefix can reach a better score than the finished hypotheses.

Letters: B is the number of sources, K the number of prefixes per source, V the size of the target vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.arguments import public
from regard.data.vocabulary import BOS, EOS
from regard.decoding.extensions import (
    NEVER,
    UNCONSTRAINED,
    Constraints,
    check_finite,
    impossible,
    log_probabilities,
    mask_special_tokens,
)
from regard.decoding.incremental import IncrementalDecoder, make_decoder
from regard.errors import InputError, check_range
from regard.fast.fast_transformer import FastTransformer
from regard.fast.token_screen import MIN_STATES
from regard.fast.topk import argmax
from regard.models.seq2seq import Seq2Seq

LARGEST_BEAM = 1000
LARGEST_PENALTY = 10
"""Largest exponent of the length penalty. With larger exponents, only the length matters."""


class SearchTrace(NamedTuple):
    """Probabilities of an answer of T tokens, with the end of sequence, and its attention to a source of Ts
    tokens, with its end, in L cross-attention layers."""

    source: list[int]
    """Tokens of the source, without its end."""
    tokens: list[int]
    """Tokens of the answer, without its end."""
    log_probabilities: np.ndarray
    """(T,): natural logarithm of the probability of each token."""
    attention: np.ndarray
    """(L, T, Ts): weights of the source, mean over heads."""
    contribution: np.ndarray
    """(L, T): sum over heads and source tokens of weight times length of the transformed value (Kobayashi et al.
    2020), which is how much the source adds to the states."""


@public
@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A target for a source."""

    tokens: list[int]
    """Vocabulary indices, without the end of sequence."""
    log_probability: float
    """Natural logarithm of the probability of the tokens, and of the end of sequence if the hypothesis has
    one."""
    score: float
    """Score for ranking hypotheses: log-probability divided by the length penalty."""
    finished: bool
    """Whether the end of sequence came before `max_len`."""
    trace: SearchTrace | None = field(default=None, repr=False, compare=False)
    """What the search computed for the hypothesis, if it was requested and is known."""


@public
def greedy_search(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    *,
    max_len: int | Sequence[int],
    scored: bool = True,
) -> list[Hypothesis]:
    """Return one hypothesis for each source (B, Ts), of at most `max_len` tokens.

    `source_mask` (B, Ts): True before the end. `max_len`: a single limit, or a limit for each source. Finished
    sources are not decoded further. `scored`: If False, log-probabilities are not computed, and are NaN.
    """
    decoder = make_decoder(model)
    screen = None
    if not scored and len(source) >= MIN_STATES and isinstance(decoder, FastTransformer):
        screen = decoder.screen(NEVER)

    def most_likely(states: Tensor, rows: Sequence[int], time: int) -> tuple[Tensor, Tensor | None]:
        del rows, time
        if screen is None:
            # A softmax does not change which token is the most likely.
            logits = decoder.logits(states)
            values = log_probabilities(logits) if scored else mask_special_tokens(logits)
            tokens = argmax(values)
            best = values.gather(1, tokens)
        else:
            tokens, best = screen(states)
        check_finite(best)  # NaN counts as the largest value
        return tokens, best if scored else None

    return decode(decoder, source, source_mask, most_likely, max_len)


@torch.inference_mode()
def decode(
    decoder: IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    choose: Callable[[Tensor, Sequence[int], int], tuple[Tensor, Tensor | None]],
    max_len: int | Sequence[int],
) -> list[Hypothesis]:
    """Decode with `choose`, which maps states (B, D), the source of each row, and the step to tokens (B, 1).

    `choose` also returns the tokens' log-probabilities, or None.
    """
    device, limits = source.device, source_limits(max_len, len(source))
    active = list(range(len(source)))
    tokens = torch.full((len(source), 1), BOS, device=device)
    sequences: list[list[int]] = [[] for _ in active]
    totals, finished = [0.0] * len(active), [False] * len(active)
    state = decoder.start(decoder.encode(source, source_mask))
    for time in range(max(limits) + 1):
        states, state = decoder.step(tokens, state)
        tokens, log_probs = choose(states[:, 0], active, time)
        going = []
        best = [math.nan] * len(active) if log_probs is None else log_probs[:, 0].tolist()
        for index, token, log_prob in zip(active, tokens[:, 0].tolist(), best, strict=True):
            finished[index], below_limit = token == EOS, time < limits[index]
            going.append(below_limit and token != EOS)
            if below_limit or token == EOS:  # at the limit only the end of sequence still fits
                totals[index] += log_prob
                sequences[index].append(token)
        if not all(going):
            rows = compact_rows(going)
            active = [active[row] for row in rows]
            remaining = torch.tensor(rows, device=device, dtype=torch.int64)
            state, tokens = state.keep(remaining), tokens[remaining]
        if not active:
            break
    return [
        Hypothesis(
            tokens=sequence[:-1] if ended else sequence, log_probability=total, score=total, finished=ended
        )
        for sequence, total, ended in zip(sequences, totals, finished, strict=True)
    ]


@public
def length_penalty(length: int, alpha: float) -> float:
    """Return `((5 + length) / 6) ** alpha` (Wu et al. 2016, equation 14); `length` includes the end of sequence.

    >>> length_penalty(7, 1.0)
    2.0
    """
    return float(((5 + length) / 6) ** alpha)


def check_beam(width: int, n_best: int, alpha: float) -> None:
    """Raise `InputError` for arguments of `beam_search` out of range."""
    check_range("beam", width, 1, LARGEST_BEAM)
    check_range("n_best", n_best, 1, LARGEST_BEAM)
    if n_best > width:
        raise InputError(f"n_best {n_best} exceeds beam {width}: lower n_best, or raise beam")
    if not 0 <= alpha <= LARGEST_PENALTY:
        raise InputError(f"length_penalty {alpha} is out of range: choose from 0 to {LARGEST_PENALTY}")


class Step(NamedTuple):
    """One step of a search, for all unfinished sources."""

    log_probs: Tensor
    """Log-probability of each token after each prefix, (B, K, V)."""
    ends: list[tuple[int, int, float]]
    """Source, prefix and log-probability of each finished hypothesis."""
    parents: Tensor
    """Index of the prefix that each new prefix extends, (B, K')."""
    tokens: Tensor
    """The added tokens, (B, K')."""
    totals: Tensor
    """Log-probability of each new prefix, (B, K')."""
    sources: Sequence[int]
    """Index of the source of each row."""
    state: Any
    """State of the decoder after this step, before prefixes are selected."""
    last: bool
    """Whether the length limit is reached, so that the new prefixes are dropped."""


@public
@torch.inference_mode()
def beam_search(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    *,
    width: int,
    max_len: int | Sequence[int],
    alpha: float = 0.0,
    n_best: int = 1,
    on_step: Callable[[Step], None] | None = None,
    constraints: Constraints = UNCONSTRAINED,
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses for each source (B, Ts), best first, of at most `max_len` tokens.

    `source_mask` (B, Ts): True before the end. `max_len`: a single limit, or a limit for each source. `width`:
    number of prefixes per source. `alpha`: exponent of the length penalty. 0 compares log-probabilities, and
    larger values favor longer hypotheses. If fewer than `n_best` hypotheses finish within the limit, unfinished
    hypotheses follow. `on_step`: function that is called with every step. Raises `InputError` for values out of
    range, and if no target of a source satisfies the `constraints`.
    """
    check_beam(width, n_best, alpha)
    decoder = make_decoder(model, width)
    device, limits = source.device, source_limits(max_len, len(source))
    state = decoder.start(decoder.encode(source, source_mask))
    active = list(range(len(source)))
    prefixes = torch.full((len(source), 1, 1), BOS, device=device)
    totals = torch.zeros(len(source), 1, device=device)
    finished: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    for time in range(max(limits) + 1):
        states, state = decoder.step(prefixes[:, :, -1], state)
        penalty = length_penalty(time + 1, alpha)
        log_probs = constraints.log_probabilities(decoder.logits(states), prefixes, active)
        ends, parents, tokens, new_totals = constraints.extend(log_probs, prefixes, totals, active, width)
        if on_step is not None:
            on_step(Step(log_probs, ends, parents, tokens, new_totals, active, state, time == max(limits)))
        for row, parent, total in ends:
            finished[active[row]].append(_hypothesis(prefixes[row, parent], total, penalty, finished=True))
        for row, index in enumerate(active):
            if time == limits[index]:
                ended = {parent for place, parent, _ in ends if place == row}
                missing = n_best - len(finished[index])
                finished[index] += _unfinished(prefixes[row], totals[row], alpha, missing, ended)
        state, totals = state.choose(parents), new_totals
        extended = prefixes.gather(1, parents.unsqueeze(-1).expand(-1, -1, prefixes.shape[-1]))
        prefixes = torch.cat([extended, tokens.unsqueeze(-1)], dim=-1)
        # Log-probabilities are negative, so the penalty of the longest length gives an upper bound of a prefix's
        # score.
        going = [
            time < limits[index]
            and not _done(finished[index], best / length_penalty(limits[index] + 1, alpha), width, n_best)
            for index, best in zip(active, totals.amax(1).tolist(), strict=True)
        ]
        if not all(going):
            rows = compact_rows(going)
            remaining = torch.tensor(rows, device=device, dtype=torch.int64)
            state, active = state.keep(remaining), [active[row] for row in rows]
            prefixes, totals = prefixes[remaining], totals[remaining]
        if not active:
            break
    if not all(finished):
        raise impossible()
    return [sorted(hypotheses, key=_rank)[:n_best] for hypotheses in finished]


def _unfinished(prefixes: Tensor, totals: Tensor, alpha: float, count: int, ended: set[int]) -> list[Hypothesis]:
    """Return at most `count` of the prefixes (K, T) of a source whose length limit has been reached, without the
    prefixes in `ended`, which have finished."""
    penalty = length_penalty(prefixes.shape[1] - 1, alpha)
    possible = [
        (prefixes[place], total)
        for place, total in enumerate(totals.tolist())
        if total > -torch.inf and place not in ended
    ]
    return [_hypothesis(prefix, total, penalty, finished=False) for prefix, total in possible[: max(count, 0)]]


def _done(finished: list[Hypothesis], reachable: float, width: int, n_best: int) -> bool:
    if len(finished) < n_best:
        return reachable == -torch.inf
    return len(finished) >= width or sorted(finished, key=_rank)[n_best - 1].score >= reachable


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    return not hypothesis.finished, -hypothesis.score


def _hypothesis(prefix: Tensor, total: float, penalty: float, *, finished: bool) -> Hypothesis:
    return Hypothesis(tokens=prefix[1:].tolist(), log_probability=total, score=total / penalty, finished=finished)


def source_limits(max_len: int | Sequence[int], count: int) -> list[int]:
    """Return the maximum number of tokens for each of `count` sources, from a single limit or a limit for each
    source.

    >>> source_limits(9, 2)
    [9, 9]
    """
    return [max_len] * count if isinstance(max_len, int) else list(max_len)


def compact_rows(going: Sequence[bool]) -> list[int]:
    """Return the rows of unfinished sources. Later rows replace the rows of finished sources, so that the
    fewest rows move.

    >>> compact_rows([True, False, True, True])
    [0, 3, 2]
    """
    count = sum(going)
    later = (row for row in range(count, len(going)) if going[row])
    return [row if going[row] else next(later) for row in range(count)]
