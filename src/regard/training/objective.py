"""What training minimises: the cross-entropy of a batch, and which of its samples were right."""

import math
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data import PAD, PairBatch
from regard.errors import InputError
from regard.fast.query_gradient import QueryGradient
from regard.models import AnswerModel, Seq2Seq, TaskModel
from regard.tasks import Batch
from regard.training.guided import guiding
from regard.training.loss import cross_entropy
from regard.training.settings import TrainingConfig

Model = TypeVar("Model", AnswerModel, Seq2Seq)
AnyBatch = TypeVar("AnyBatch", Batch, PairBatch)


class Objective(nn.Module, Generic[Model, AnyBatch]):
    """A model with the loss it is trained on.

    `generator` draws which target steps are forced, where not all are.
    """

    model: Model
    fast_gradient: QueryGradient | None = None
    """Computes loss and gradients without autograd."""

    def __init__(self, model: Model, settings: TrainingConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.model, self.settings, self.generator = model, settings, generator

    def forward(self, batch: AnyBatch, step: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch at training step `step`, and whether each sample is right: (B,) bool.

        The loss is the mean over the outputs; of pairs, over `tokens` target tokens, which are those of a larger
        batch where this one is part of it.
        """
        raise NotImplementedError


class AnswerObjective(Objective[AnswerModel, Batch]):
    """The cross-entropy of every output step's class.

    With a fast gradient (`fast.query_gradient`), and while attention is not recorded, the loss has no autograd
    history: the parameters have their gradients already.
    """

    def __init__(self, model: AnswerModel, settings: TrainingConfig, generator: torch.Generator) -> None:
        super().__init__(model, settings, generator)
        self.fast_gradient = model.fast_gradient()

    def forward(self, batch: Batch, step: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch, and which samples are right; step and tokens do not matter."""
        del step, tokens
        fast = self.fast_gradient
        if fast is None or batch.mask is not None or fast.hooked or not torch.is_grad_enabled():
            logits = self.model(batch.inputs, batch.mask)
            return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()), exact(logits, batch.targets)
        loss, logits, grads = fast(batch.inputs, batch.targets)
        for parameter, grad in grads.items():
            parameter.grad = grad
        return loss, exact(logits, batch.targets)


class SequenceObjective(Objective[Seq2Seq, PairBatch]):
    """The cross-entropy of every target token, given the source and the tokens before it."""

    def forward(self, batch: PairBatch, step: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch over `tokens`, and which samples are right."""
        model, settings = self.model, self.settings
        forced = teacher_forcing(settings, batch.target, self.generator, step)
        passes = 2 if settings.r_drop else 1
        source, mask, target_in = (
            each.repeat(passes, 1) for each in (batch.source, batch.source_mask, batch.target_in)
        )
        alignment = None if batch.alignment is None else batch.alignment.repeat(passes, 1, 1)
        with guiding(model, alignment) as astray:
            read = model.read(target_in, model.encode(source, mask), forced)
        states = read.view(passes, -1, *read.shape[1:])
        there = batch.target != PAD
        loss, right = cross_entropy(
            states[:, there],
            model.vocabulary_layer,
            batch.target[there],
            settings.label_smoothing,
            settings.r_drop,
        )
        for each in astray:
            loss = loss + settings.guide_weight * each
        return loss / (passes * tokens), torch.ones_like(there).masked_scatter(there, right).all(-1)


OBJECTIVES: dict[str, type[Objective[Any, Any]]] = {"numbers": AnswerObjective, "text": SequenceObjective}
"""By what a model answers with."""


def objective_of(model: TaskModel, settings: TrainingConfig, generator: torch.Generator) -> Objective[Any, Any]:
    """Return a model with its loss."""
    return OBJECTIVES[model.answers](model, settings, generator)


def teacher_forcing(
    settings: TrainingConfig, target: Tensor, generator: torch.Generator, step: int
) -> Tensor | None:
    """Say which steps (B, Tt) are fed the true token at training step `step`; None for all of them."""
    if settings.teacher_forcing == 1.0:
        return None
    share = 1.0 - (1.0 - settings.teacher_forcing) * step / max(settings.steps - 1, 1)
    return torch.rand(target.shape, generator=generator) < share


def exact(logits: Tensor, targets: Tensor) -> Tensor:
    """Say for each sample whether all its outputs are right: (..., B) bool, of logits (..., B, To, classes)."""
    return (logits.argmax(-1) == targets).all(-1)


def check_finite(loss: float, step: int, lr: float) -> None:
    """Raise `InputError` where the loss of a step is no number."""
    if not math.isfinite(loss):
        raise InputError(
            f"loss is {loss} at step {step}, at a learning rate of {lr:g}: lower --lr; "
            f"the run keeps its last checkpoint"
        )
