"""One token after the other: the most likely one (greedy search), or one drawn from the model's distribution."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.decoding.hypothesis import Hypothesis, check_numbers, log_probabilities
from regard.decoding.largest import largest
from regard.decoding.stepper import Stepper, stepper_of
from regard.errors import InputError
from regard.models import Seq2Seq
from regard.text import BOS, EOS


def greedy_search(
    model: Seq2Seq | Stepper, source: Tensor, source_mask: Tensor, *, max_len: int
) -> list[Hypothesis]:
    """Return one hypothesis for each source (B, Ts), of at most `max_len` tokens.

    `source_mask` (B, Ts): True before the end. Sources that have found their end take no more steps.
    """

    def most_likely(found: Tensor) -> Tensor:
        return largest(found.unsqueeze(1), torch.zeros_like(found[:, :1]), 1)[1]

    return _walk(model, source, source_mask, most_likely, max_len)


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

    def draw(found: Tensor) -> Tensor:
        check_numbers(found)
        return (found / temperature).softmax(-1).multinomial(1, generator=generator)

    return _walk(model, source, source_mask, draw, max_len)


COLDEST, HOTTEST = 1e-3, 1e3
"""Temperatures beyond which the likeliest token is drawn alone, and all are alike."""


@torch.inference_mode()
def _walk(
    model: Seq2Seq | Stepper,
    source: Tensor,
    source_mask: Tensor,
    choose: Callable[[Tensor], Tensor],
    max_len: int,
) -> list[Hypothesis]:
    """Go on with the tokens (B, 1) that `choose` finds in log-probabilities (B, V)."""
    steps = stepper_of(model)
    state = steps.start(steps.encode(source, source_mask))
    tokens = torch.full((len(source), 1), BOS, device=source.device)
    total = torch.zeros(len(source), dtype=torch.float64, device=source.device)
    active = torch.arange(len(source), device=source.device)
    written = torch.full((len(source), max_len + 1), EOS, device=source.device)
    for time in range(max_len + 1):
        states, state = steps.step(tokens, state)
        found = log_probabilities(steps.logits(states[:, 0]))
        tokens = choose(found)
        best = found.gather(1, tokens)
        going = tokens[:, 0] != EOS
        if time == max_len:  # no room for another token, only for an end
            total[active] += torch.where(going, 0.0, best[:, 0]).double()
        else:
            total[active] += best[:, 0].double()
            written[active, time] = tokens[:, 0]
        if not going.all():
            rows = going.nonzero()[:, 0]
            state, tokens, active = state.keep(rows), tokens[rows], active[rows]
        if not len(active):
            break
    unfinished = set(active.tolist())
    hypotheses = []
    for row, (sequence, probability) in enumerate(zip(written.tolist(), total.tolist(), strict=True)):
        kept = sequence[: sequence.index(EOS)]
        hypotheses.append(
            Hypothesis(
                tokens=kept,
                log_probability=probability,
                score=probability,
                finished=row not in unfinished,
            )
        )
    return hypotheses
