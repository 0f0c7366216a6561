"""One token after the other: the most likely one (greedy search), or one drawn from the model's distribution."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.data import BOS, EOS
from regard.decoding.hypothesis import (
    Hypothesis,
    check_finite,
    log_probabilities,
    mask_special_tokens,
    source_limits,
)
from regard.decoding.incremental import IncrementalDecoder, compact_rows, make_decoder
from regard.errors import InputError
from regard.fast.topk import argmax
from regard.models import Seq2Seq


def greedy_search(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    *,
    max_len: int | Sequence[int],
    scored: bool = True,
) -> list[Hypothesis]:
    """Return one hypothesis for each source (B, Ts), of at most `max_len` tokens.

    `source_mask` (B, Ts): True before the end. `max_len`: one limit, or one for each source. Sources that have
    found their end take no more steps. `scored` False: log-probabilities are not wanted, and NaN.
    """

    def most_likely(logits: Tensor, rows: Sequence[int], time: int) -> tuple[Tensor, Tensor | None]:
        del rows, time
        found = log_probabilities(logits) if scored else mask_special_tokens(logits)
        tokens = argmax(found)
        best = found.gather(1, tokens)
        check_finite(best)  # of a row with NaN, NaN is the largest
        return tokens, best if scored else None

    return _walk(make_decoder(model), source, source_mask, most_likely, max_len)


def sample(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    *,
    max_len: int | Sequence[int],
    temperature: float,
    seeds: Sequence[int],
) -> list[Hypothesis]:
    """Return one hypothesis drawn from the model for each source; the rest is as in `greedy_search`.

    `seeds`: one for each source. Each source has random numbers of its own, so that its answer does not depend on
    the other sources. `temperature`: logits are divided by it; below 1 likely tokens become likelier, above 1 all
    become more alike. `log_probability` is that of the model itself. Raises `InputError` where it is out of
    range.
    """
    if not COLDEST <= temperature <= HOTTEST:
        raise InputError(f"temperature {temperature} is out of range: {COLDEST} to {HOTTEST}")

    # A number for each source and step, drawn on the CPU: the same on every device.
    steps = max(source_limits(max_len, len(source))) + 1
    uniform = torch.stack(
        [torch.rand(steps, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) for seed in seeds]
    )

    def draw(logits: Tensor, rows: Sequence[int], time: int) -> tuple[Tensor, Tensor]:
        found = log_probabilities(logits)
        check_finite(found)
        # The first token up to which the probabilities add up to more than the number: it has one above 0.
        sums = (found.double() / temperature).softmax(-1).cumsum(-1)
        places = uniform[list(rows), time].to(sums.device).unsqueeze(1) * sums[:, -1:]
        tokens = torch.searchsorted(sums, places, right=True).clamp_max(sums.shape[1] - 1)
        return tokens, found.gather(1, tokens)

    return _walk(make_decoder(model), source, source_mask, draw, max_len)


COLDEST, HOTTEST = 1e-3, 1e3
"""Temperatures beyond which the likeliest token is drawn alone, and all are alike."""


@torch.inference_mode()
def _walk(
    steps: IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    choose: Callable[[Tensor, Sequence[int], int], tuple[Tensor, Tensor | None]],
    max_len: int | Sequence[int],
) -> list[Hypothesis]:
    """Go on with the tokens (B, 1) that `choose` finds in logits (B, V), with their log-probabilities where these
    are wanted. `choose` is also given the sources that the rows belong to, and the step."""
    device, limits = source.device, source_limits(max_len, len(source))
    state = steps.start(steps.encode(source, source_mask))
    active = list(range(len(source)))
    tokens = torch.full((len(source), 1), BOS, device=device)
    written: list[list[int]] = [[] for _ in active]
    totals = [0.0 for _ in active]
    finished = [False for _ in active]
    for time in range(max(limits) + 1):
        states, state = steps.step(tokens, state)
        tokens, found = choose(steps.logits(states[:, 0]), active, time)
        going = []
        best = [math.nan] * len(active) if found is None else found[:, 0].tolist()
        for row, token, probability in zip(active, tokens[:, 0].tolist(), best, strict=True):
            finished[row], room = token == EOS, time < limits[row]
            going.append(room and token != EOS)
            if room or token == EOS:  # else there is no room for another token, only for an end
                totals[row] += probability
                written[row].append(token)
        if not all(going):
            rows = compact_rows(going)
            active = [active[row] for row in rows]
            kept = torch.tensor(rows, device=device, dtype=torch.int64)
            state, tokens = state.keep(kept), tokens[kept]
        if not active:
            break
    return [
        Hypothesis(
            tokens=sequence[:-1] if ended else sequence, log_probability=total, score=total, finished=ended
        )
        for sequence, total, ended in zip(written, totals, finished, strict=True)
    ]
