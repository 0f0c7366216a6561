"""What pruning took away, and what it cost: the figures, whoever trained the model."""

from dataclasses import dataclass

from rich.table import Table

from regard.result import Result


@dataclass(frozen=True, kw_only=True, repr=False)
class Pruned(Result):
    """What pruning took away, and what it cost."""

    removed: list[tuple[str, int]]
    """Layer and head, as the whole model had them, in the order in which they went: the least important first."""
    samples: int
    """Inputs that the losses are of."""
    measure: str = "loss"
    """What the losses are of, for people."""
    loss_before: float
    """Mean cross-entropy of all output steps, in nats, or what `measure` says."""
    loss_after: float
    parameters_before: int
    parameters_after: int

    def summary(self) -> str:
        """Say what is gone, and what the loss is now."""
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
