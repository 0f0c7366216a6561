"""Loss and accuracy of a language model's outputs, and its attention on relevant inputs."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention import short_name
from regard.attention.recording import record_own
from regard.models import LanguageModel
from regard.tasks import IGNORE, TokenBatch, TokenTask
from regard.training.objective import CLOSE


@dataclass(frozen=True, kw_only=True)
class TokenFigures:
    """Measurements over all outputs of some sequences."""

    outputs: int
    exact_match: float
    """Fraction (0 to 1) of correct outputs. A real output is correct within 0.1 of its target."""
    loss: float
    """Mean cross-entropy in nats, or half the squared error of real outputs."""
    relevance: dict[str, list[float]] = field(default_factory=dict)
    """By layer, for each head: mean attention (0 to 1) on the inputs on which the output depends."""
    uniform: float | None = None
    """Attention (0 to 1) on these inputs if the attention to all inputs so far is uniform."""


@torch.inference_mode()
def measure_tokens(model: LanguageModel, task: TokenTask, batches: Iterable[TokenBatch]) -> TokenFigures:
    """Measure a model on batches of a task; attention on relevant inputs is only measured if the task defines
    relevance."""
    model.eval()
    device = next(model.parameters()).device
    outputs, right, loss, counted, even = 0, 0, 0.0, 0, 0.0
    mass: dict[str, Tensor] = {}
    for batch in batches:
        relevant = task.relevance(batch.inputs).to(device) if task.knows_relevance else None
        batch = batch.to(device)
        with record_own(model, layers=() if relevant is None else None) as records:
            logits = model(batch.inputs, batch.mask)
        losses, correct = _losses(logits, batch.targets)
        outputs += len(losses)
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
    return TokenFigures(
        outputs=outputs,
        exact_match=right / max(outputs, 1),
        loss=loss / max(outputs, 1),
        relevance={name: (sums / max(counted, 1)).tolist() for name, sums in mass.items()},
        uniform=even / counted if counted else None,
    )


@torch.inference_mode()
def next_token_losses(model: LanguageModel, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return (B, 2) float64 on the CPU: the total loss of the outputs of each input, and the number of
    outputs."""
    model.eval()
    device = next(model.parameters()).device
    batch = TokenBatch(inputs, targets, None).to(device)
    losses, _ = _losses(model(batch.inputs), batch.targets)
    sums = torch.zeros(batch.targets.shape, dtype=torch.float64, device=device)
    sums[batch.is_output] = losses.double()
    return torch.stack([sums.sum(1), batch.is_output.sum(1).double()], 1).cpu()


def _losses(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each output (N,), and whether the output is correct, for logits (B, T, V)."""
    if targets.is_floating_point():
        is_output = ~targets.isnan()
        errors = logits.squeeze(-1)[is_output].float() - targets[is_output]
        return errors.square() / 2, errors.abs() < CLOSE
    is_output = targets != IGNORE
    logits, targets = logits[is_output].float(), targets[is_output]
    return F.cross_entropy(logits, targets, reduction="none"), logits.argmax(-1) == targets
