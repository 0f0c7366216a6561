"""One token after the other: the most likely one (greedy search), or one drawn from the model's distribution."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard.decoding.hypothesis import Hypothesis, check_numbers, log_probabilities, without_never
from regard.decoding.largest import largest_one
from regard.decoding.stepper import Stepper, staying, stepper_of
from regard.errors import InputError
from regard.models import Seq2Seq
from regard.text import BOS, EOS


def greedy_search(
    model: Seq2Seq | Stepper, source: Tensor, source_mask: Tensor, *, max_len: int, scored: bool = True
) -> list[Hypothesis]:
    """Return one hypothesis for each source (B, Ts), of at most `max_len` tokens.

    `source_mask` (B, Ts): True before the end. Sources that have found their end take no more steps. `scored`
    False: log-probabilities are not wanted, and NaN.
    """

    def most_likely(logits: Tensor) -> tuple[Tensor, Tensor | None]:
        found = log_probabilities(logits) if scored else without_never(logits)
        tokens = largest_one(found)
        return tokens, found.gather(1, tokens) if scored else None

    return _walk(stepper_of(model), source, source_mask, most_likely, staying, max_len)


def sample(
    model: Seq2Seq | Stepper,
    source: Tensor,
    source_mask: Tensor,
    *,
    max_len: int,
    temperature: float,
    generator: torch.Generator,
) -> list[Hypothesis]:
    """Return one hypothesis drawn from the model for each source; the rest is as in `greedy_search`.

    `temperature`: logits are divided by it; below 1 likely tokens become likelier, above 1 all become more
    alike. `log_probability` is that of the model itself. Raises `InputError` where it is out of range.
    """
    if not COLDEST <= temperature <= HOTTEST:
        raise InputError(f"temperature {temperature} is out of range: {COLDEST} to {HOTTEST}")

    def draw(logits: Tensor) -> tuple[Tensor, Tensor]:
        found = log_probabilities(logits)
        check_numbers(found)
        tokens = (found / temperature).softmax(-1).multinomial(1, generator=generator)
        return tokens, found.gather(1, tokens)

    def in_order(going: list[bool]) -> list[int]:  # that of what is drawn
        return [row for row, each in enumerate(going) if each]

    return _walk(stepper_of(model), source, source_mask, draw, in_order, max_len)


COLDEST, HOTTEST = 1e-3, 1e3
"""Temperatures beyond which the likeliest token is drawn alone, and all are alike."""


@torch.inference_mode()
def _walk(
    steps: Stepper,
    source: Tensor,
    source_mask: Tensor,
    choose: Callable[[Tensor], tuple[Tensor, Tensor | None]],
    stay: Callable[[list[bool]], list[int]],
    max_len: int,
) -> list[Hypothesis]:
    """Go on with the tokens (B, 1) that `choose` finds in logits (B, V), with their log-probabilities where these
    are wanted; `stay` says in which order rows go on."""
    device = source.device
    state = steps.start(steps.encode(source, source_mask))
    active = list(range(len(source)))
    tokens = torch.full((len(source), 1), BOS, device=device)
    written: list[list[int]] = [[] for _ in active]
    totals = [0.0 for _ in active]
    for time in range(max_len + 1):
        states, state = steps.step(tokens, state)
        tokens, found = choose(steps.logits(states[:, 0]))
        going = []
        best = [math.nan] * len(active) if found is None else found[:, 0].tolist()
        for row, token, probability in zip(active, tokens[:, 0].tolist(), best, strict=True):
            going.append(token != EOS)
            if token == EOS or time < max_len:  # else there is no room for another token, only for an end
                totals[row] += probability
                written[row].append(token)
        if not all(going):
            rows = stay(going)
            active = [active[row] for row in rows]
            kept = torch.tensor(rows, device=device, dtype=torch.int64)
            state, tokens = state.keep(kept), tokens[kept]
        if not active:
            break
    unfinished = set(active)
    return [
        Hypothesis(
            tokens=sequence if row in unfinished else sequence[:-1],
            log_probability=total,
            score=total,
            finished=row not in unfinished,
        )
        for row, (sequence, total) in enumerate(zip(written, totals, strict=True))
    ]
