"""Training objective: a model with its loss.

The loss is the cross-entropy of each output. Options add label smoothing, R-Drop and the alignment loss. The
alignment loss trains one attention head to attend to the aligned source words (Garg et al. 2019, section 4.2):

    loss = cross-entropy - weight * sum over target tokens t, source tokens s of  aims[t, s] log weights[t, s]

As in the paper, the guided head is the first head of the penultimate layer with attention to the source.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.hooks import attach_hooks, find_layer, with_change
from regard.data.batch import PairBatch
from regard.data.vocabulary import PAD
from regard.errors import InputError
from regard.fast.query_gradient import QueryGradient
from regard.models.base import AnswerModel, TaskModel
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2Seq
from regard.tasks.batch import Batch, TokenBatch
from regard.training.cross_entropy import cross_entropy
from regard.training.settings import TrainingConfig

Model = TypeVar("Model", AnswerModel, Seq2Seq, LanguageModel)
AnyBatch = TypeVar("AnyBatch", Batch, PairBatch, TokenBatch)

CLOSE = 0.1
"""Largest error of a real output that counts as correct."""
HEAD = 0
"""Index of the guided head in its layer."""
SMALLEST_WEIGHT = 1e-9
"""Lower bound of a weight, so that its logarithm is finite."""


class Objective(nn.Module, Generic[Model, AnyBatch]):
    """A model with its loss. `generator` samples the target steps whose input is the true token (teacher
    forcing)."""

    model: Model
    fast_gradient: QueryGradient | None = None
    """Function that computes loss and gradients without autograd, or None."""

    def __init__(self, model: Model, settings: TrainingConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.model, self.settings, self.generator = model, settings, generator

    def forward(self, batch: AnyBatch, step: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch at training step `step`, and whether each sample is correct: (B,) bool.

        The loss is the mean over the outputs. For pairs and for token sequences, the loss is the sum over the
        target tokens of the batch, divided by `tokens`, the number of target tokens in the whole training step.
        """
        raise NotImplementedError


class AnswerObjective(Objective[AnswerModel, Batch]):
    """Cross-entropy of the class of every output step.

    If the model has a fast path (`fast.query_gradient`) and no hook is set, the loss has no autograd graph,
    because the forward pass also sets the gradients.
    """

    def __init__(self, model: AnswerModel, settings: TrainingConfig, generator: torch.Generator) -> None:
        super().__init__(model, settings, generator)
        self.fast_gradient = model.fast_gradient()

    def forward(self, batch: Batch, step: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch, and whether each sample is correct. `step` and `tokens` are not used."""
        del step, tokens
        gradient = self.fast_gradient
        if gradient is None or batch.mask is not None or gradient.hooked or not torch.is_grad_enabled():
            logits = self.model(batch.inputs, batch.mask)
            return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()), exact(logits, batch.targets)
        loss, logits, grads = gradient(batch.inputs, batch.targets)
        for parameter, grad in grads.items():
            parameter.grad = grad
        return loss, exact(logits, batch.targets)


class SequenceObjective(Objective[Seq2Seq, PairBatch]):
    """Cross-entropy of every target token, given the source and the preceding target tokens."""

    def forward(self, batch: PairBatch, step: int, tokens: int) -> tuple[Tensor, Tensor]:
        model, settings = self.model, self.settings
        forced = teacher_forcing(settings, batch.target, self.generator, step)
        passes = 2 if settings.r_drop else 1
        is_token = batch.target != PAD
        # On a GPU, the gradient of a selection by a mask sorts its indices; that of `index_select` does not.
        # `nonzero` waits for the GPU, so it comes before the model.
        tokens_at = is_token.flatten().nonzero().squeeze(1)
        source, mask, target_in = (
            tensor.repeat(passes, 1) for tensor in (batch.source, batch.source_mask, batch.target_in)
        )
        aims = None if batch.alignment is None else batch.alignment.repeat(passes, 1, 1)
        with record_alignment_loss(model, aims) as alignment_losses:
            decoded = model.read(target_in, model.encode(source, mask), forced)
        states = decoded.reshape(passes, -1, decoded.shape[-1]).index_select(1, tokens_at)
        loss, correct = cross_entropy(
            states,
            model.vocabulary_layer,
            batch.target.flatten()[tokens_at],
            settings.label_smoothing,
            settings.r_drop,
        )
        for alignment_loss in alignment_losses:
            loss = loss + settings.guide_weight * alignment_loss
        return loss / (passes * tokens), torch.ones_like(is_token).masked_scatter(is_token, correct).all(-1)


class TokenObjective(Objective[LanguageModel, TokenBatch]):
    """Cross-entropy of every output token given the tokens before it, or half the squared error of real outputs.

    Single outputs are correct, not whole sequences. A real output is correct within `CLOSE` of its target.
    """

    def forward(self, batch: TokenBatch, step: int, tokens: int) -> tuple[Tensor, Tensor]:
        del step
        states = self.model.read(batch.inputs, batch.mask)
        if tokens == batch.targets.numel():  # all steps are outputs: selecting them would copy the states
            states, targets = states.flatten(0, 1), batch.targets.flatten()
        else:
            states, targets = states[batch.is_output], batch.targets[batch.is_output]
        if targets.is_floating_point():
            errors = self.model.logits(states).squeeze(-1).float() - targets
            return errors.square().sum() / (2 * tokens), errors.abs() < CLOSE
        loss, correct = cross_entropy(states.unsqueeze(0), self.model.vocabulary_layer, targets)
        return loss / tokens, correct


def make_objective(model: TaskModel, settings: TrainingConfig, generator: torch.Generator) -> Objective[Any, Any]:
    return OBJECTIVES[model.answers](model, settings, generator)


OBJECTIVES: dict[str, type[Objective[Any, Any]]] = {
    "numbers": AnswerObjective,
    "text": SequenceObjective,
    "tokens": TokenObjective,
}
"""Objective by the form of the answers."""


def guided_layer(model: Seq2Seq) -> str:
    """Return the name of the layer with the guided head. Raises `InputError` if no layer attends to the
    source."""
    if not model.cross_layers:
        raise InputError("guide needs attention to the source, which this model does not have: leave out guide")
    return model.cross_layers[-2:][0]


@contextmanager
def record_alignment_loss(model: Seq2Seq, aims: Tensor | None) -> Iterator[list[Tensor]]:
    """Yield a list to which the alignment loss is appended while the model runs once in the block.

    `aims`: (B, Tt, Ts) target distribution of the guided head, or None without a guided head. The list is empty
    if `aims` is None. Each entry is the loss in nats, summed over all target tokens, or over the tokens of one
    step if the decoder runs stepwise.
    """
    losses: list[Tensor] = []
    if aims is None:
        yield losses
        return

    def measure(weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        """Record the loss of weights (B, H, Tt, Ts) before dropout, and return them unchanged."""
        del mask
        rows = aims if step is None else aims[:, step : step + 1]
        losses.append(-(rows * weights[:, HEAD].float().clamp_min(SMALLEST_WEIGHT).log()).sum())
        return weights

    layer = find_layer(model, guided_layer(model))
    with attach_hooks({layer: with_change(layer.hook, measure)}):
        yield losses


def teacher_forcing(
    settings: TrainingConfig, target: Tensor, generator: torch.Generator, step: int
) -> Tensor | None:
    """Sample the target steps (B, Tt) whose input is the true previous token at training step `step`; None for
    all steps."""
    if settings.teacher_forcing == 1.0:
        return None
    share = 1.0 - (1.0 - settings.teacher_forcing) * step / max(settings.steps - 1, 1)
    return torch.rand(target.shape, generator=generator) < share


def exact(logits: Tensor, targets: Tensor) -> Tensor:
    """Return whether all outputs of a sample are correct, (..., B) bool, for logits (..., B, To, classes).

    >>> exact(torch.eye(3)[None], torch.tensor([[0, 1, 2]]))
    tensor([True])
    """
    return (logits.argmax(-1) == targets).all(-1)
