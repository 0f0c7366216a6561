"""Beam search: the best `width` prefixes of each source, side by side.

At each step every prefix is extended by every token, and the best extensions go on; those that end are finished
and compete by their score, `log-probability / length_penalty`. A source is done when `width` of its hypotheses
are finished, or when no prefix can overtake the finished ones any more.

Letters: B sources, K prefixes of each, V target vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.data import BOS, EOS
from regard.decoding.hypothesis import Hypothesis, check_finite, log_probabilities, source_limits
from regard.decoding.incremental import IncrementalDecoder, compact_rows, make_decoder
from regard.errors import InputError, check_range
from regard.fast.topk import topk
from regard.models import Seq2Seq

LARGEST_PENALTY = 10
"""Beyond it only length counts, and powers of it soon have no number."""


def length_penalty(length: int, alpha: float) -> float:
    """Return `((5 + length) / 6) ** alpha` (Wu et al. 2016, equation 14); `length` counts the end of sequence."""
    return float(((5 + length) / 6) ** alpha)


def check_beam(width: int, n_best: int, alpha: float) -> None:
    """Raise `InputError` where the numbers of a beam search do not fit; they are those of `beam_search`."""
    check_range("beam", width, 1, 10_000)
    check_range("n_best", n_best, 1, width)
    if not 0 <= alpha <= LARGEST_PENALTY:
        raise InputError(f"length_penalty {alpha} is out of range: 0 to {LARGEST_PENALTY}")


class Step(NamedTuple):
    """What a search decides in one step, of all sources that are not done."""

    found: Tensor
    """Log-probabilities of each token after each prefix, (B, K, V)."""
    ends: list[tuple[int, int, float]]
    """Source, prefix and log-probability of each hypothesis that ends."""
    parents: Tensor
    """The prefix that each new one extends, (B, K')."""
    tokens: Tensor
    """What it is extended by, (B, K')."""
    totals: Tensor
    """Log-probability of each new prefix, (B, K')."""
    last: bool
    """Whether the longest length is reached, and the new prefixes are given up."""


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
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses for each source (B, Ts), best first, of at most `max_len` tokens.

    `source_mask` (B, Ts): True before the end. `max_len`: one limit, or one for each source. `width`: prefixes
    kept for each source. `alpha`: exponent of the length penalty; 0 compares log-probabilities as they are, above
    it longer hypotheses are preferred. Where fewer than `n_best` finish in time, unfinished ones follow. `on_step`
    hears of every step. Raises `InputError` where numbers do not fit.
    """
    check_beam(width, n_best, alpha)
    device, limits = source.device, source_limits(max_len, len(source))
    steps = make_decoder(model, width)
    state = steps.start(steps.encode(source, source_mask))
    active = list(range(len(source)))
    prefixes = torch.full((len(source), 1, 1), BOS, device=device)
    totals = torch.zeros(len(source), 1, device=device)
    finished: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    for time in range(max(limits) + 1):
        states, state = steps.step(prefixes[:, :, -1], state)
        penalty = length_penalty(time + 1, alpha)
        found = log_probabilities(steps.logits(states))
        ends, parents, tokens, going_on = _best(found, totals, width)
        if on_step is not None:
            on_step(Step(found, ends, parents, tokens, going_on, last=time == max(limits)))
        for row, parent, total in ends:
            finished[active[row]].append(_hypothesis(prefixes[row, parent], total, penalty, finished=True))
        for row, index in enumerate(active):
            if time == limits[index]:
                finished[index] += _unfinished(prefixes[row], totals[row], alpha, n_best - len(finished[index]))
        state, totals = state.choose(parents), going_on
        chosen = prefixes.gather(1, parents.unsqueeze(-1).expand(-1, -1, prefixes.shape[-1]))
        prefixes = torch.cat([chosen, tokens.unsqueeze(-1)], dim=-1)
        # The penalty grows with length, and so does a negative score: the longest bounds what a prefix can reach.
        going = [
            time < limits[index]
            and not _done(finished[index], best / length_penalty(limits[index] + 1, alpha), width, n_best)
            for index, best in zip(active, totals[:, 0].tolist(), strict=True)
        ]
        if not all(going):
            rows = compact_rows(going)
            kept = torch.tensor(rows, device=device, dtype=torch.int64)
            state, active = state.keep(kept), [active[row] for row in rows]
            prefixes, totals = prefixes[kept], totals[kept]
        if not active:
            break
    return [sorted(each, key=_rank)[:n_best] for each in finished]


def _unfinished(prefixes: Tensor, totals: Tensor, alpha: float, count: int) -> list[Hypothesis]:
    """Return `count` of the prefixes (K, T) of a source that has reached its limit, or as many as there are."""
    penalty = length_penalty(prefixes.shape[1] - 1, alpha)
    there = [each for each in zip(prefixes, totals.tolist(), strict=False) if each[1] > -torch.inf]
    return [_hypothesis(prefix, total, penalty, finished=False) for prefix, total in there[: max(count, 0)]]


def _best(
    found: Tensor, totals: Tensor, width: int
) -> tuple[list[tuple[int, int, float]], Tensor, Tensor, Tensor]:
    """Split prefixes of log-probability `totals` (B, K), extended by every token with that of `found` (B, K, V),
    into those that end and those that go on.

    Returns, of the best `width` extensions, those that end as (row, parent, log-probability); and the best
    `width` that do not: parents, tokens and log-probabilities, (B, K') each, best first.
    """
    prefixes, symbols = found.shape[1:]
    # At most one extension of each prefix ends, so twice the width holds `width` that go on.
    totals, places = topk(found, totals, min(2 * width, prefixes * symbols))
    check_finite(totals)  # of log-probabilities with NaN, NaN is the largest
    parents, tokens = places // symbols, places % symbols
    ending = tokens == EOS
    rows, ranks = (ending & (totals > -torch.inf))[:, :width].nonzero(as_tuple=True)
    ends = zip(rows.tolist(), parents[rows, ranks].tolist(), totals[rows, ranks].tolist(), strict=True)
    # Those that end come last, and are cut off with what exceeds the width.
    order = ending.int().argsort(dim=1, stable=True)[:, : min(width, prefixes * (symbols - 1))]
    return list(ends), parents.gather(1, order), tokens.gather(1, order), totals.gather(1, order)


def _done(finished: list[Hypothesis], reachable: float, width: int, n_best: int) -> bool:
    """Whether nothing that a prefix can reach changes the `n_best`, or `width` have finished."""
    if len(finished) < n_best:
        return reachable == -torch.inf
    return len(finished) >= width or sorted(finished, key=_rank)[n_best - 1].score >= reachable


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    """Order finished before unfinished, then by score."""
    return not hypothesis.finished, -hypothesis.score


def _hypothesis(prefix: Tensor, total: float, penalty: float, *, finished: bool) -> Hypothesis:
    return Hypothesis(tokens=prefix[1:].tolist(), log_probability=total, score=total / penalty, finished=finished)
