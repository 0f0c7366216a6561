"""Head importance: by how much the loss rises when a head is switched off (Michel et al. 2019, section 3.2)."""

from dataclasses import dataclass

import torch
from rich.table import Table

from regard.attention import intervene
from regard.errors import InputError, check_range
from regard.inspection.subject import Input, Subject
from regard.result import Result


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadImportance(Result):
    """What each head is worth, over a sample that training has not seen."""

    samples: int
    loss: float
    """Mean cross-entropy of all output steps with every head on, in nats."""
    added: dict[str, list[float]]
    """By layer: what is added to the loss when each head is off. Below 0: the model does better without."""

    def ranked(self) -> list[tuple[float, str, int]]:
        """Return every head with what it is worth and its layer, the least important first."""
        return sorted(
            (value, layer, head) for layer, values in self.added.items() for head, value in enumerate(values)
        )

    def summary(self) -> str:
        """Name the most important head."""
        value, layer, head = self.ranked()[-1]
        return f"{layer} head {head} adds most when off, {value:+.4f} to a loss of {self.loss:.4f}"

    def table(self) -> Table:
        """Return a table, a line for each layer."""
        most = max(map(len, self.added.values()))
        title = f"Loss added when a head is off ({self.loss:.4f} with all on, {self.samples:,} samples)"
        columns = [f"head {head}" for head in range(most)]
        table = Table("layer", *columns, box=None, pad_edge=False, title=title, title_justify="left")
        for layer, values in self.added.items():
            table.add_row(layer, *(f"{value:+.4f}" for value in values))
        return table


@torch.inference_mode()
def head_importance(subject: Subject[Input], *, samples: int | None = None, seed: int = 0) -> HeadImportance:
    """Return the importance of every head of a subject, over unseen inputs (None: as many as is usual for it),
    the same ones each time.

    Raises `InputError` for a model without attention, or where there are no such inputs.
    """
    samples = subject.importance_samples if samples is None else samples
    check_range("samples", samples, 1, 10**7)
    if not subject.layers:
        raise InputError("the model has no heads: train it with attention")
    inputs = subject.unseen(samples, seed, purpose="importance")
    base, added = subject.loss(inputs), {}
    for layer in subject.layers:
        values = []
        for head in range(layer.heads):
            with intervene(subject.model, layer.name, heads=[head]):
                values.append(subject.loss(inputs) - base)
        added[layer.name] = values
    return HeadImportance(samples=len(inputs), loss=base, added=added)
