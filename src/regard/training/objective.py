"""What training minimises: the cross-entropy of a batch, and which of its samples were right."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models import RecurrentSeq2Seq, Seq2Seq
from regard.tasks import Batch
from regard.text import PAD, Pairs
from regard.training.config import RecurrentTraining, TrainingConfig


def objective(
    model: nn.Module, batch: Batch | Pairs, settings: TrainingConfig, generator: torch.Generator, step: int
) -> tuple[Tensor, Tensor]:
    """Return the mean loss of a batch at training step `step`, and whether each sample is right: (B,) bool.

    `generator` draws which target steps are forced, where not all are.
    """
    if isinstance(batch, Pairs):
        assert isinstance(model, Seq2Seq)
        memory = model.encode(batch.source, batch.source_mask)
        if isinstance(model, RecurrentSeq2Seq) and isinstance(settings, RecurrentTraining):
            forced = teacher_forcing(settings, batch.target, generator, step)
            logits = model.decode(batch.target_in, memory, forced)
        else:
            logits = model.decode(batch.target_in, memory)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), ignore_index=PAD)
        return loss, exact(logits, batch.target, padding=PAD)
    logits = model(batch.inputs, batch.mask)
    return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()), exact(logits, batch.targets)


def teacher_forcing(
    settings: RecurrentTraining, target: Tensor, generator: torch.Generator, step: int
) -> Tensor | None:
    """Say which steps (B, Tt) are fed the true token at training step `step`; None for all of them."""
    if settings.teacher_forcing == 1.0:
        return None
    share = 1.0 - (1.0 - settings.teacher_forcing) * step / max(settings.steps - 1, 1)
    return torch.rand(target.shape, generator=generator) < share


def exact(logits: Tensor, targets: Tensor, padding: int | None = None) -> Tensor:
    """Say for each sample whether all its outputs are right: (B,) bool, of logits (B, To, classes).

    Steps whose target is `padding` do not count. Under teacher forcing this is also whether greedy search finds
    the target: up to the first wrong token, it is fed what teacher forcing feeds.
    """
    right = logits.argmax(-1) == targets
    return (right if padding is None else right | (targets == padding)).all(-1)
