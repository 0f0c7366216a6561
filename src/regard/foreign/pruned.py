"""What pruning a model that was not built here comes to."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.result import Result, plain


def count_of(model: nn.Module) -> int:
    """Return how many numbers a model has learned."""
    return sum(each.numel() for each in model.parameters())


@dataclass(frozen=True, kw_only=True, repr=False)
class ForeignPruned(Result):
    """What pruning a model that was not built here took away, and what it cost."""

    subject: Any
    """What is left."""
    removed: list[tuple[str, int]]
    """Layer and head, as the model had them, in the order in which they went."""
    samples: int
    loss_before: float
    loss_after: float
    parameters_before: int
    parameters_after: int

    def summary(self) -> str:
        """Say what is gone, and what the loss is now."""
        return (
            f"{len(self.removed)} heads removed, {self.subject.measure} {self.loss_before:.4f} before,"
            f" {self.loss_after:.4f} after"
        )

    def json(self) -> dict[str, Any]:
        """Return all as plain values; of the model, where it is."""
        return {
            **{name: plain(each) for name, each in vars(self).items() if name != "subject"},
            "folder": self.subject.where,
        }
