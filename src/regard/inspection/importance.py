"""Head importance: by how much the loss rises when a head is switched off (Michel et al. 2019, section 3.2)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.table import Table
from torch import nn

from regard.attention import MultiHeadAttention, Recordable, intervene, short_name
from regard.errors import InputError


@dataclass(frozen=True, kw_only=True)
class HeadImportance:
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
def head_importance(model: nn.Module, loss: Callable[[], float], samples: int) -> HeadImportance:
    """Return the importance of every head; `loss` works out the model's loss on the same `samples` each time.

    Raises `InputError` for a model without attention.
    """
    model.eval()
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, Recordable)}
    if not layers:
        raise InputError("the model has no heads: train it with attention")
    base, added = loss(), {}
    for name, layer in layers.items():
        values = []
        for head in range(layer.heads if isinstance(layer, MultiHeadAttention) else 1):
            with intervene(model, name, heads=[head]):
                values.append(loss() - base)
        added[short_name(name)] = values
    return HeadImportance(samples=samples, loss=base, added=added)
