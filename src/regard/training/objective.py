"""Training objective: a model with its loss.

The loss is the cross-entropy of each output. Options add label smoothing, R-Drop and the alignment loss. The
alignment loss trains one attention head to attend to the aligned source words (Garg et al. 2019, section 4.2):

    loss = cross-entropy - weight * sum over target tokens t, source tokens s of  aims[t, s] log weights[t, s]

As in the paper, the guided head is the first head of the penultimate layer with attention to the source.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.layer import attach_hooks, find_layer, with_change
from regard.data.batch import PairBatch
from regard.errors import InputError
from regard.fast.query_gradient import QueryGradient
from regard.models.base import AnswerModel, LanguageModel, Seq2Seq, TaskModel
from regard.tasks.batch import Batch, TokenBatch
from regard.training.config import TrainingConfig

# Cross-entropy over a large vocabulary, computed in chunks without storing all logits.
# The logits of all target steps over 12,000 subwords are the largest tensor in a training step of a translation model:
# 190 MB for 4,000 target steps. This tensor is read and written again for the softmax, its gradient, and the two
# products of the backward pass. This module computes one chunk of target steps at a time, from states to gradients. The
# chunk stays in the processor's cache, in reused memory. Only the gradients of the states and of the weight are stored.
# Apart from the products, the passes over a chunk take most of the time. Fewer are needed because the gradients are
# divided by the sum of the softmax, not the softmax, which has far more values; and because the uniform part of label
# smoothing comes from sums of the states and of the weight. PyTorch computes powers of 2 three times as fast as of e.
# Letters: P passes over the same steps, N target steps, D width, V vocabulary.

CHUNK, GPU_CHUNK = 1 << 24, 1 << 28
"""Size of a chunk's logits in bytes: few large operations are faster on a GPU, cached ones on a CPU."""
BITS = 1 / math.log(2)  # Bits in a nat
FAR = 60.0  # Largest logit in bits for which powers of 2 and their sums do not overflow in float32 and bfloat16


def cross_entropy(
    states: Tensor, layer: tuple[Tensor, Tensor | None], target: Tensor, smoothing: float = 0.0, agreement: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy in nats, summed over all steps, and whether each step is correct: (N,) bool.

    `states`: (P, N, D). `layer`: weight (V, D), and bias (V,) or None. `target`: (N,) int64. The loss is the sum over
    the passes. Correctness is that of the first pass. `smoothing`: fraction of the target distribution that is spread
    uniformly over the vocabulary (Szegedy et al. 2016, section 7). `agreement`: weight of the mean of the two
    Kullback-Leibler divergences between two passes, per step (alpha of R-Drop, Liang et al. 2021, section 2). Under
    autocast, matrix products have the dtype of autocast. Sums and logarithms are float32 (float64 for float64 states).

    >>> loss, correct = cross_entropy(torch.eye(2)[None], (torch.eye(2), None), torch.tensor([0, 0]))
    >>> round(loss.item(), 3), correct.tolist()
    (1.627, [True, False])
    """
    apply: Any = _CrossEntropy.apply
    loss, right = apply(states, *layer, target, smoothing, agreement)
    return loss, right


class _CrossEntropy(torch.autograd.Function):
    """Computes gradients in the forward pass. The backward pass multiplies them by the gradient of the loss."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        agreement: float,
    ) -> tuple[Tensor, Tensor]:
        device, passes = states.device.type, len(states)
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        if dtype == torch.float16:  # sums over the vocabulary exceed its largest number, 65,504
            dtype = torch.float32
        loss = torch.zeros((), dtype=torch.promote_types(dtype, torch.float32), device=states.device)
        right = torch.empty_like(target, dtype=torch.bool)
        grads: list[Tensor | None] = [None, None, None]
        if any(ctx.needs_input_grad):
            grads = [
                torch.empty_like(states),
                *(None if part is None else torch.zeros_like(part) for part in (weight, bias)),
            ]
        widest = loss.dtype if agreement else dtype
        size = CHUNK if device == "cpu" else GPU_CHUNK
        rows = max(1, size // (len(weight) * passes * widest.itemsize))
        with torch.autocast(device, enabled=False):
            unit = 1.0 if agreement else BITS
            narrow, offset = weight.to(dtype), None if bias is None else (bias * unit).to(dtype)
            for begin in range(0, len(target), rows):
                part = slice(begin, begin + rows)
                chunk, goal = states[:, part].flatten(0, 1), target[part].expand(passes, -1).flatten()
                logits = _multiply("logits", (chunk * unit).to(dtype), narrow.T, offset)
                find = partial(_agree, agreement=agreement) if agreement else _aim
                cost, hits, share = find(logits, goal, smoothing)
                loss += cost
                right[part] = hits.view(passes, -1)[0]
                grad_states, grad_weight, grad_bias = grads
                if grad_states is not None:
                    grad_states[:, part] = ((logits @ narrow) * share).unflatten(0, (passes, -1))
                if grad_weight is not None:
                    grad_weight += _multiply("weight", logits.T, (chunk * share).to(dtype))
                if grad_bias is not None:
                    grad_bias += share.to(dtype).squeeze(1) @ logits
            if smoothing:
                # Subtract the uniform part of label smoothing, a fraction of the mean logit, from loss and gradients.
                even, steps = smoothing / len(weight), states.shape[:2].numel()
                seen = states.sum((0, 1), dtype=loss.dtype)  # states may be bfloat16
                mean = weight.sum(0, dtype=loss.dtype) * even
                loss -= seen @ mean
                if bias is not None:
                    loss -= bias.sum() * (even * steps)
                amounts: list[Tensor | float] = [mean, seen * even, even * steps]
                for grad, amount in zip(grads, amounts, strict=True):
                    if grad is not None:
                        grad -= amount
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(right)
        return loss, right

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        factor = grads[0]
        scaled = (None if grad is None else grad * factor.to(grad.dtype) for grad in ctx.saved_tensors)
        return (*scaled, None, None, None)


class _Buffers(threading.local):
    """Buffers shared by all chunks of a thread."""

    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return an uninitialized tensor that is valid until the next request for the same name."""
        size, buffer = math.prod(shape), self.buffers.get(name)
        if buffer is None or buffer.numel() < size or (buffer.dtype, buffer.device) != (dtype, device):
            with torch.inference_mode(False):
                buffer = self.buffers[name] = torch.empty(size, dtype=dtype, device=device)
        return buffer[:size].view(*shape)


BUFFERS = _Buffers()


def _multiply(name: str, left: Tensor, right: Tensor, offset: Tensor | None = None) -> Tensor:
    out = BUFFERS.take(name, (len(left), right.shape[1]), left.dtype, left.device)
    return torch.mm(left, right, out=out) if offset is None else torch.addmm(offset, left, right, out=out)


def _aim(logits: Tensor, goal: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss without the uniform part of smoothing, the correct steps (N, 1), and a factor per row (N, 1).

    `logits`: (N, V) in bits. `goal`: (N,). `logits` is overwritten. Times the factor, it is the loss's gradient.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    largest, aim = _largest(logits), logits.gather(1, goal.unsqueeze(1))
    hits, raised = aim == largest, torch.zeros((), dtype=wide, device=logits.device)
    if logits.device.type != "cpu" or bool((largest.abs() > FAR).any()):  # on a GPU, the check would synchronize
        logits -= largest
        aim, raised = aim - largest, largest.to(wide)
    aim = aim.to(wide)
    # PyTorch sums bfloat16 in float32, but takes five times as long if the result must be float32.
    total = logits.exp2_().sum(1, keepdim=True).to(wide)
    cost = (total.log2() + smoothing * raised - (1 - smoothing) * aim).sum() / BITS
    # For bfloat16, `scatter_` would process every value.
    rows = torch.arange(len(goal), device=goal.device)
    logits[rows, goal] = (aim.exp2() - (1 - smoothing) * total).to(logits.dtype).squeeze(1)
    return cost, hits, 1 / total


def _largest(logits: Tensor) -> Tensor:
    if logits.dtype == torch.bfloat16 and logits.device.type == "cpu":
        # If at least one value is not negative, the bits of the largest bfloat16 value are also the largest
        # integer. Comparing integers is ten times as fast.
        largest = logits.view(torch.int16).amax(1, keepdim=True)
        if bool((largest >= 0).all()):
            return largest.view(torch.bfloat16)
    return logits.amax(1, keepdim=True)


def _agree(logits: Tensor, goal: Tensor, smoothing: float, agreement: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of `_aim`, including the loss for the divergence between two passes.

    `logits`: (2N, V) in nats, with the logits of the first pass before those of the second pass. The loss of a
    step is `agreement` * (KL(p, q) + KL(q, p)) / 2. With a = log p - log q, its gradient with respect to the
    logits of p is `agreement` * (p (1 + a - KL(p, q)) - q) / 2. The gradient for q is analogous.
    """
    half, dtype, device = agreement / 2, torch.promote_types(logits.dtype, torch.float32), logits.device
    wide, goal = logits, goal.unsqueeze(1)
    if logits.dtype != dtype:
        wide = BUFFERS.take("wide", logits.shape, dtype, device).copy_(logits)
    largest, aim = wide.amax(1, keepdim=True), wide.gather(1, goal)
    belief = torch.softmax(wide, 1, out=BUFFERS.take("belief", wide.shape, dtype, device))
    # The largest probability is at least 1 / V, so its logarithm is finite.
    total = largest - belief.amax(1, keepdim=True).log()
    (one, two), (first, second) = belief.chunk(2), wide.chunk(2)
    apart = torch.sub(first, second, out=BUFFERS.take("apart", one.shape, dtype, device))
    apart.sub_(torch.sub(*total.chunk(2))).mul_(half)
    there, back = (torch.linalg.vecdot(probabilities, apart).unsqueeze(1) for probabilities in (one, two))
    torch.add(apart, 1 + half - there, out=first).mul_(one).sub_(two, alpha=half)
    torch.sub(1 + half + back, apart, out=second).mul_(two).sub_(one, alpha=half)
    wide.scatter_add_(1, goal, torch.full_like(aim, smoothing - 1))
    if wide is not logits:
        logits.copy_(wide)
    cost = (total - (1 - smoothing) * aim).sum() + (there - back).sum()
    return cost, aim == largest, torch.ones_like(aim)


Model = TypeVar("Model", AnswerModel, Seq2Seq, LanguageModel)
AnyBatch = TypeVar("AnyBatch", Batch, PairBatch, TokenBatch)

CLOSE = 0.1  # Largest error of a real output that counts as correct
HEAD = 0  # Index of the guided head in its layer
SMALLEST_WEIGHT = 1e-9  # Lower bound of a weight, so that its logarithm is finite


class Objective(nn.Module, Generic[Model, AnyBatch]):
    """A model with its loss. `generator` samples the target steps whose input is the true token (teacher forcing)."""

    model: Model
    fast_gradient: QueryGradient | None = None  # Function that computes loss and gradients without autograd, or None

    def __init__(self, model: Model, settings: TrainingConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.model, self.settings, self.generator = model, settings, generator

    def forward(self, batch: AnyBatch, step: int, tokens: int, outputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch at training step `step`, and whether each sample is correct: (B,) bool.

        The loss is the mean over the outputs. For pairs and for token sequences, the loss is the sum over the
        target tokens of the batch, divided by `tokens`, the number of target tokens in the whole training step.
        `outputs`: (N,) int64 on the device, `batch.outputs`, for which the host waits if it is None.
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

    def forward(self, batch: Batch, step: int, tokens: int, outputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch, and whether each sample is correct. `step` and `tokens` are not used."""
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

    def forward(self, batch: PairBatch, step: int, tokens: int, outputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        model, settings = self.model, self.settings
        forced = teacher_forcing(settings, batch.target, self.generator, step)
        passes = 2 if settings.r_drop else 1
        # On a GPU, the gradient of a selection by a mask sorts its indices; that of `index_select` does not.
        tokens_at, target = batch.outputs if outputs is None else outputs, batch.target.flatten()
        parts: Any = (
            batch[:3] if passes == 1 else (part if part is None else torch.cat([part] * 2) for part in batch[:3])
        )
        both = PairBatch(*parts)
        with record_alignment_loss(model, both.alignment) as alignment_losses:
            decoded = model.read(both.target_in, model.encode(both.source, both.source_mask), forced)
        states = decoded.reshape(passes, -1, decoded.shape[-1]).index_select(1, tokens_at)
        loss, correct = cross_entropy(
            states, model.vocabulary_layer, target[tokens_at], settings.label_smoothing, settings.r_drop
        )
        for alignment_loss in alignment_losses:
            loss = loss + settings.guide_weight * alignment_loss
        right = torch.ones_like(target, dtype=torch.bool).index_copy_(0, tokens_at, correct)
        return loss / (passes * tokens), right.view_as(batch.target).all(-1)


class TokenObjective(Objective[LanguageModel, TokenBatch]):
    """Cross-entropy of every output token given the tokens before it, or half the squared error of real outputs.

    Single outputs are correct, not whole sequences. A real output is correct within `CLOSE` of its target.
    """

    def forward(
        self, batch: TokenBatch, step: int, tokens: int, outputs: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        states = self.model.read(batch.inputs, batch.mask)
        states, targets = states.flatten(0, 1), batch.targets.flatten()
        if tokens != len(targets):  # not all steps are outputs; selecting all would copy the states
            states, targets = (
                part.index_select(0, batch.outputs if outputs is None else outputs) for part in (states, targets)
            )
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
    """Return the name of the layer with the guided head. Raises `InputError` if no layer attends to the source."""
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
        rows = aims if step is None else aims[:, step : step + 1]
        losses.append(-(rows * weights[:, HEAD].float().clamp_min(SMALLEST_WEIGHT).log()).sum())
        return weights

    layer = find_layer(model, guided_layer(model))
    with attach_hooks({layer: with_change(layer.hook, measure)}):
        yield losses


def teacher_forcing(settings: TrainingConfig, target: Tensor, generator: torch.Generator, step: int) -> Tensor | None:
    """Sample the target steps (B, Tt) whose input is the true previous token at training step `step`; None: all."""
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
