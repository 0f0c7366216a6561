"""Greedy search and sampling: one token at a time, the most likely one or a random one."""

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

COLDEST, HOTTEST = 1e-3, 1e3
"""Temperatures beyond which only the likeliest token is drawn, or all tokens are equally likely."""


def greedy_search(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    *,
    max_len: int | Sequence[int],
    scored: bool = True,
) -> list[Hypothesis]:
    """Return one hypothesis for each source (B, Ts), of at most `max_len` tokens.

    `source_mask` (B, Ts): True before the end. `max_len`: one limit, or one for each source. Finished sources
    take no more steps. `scored`: False skips log-probabilities, which are NaN then.

    >>> from regard.models import RecurrentConfig, RecurrentSeq2Seq
    >>> model = RecurrentSeq2Seq(RecurrentConfig(hidden=8), source_symbols=9, target_symbols=11).eval()
    >>> source = torch.full((1, 5), 4)
    >>> [hypothesis] = greedy_search(model, source, source > 0, max_len=3)
    >>> len(hypothesis.tokens) <= 3
    True
    """

    def most_likely(logits: Tensor, rows: Sequence[int], time: int) -> tuple[Tensor, Tensor | None]:
        del rows, time
        values = log_probabilities(logits) if scored else mask_special_tokens(logits)
        tokens = argmax(values)
        best = values.gather(1, tokens)
        check_finite(best)  # NaN counts as the largest value
        return tokens, best if scored else None

    return _decode(make_decoder(model), source, source_mask, most_likely, max_len)


def sample(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    *,
    max_len: int | Sequence[int],
    temperature: float,
    seeds: Sequence[int],
) -> list[Hypothesis]:
    """Return one hypothesis for each source, sampled from the model; other arguments as in `greedy_search`.

    `seeds`: one for each source, so that its result does not depend on the other sources. `temperature`: divisor
    of the logits; below 1 likely tokens become likelier. `log_probability` is that of the model without
    temperature. Raises `InputError` for a temperature out of range.

    >>> from regard.models import RecurrentConfig, RecurrentSeq2Seq
    >>> model = RecurrentSeq2Seq(RecurrentConfig(hidden=8), source_symbols=9, target_symbols=11).eval()
    >>> source = torch.full((1, 5), 4)
    >>> drawn = [sample(model, source, source > 0, max_len=3, temperature=1.0, seeds=[7]) for _ in range(2)]
    >>> drawn[0][0].tokens == drawn[1][0].tokens
    True
    """
    if not COLDEST <= temperature <= HOTTEST:
        raise InputError(f"temperature {temperature} is out of range: {COLDEST} to {HOTTEST}")

    # One number for each source and step, drawn on the CPU: the same on every device.
    steps = max(source_limits(max_len, len(source))) + 1
    uniform = torch.stack(
        [torch.rand(steps, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) for seed in seeds]
    )

    def draw(logits: Tensor, rows: Sequence[int], time: int) -> tuple[Tensor, Tensor]:
        log_probs = log_probabilities(logits)
        check_finite(log_probs)
        # The first token whose cumulative probability exceeds the number has a probability above 0.
        sums = (log_probs.double() / temperature).softmax(-1).cumsum(-1)
        thresholds = uniform[list(rows), time].to(sums.device).unsqueeze(1) * sums[:, -1:]
        tokens = torch.searchsorted(sums, thresholds, right=True).clamp_max(sums.shape[1] - 1)
        return tokens, log_probs.gather(1, tokens)

    return _decode(make_decoder(model), source, source_mask, draw, max_len)


@torch.inference_mode()
def _decode(
    decoder: IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    choose: Callable[[Tensor, Sequence[int], int], tuple[Tensor, Tensor | None]],
    max_len: int | Sequence[int],
) -> list[Hypothesis]:
    """Decode with `choose`, which maps logits (B, V), the rows' sources and the step to tokens (B, 1).

    `choose` also returns the tokens' log-probabilities, or None.
    """
    device, limits = source.device, source_limits(max_len, len(source))
    state = decoder.start(decoder.encode(source, source_mask))
    active = list(range(len(source)))
    tokens = torch.full((len(source), 1), BOS, device=device)
    sequences: list[list[int]] = [[] for _ in active]
    totals = [0.0 for _ in active]
    finished = [False for _ in active]
    for time in range(max(limits) + 1):
        states, state = decoder.step(tokens, state)
        tokens, log_probs = choose(decoder.logits(states[:, 0]), active, time)
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
