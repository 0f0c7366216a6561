"""The result of pruning heads: what was removed, and how the loss changed."""

from dataclasses import dataclass

from rich.table import Table

from regard.result import Result


@dataclass(frozen=True, kw_only=True, repr=False)
class Pruned(Result):
    """The removed heads, with loss and size before and after."""

    removed: list[tuple[str, int]]
    """Layer and head, numbered as in the whole model, in the order of removal: the least important first."""
    samples: int
    """Number of inputs over which the losses are measured."""
    measure: str = "loss"
    """The name of the losses, as text for tables."""
    loss_before: float
    """Mean cross-entropy of all output steps in nats, or the quantity that `measure` names."""
    loss_after: float
    parameters_before: int
    parameters_after: int

    def summary(self) -> str:
        """Return the number of removed heads and both losses."""
        return (
            f"{len(self.removed)} heads removed, {self.measure} {self.loss_before:.4f} before,"
            f" {self.loss_after:.4f} after"
        )

    def table(self) -> Table:
        """Return the figures as a table."""
        table = Table("", "before", "after", box=None, pad_edge=False)
        table.add_row("heads removed", "", ", ".join(f"{layer} {head}" for layer, head in self.removed))
        table.add_row("parameters", f"{self.parameters_before:,}", f"{self.parameters_after:,}")
        losses = f"{self.loss_before:.4f}", f"{self.loss_after:.4f}"
        table.add_row(f"{self.measure}, {self.samples:,} samples", *losses)
        return table
