"""Greedy search: the most likely token, again and again."""

import torch
from torch import Tensor

from regard.decoding.hypothesis import Hypothesis, log_probabilities
from regard.models import Seq2Seq
from regard.text import BOS, EOS


@torch.inference_mode()
def greedy_search(model: Seq2Seq, source: Tensor, source_mask: Tensor, *, max_len: int) -> list[Hypothesis]:
    """Return one hypothesis for each source (B, Ts), of at most `max_len` tokens.

    `source_mask` (B, Ts): True before the end. Sources that have found their end take no more steps.
    """
    state = model.start(model.encode(source, source_mask))
    tokens = torch.full((len(source), 1), BOS, device=source.device)
    total = torch.zeros(len(source), dtype=torch.float64, device=source.device)
    active = torch.arange(len(source), device=source.device)
    written = torch.full((len(source), max_len + 1), EOS, device=source.device)
    for time in range(max_len + 1):
        logits, state = model.step(tokens, state)
        best, tokens = log_probabilities(logits[:, 0]).max(-1, keepdim=True)
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
    found = []
    for row, (sequence, probability) in enumerate(zip(written.tolist(), total.tolist(), strict=True)):
        kept = sequence[: sequence.index(EOS)]
        found.append(
            Hypothesis(
                tokens=kept,
                log_probability=probability,
                score=probability,
                finished=row not in unfinished,
            )
        )
    return found
