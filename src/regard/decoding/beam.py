"""Beam search: the best `width` prefixes of each source at each step.

Each step extends every prefix by every token, and keeps the best extensions. Those that end are finished and
compete by their score, `log-probability / length_penalty`. A source is done when `width` of its hypotheses are
finished, or when no prefix can overtake the finished ones.

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
"""Beyond it only length counts, and its powers soon overflow."""


def length_penalty(length: int, alpha: float) -> float:
    """Return `((5 + length) / 6) ** alpha` (Wu et al. 2016, equation 14); `length` includes the end of sequence.

    >>> length_penalty(7, 1.0)
    2.0
    """
    return float(((5 + length) / 6) ** alpha)


def check_beam(width: int, n_best: int, alpha: float) -> None:
    """Raise `InputError` for arguments of `beam_search` out of range.

    >>> check_beam(width=5, n_best=1, alpha=0.0)
    """
    check_range("beam", width, 1, 10_000)
    check_range("n_best", n_best, 1, width)
    if not 0 <= alpha <= LARGEST_PENALTY:
        raise InputError(f"length_penalty {alpha} is out of range: 0 to {LARGEST_PENALTY}")


class Step(NamedTuple):
    """One step of a search, for all sources that are not done."""

    log_probs: Tensor
    """Log-probabilities of each token after each prefix, (B, K, V)."""
    ends: list[tuple[int, int, float]]
    """Source, prefix and log-probability of each finished hypothesis."""
    parents: Tensor
    """The prefix that each new one extends, (B, K')."""
    tokens: Tensor
    """The added tokens, (B, K')."""
    totals: Tensor
    """Log-probability of each new prefix, (B, K')."""
    last: bool
    """Whether the length limit is reached, and the new prefixes are dropped."""


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
    kept for each source. `alpha`: exponent of the length penalty; 0 compares log-probabilities, larger values
    prefer longer hypotheses. If fewer than `n_best` finish in time, unfinished ones follow. `on_step` is called
    with every step. Raises `InputError` for numbers out of range.

    >>> from regard.models import RecurrentConfig, RecurrentSeq2Seq
    >>> model = RecurrentSeq2Seq(RecurrentConfig(hidden=8), source_symbols=9, target_symbols=11).eval()
    >>> source = torch.full((1, 5), 4)
    >>> [[best, second]] = beam_search(model, source, source > 0, width=4, max_len=3, n_best=2)
    >>> best.score >= second.score
    True
    """
    check_beam(width, n_best, alpha)
    device, limits = source.device, source_limits(max_len, len(source))
    decoder = make_decoder(model, width)
    state = decoder.start(decoder.encode(source, source_mask))
    active = list(range(len(source)))
    prefixes = torch.full((len(source), 1, 1), BOS, device=device)
    totals = torch.zeros(len(source), 1, device=device)
    finished: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    for time in range(max(limits) + 1):
        states, state = decoder.step(prefixes[:, :, -1], state)
        penalty = length_penalty(time + 1, alpha)
        log_probs = log_probabilities(decoder.logits(states))
        ends, parents, tokens, new_totals = _best_extensions(log_probs, totals, width)
        if on_step is not None:
            on_step(Step(log_probs, ends, parents, tokens, new_totals, last=time == max(limits)))
        for row, parent, total in ends:
            finished[active[row]].append(_hypothesis(prefixes[row, parent], total, penalty, finished=True))
        for row, index in enumerate(active):
            if time == limits[index]:
                finished[index] += _unfinished(prefixes[row], totals[row], alpha, n_best - len(finished[index]))
        state, totals = state.choose(parents), new_totals
        extended = prefixes.gather(1, parents.unsqueeze(-1).expand(-1, -1, prefixes.shape[-1]))
        prefixes = torch.cat([extended, tokens.unsqueeze(-1)], dim=-1)
        # Scores are negative, so dividing by the penalty of the longest length bounds what a prefix can reach.
        going = [
            time < limits[index]
            and not _done(finished[index], best / length_penalty(limits[index] + 1, alpha), width, n_best)
            for index, best in zip(active, totals[:, 0].tolist(), strict=True)
        ]
        if not all(going):
            rows = compact_rows(going)
            remaining = torch.tensor(rows, device=device, dtype=torch.int64)
            state, active = state.keep(remaining), [active[row] for row in rows]
            prefixes, totals = prefixes[remaining], totals[remaining]
        if not active:
            break
    return [sorted(hypotheses, key=_rank)[:n_best] for hypotheses in finished]


def _unfinished(prefixes: Tensor, totals: Tensor, alpha: float, count: int) -> list[Hypothesis]:
    """Return up to `count` of the prefixes (K, T) of a source that has reached its limit."""
    penalty = length_penalty(prefixes.shape[1] - 1, alpha)
    possible = [pair for pair in zip(prefixes, totals.tolist(), strict=False) if pair[1] > -torch.inf]
    return [_hypothesis(prefix, total, penalty, finished=False) for prefix, total in possible[: max(count, 0)]]


def _best_extensions(
    log_probs: Tensor, totals: Tensor, width: int
) -> tuple[list[tuple[int, int, float]], Tensor, Tensor, Tensor]:
    """Extend prefixes with `totals` (B, K) by every token with `log_probs` (B, K, V), and keep the best.

    Returns those of the best `width` extensions that end, as (row, parent, log-probability); and the best `width`
    that go on: parents, tokens and log-probabilities, (B, K') each, best first.
    """
    prefixes, symbols = log_probs.shape[1:]
    # At most one extension of each prefix ends, so twice the width contains `width` that go on.
    totals, indices = topk(log_probs, totals, min(2 * width, prefixes * symbols))
    check_finite(totals)  # NaN counts as the largest value
    parents, tokens = indices // symbols, indices % symbols
    ending = tokens == EOS
    rows, ranks = (ending & (totals > -torch.inf))[:, :width].nonzero(as_tuple=True)
    ends = zip(rows.tolist(), parents[rows, ranks].tolist(), totals[rows, ranks].tolist(), strict=True)
    # A stable sort puts those that end last, where the width cuts them off.
    order = ending.int().argsort(dim=1, stable=True)[:, : min(width, prefixes * (symbols - 1))]
    return list(ends), parents.gather(1, order), tokens.gather(1, order), totals.gather(1, order)


def _done(finished: list[Hypothesis], reachable: float, width: int, n_best: int) -> bool:
    """Return whether `width` hypotheses have finished, or no prefix can reach the `n_best`."""
    if len(finished) < n_best:
        return reachable == -torch.inf
    return len(finished) >= width or sorted(finished, key=_rank)[n_best - 1].score >= reachable


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    """Return a sort key: finished before unfinished, then by score."""
    return not hypothesis.finished, -hypothesis.score


def _hypothesis(prefix: Tensor, total: float, penalty: float, *, finished: bool) -> Hypothesis:
    return Hypothesis(tokens=prefix[1:].tolist(), log_probability=total, score=total / penalty, finished=finished)
