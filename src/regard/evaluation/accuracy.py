"""Exact match: the fraction of samples whose outputs are all correct; and the loss and accuracy of a language model's
outputs, with its attention on relevant inputs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.interventions import record_own
from regard.attention.names import short_name
from regard.fast.onednn import OneDNNMode
from regard.models.base import AnswerModel, LanguageModel
from regard.tasks.base import Task
from regard.tasks.batch import Batch, TokenBatch
from regard.tasks.tokens import TokenTask
from regard.training.objective import CLOSE, exact

CHUNK = 1000  # Number of samples in a batch


def fresh_batches(
    task: Task | TokenTask, samples: int, generator: torch.Generator, *, size: int = CHUNK, **options: Any
) -> Iterator[Any]:
    """Yield `samples` samples in batches of at most `size`; `options`: those of `Task.sample`, `TokenTask.sample`.

    >>> from regard.tasks.counting import Counting
    >>> batches = fresh_batches(Counting(), 1500, torch.Generator())
    >>> [len(batch.inputs) for batch in batches]
    [1000, 500]
    """
    for done in range(0, samples, size):
        yield task.sample(min(size, samples - done), generator, **options)


@torch.inference_mode()
def exact_match(model: AnswerModel, batches: Iterator[Batch]) -> float:
    """Return the fraction of samples (0 to 1) that `model` answers without an error.

    >>> from regard.models.query import QueryModel, QueryModelConfig
    >>> from regard.tasks.counting import Counting
    >>> task = Counting()
    >>> model = QueryModel(QueryModelConfig(), **task.sizes)
    >>> 0 <= exact_match(model, fresh_batches(task, 10, torch.Generator())) <= 1
    True
    """
    model.eval()
    with OneDNNMode():
        right = torch.cat([exact(model(inputs, mask), targets) for inputs, targets, mask in batches])
    return right.double().mean().item()


@dataclass(frozen=True)
class TokenFigures:
    """Measurements over all outputs of some sequences."""

    outputs: int
    exact_match: float  # Fraction (0 to 1) of correct outputs. A real output is correct within 0.1 of its target
    loss: float  # Mean cross-entropy in nats, or half the squared error of real outputs
    relevance: dict[str, list[float]] = field(default_factory=dict)
    """By layer, for each head: mean attention (0 to 1) on the inputs on which the output depends."""
    uniform: float | None = None  # Attention (0 to 1) on these inputs if the attention to all inputs so far is uniform


@torch.inference_mode()
def measure_tokens(
    model: LanguageModel, task: TokenTask, batches: Iterable[TokenBatch], *, relevance: bool = True
) -> TokenFigures:
    """Measure a model on batches of a task; attention on relevant inputs is only measured with `relevance`, and
    if the task defines relevance."""
    model.eval()
    device = next(model.parameters()).device
    outputs, right, loss, counted, even = 0, 0, 0.0, 0, 0.0
    mass: dict[str, Tensor] = {}
    for batch in batches:
        relevant = task.relevance(batch.inputs).to(device) if relevance and task.knows_relevance else None
        batch = batch.to(device)
        with record_own(model, layers=() if relevant is None else None) as records:
            logits = model(batch.inputs, batch.mask)
        losses, correct = output_losses(logits, batch.targets, batch.is_output)
        outputs += batch.tokens
        right += int(correct.sum())
        loss += float(losses.double().sum())
        if relevant is None:
            continue
        rows = relevant.any(-1) & batch.is_output
        counted += int(rows.sum())
        visible = torch.arange(1, relevant.shape[-1] + 1, device=device)
        even += float((relevant.sum(-1) / visible)[rows].double().sum())
        for name, record in records.items():
            shares = (record.weights * relevant.unsqueeze(1)).sum(-1).transpose(1, 2)[rows]
            mass[short_name(name)] = mass.get(short_name(name), 0) + shares.double().sum(0).cpu()
    by_layer = {name: (sums / max(counted, 1)).tolist() for name, sums in mass.items()}
    uniform = even / counted if counted else None
    return TokenFigures(outputs, right / max(outputs, 1), loss / max(outputs, 1), by_layer, uniform)


@torch.inference_mode()
def next_token_losses(model: LanguageModel, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return (B, 2) float64 on the CPU: the total loss of the outputs of each input, and the number of outputs."""
    model.eval()
    device = next(model.parameters()).device
    batch = TokenBatch(inputs, targets, None).to(device)
    losses, _ = output_losses(model(batch.inputs), batch.targets, batch.is_output)
    return torch.stack([losses.double().sum(1), batch.is_output.sum(1).double()], 1).cpu()


def output_losses(logits: Tensor, targets: Tensor, is_output: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each output, (B, To), and whether the output is correct; 0 and False elsewhere.

    `logits` (B, To, V), `targets` (B, To) int64, `is_output` (B, To) bool. The loss is the cross-entropy in nats.
    For real-valued targets (float32) it is half the squared error, and an output is correct within `CLOSE`.

    >>> output_losses(torch.zeros(1, 1, 2), torch.tensor([[1]]), torch.tensor([[True]]))
    (tensor([[0.6931]]), tensor([[False]]))
    """
    if targets.is_floating_point():
        errors = torch.where(is_output, logits.squeeze(-1).float() - targets, 0.0)
        return errors.square() / 2, (errors.abs() < CLOSE) & is_output
    logits, targets = logits.float(), targets.masked_fill(~is_output, 0)
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    return losses.masked_fill(~is_output, 0.0), (logits.argmax(-1) == targets) & is_output
