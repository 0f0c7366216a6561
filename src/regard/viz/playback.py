"""Playback: how attention on one input formed during training, frame by frame."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.result import Result
from regard.viz.attention_map import AttentionMap

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.viz.widget import AttentionWidget


@dataclass(frozen=True, kw_only=True, repr=False)
class Playback(Result):
    """One input, as a model attended to it after more and more training."""

    steps: list[int]
    """Training steps behind each snapshot."""
    frames: list[AttentionMap]
    """What the model of each snapshot did."""
    losses: list[tuple[int, float]]
    """Loss of training batches, by step."""

    def table(self) -> "RenderableType":
        """Return a line for each frame: its step, and the largest weight that each head of its layers gives."""
        from rich.table import Table

        table = Table("step", "prediction", "largest weights", box=None, pad_edge=False)
        for step, frame in zip(self.steps, self.frames, strict=True):
            largest = (f"{layer.name} {layer.weights.max():.3f}" for layer in frame.layers.values())
            table.add_row(f"{step:,}", str(frame.prediction), ", ".join(largest))
        return table

    def summary(self) -> str:
        """Say how many frames there are."""
        return f"{len(self.frames)} frames, steps {self.steps[0]:,} to {self.steps[-1]:,}"

    def data(self) -> dict[str, Any]:
        """Return it as `regard.viz.page` takes it."""
        return {"steps": self.steps, "losses": self.losses, "frames": self.frames}

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook; raises `InputError` where anywidget is not installed."""
        from regard.viz.widget import view

        return view(self.frames[-1:], playback=self.data())

    def to_html(self, path: str | Path) -> Path:
        """Write one page, with a slider over training, that opens offline."""
        from regard.viz.page import write_page

        return write_page(path, self.frames[-1:], playback=self.data())
