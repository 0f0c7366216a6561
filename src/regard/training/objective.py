"""What training minimises: the cross-entropy of a batch, and which of its samples were right."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models import Seq2Seq
from regard.tasks import Batch
from regard.text import PAD, Pairs
from regard.training.loss import cross_entropy
from regard.training.settings import RecurrentTraining, TrainingConfig, TranslationTraining


class Objective(nn.Module):
    """A model with the loss it is trained on.

    `generator` draws which target steps are forced, where not all are.
    """

    def __init__(self, model: nn.Module, settings: TrainingConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.model, self.settings, self.generator = model, settings, generator

    def forward(self, batch: Batch | Pairs, step: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch at training step `step`, and whether each sample is right: (B,) bool.

        The loss is the mean over the outputs; of pairs, over `tokens` target tokens, which are those of a larger
        batch where this one is part of it.
        """
        if isinstance(batch, Pairs):
            return self._of_pairs(batch, step, tokens)
        logits = self.model(batch.inputs, batch.mask)
        return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()), exact(logits, batch.targets)

    def _of_pairs(self, batch: Pairs, step: int, tokens: int) -> tuple[Tensor, Tensor]:
        model, settings = self.model, self.settings
        assert isinstance(model, Seq2Seq)
        forced = None
        if isinstance(settings, RecurrentTraining):
            forced = teacher_forcing(settings, batch.target, self.generator, step)
        smoothing, agreement = 0.0, 0.0
        if isinstance(settings, TranslationTraining):
            smoothing, agreement = settings.label_smoothing, settings.r_drop
        passes = 2 if agreement else 1
        source, mask, target_in = (
            each.repeat(passes, 1) for each in (batch.source, batch.source_mask, batch.target_in)
        )
        states = model.read(target_in, model.encode(source, mask), forced).unflatten(0, (passes, -1))
        there = batch.target != PAD
        loss, right = cross_entropy(
            states[:, there], model.vocabulary_layer, batch.target[there], smoothing, agreement
        )
        return loss / (passes * tokens), torch.ones_like(there).masked_scatter(there, right).all(-1)


def teacher_forcing(
    settings: RecurrentTraining, target: Tensor, generator: torch.Generator, step: int
) -> Tensor | None:
    """Say which steps (B, Tt) are fed the true token at training step `step`; None for all of them."""
    if settings.teacher_forcing == 1.0:
        return None
    share = 1.0 - (1.0 - settings.teacher_forcing) * step / max(settings.steps - 1, 1)
    return torch.rand(target.shape, generator=generator) < share


def exact(logits: Tensor, targets: Tensor) -> Tensor:
    """Say for each sample whether all its outputs are right: (B,) bool, of logits (B, To, classes)."""
    return (logits.argmax(-1) == targets).all(-1)
