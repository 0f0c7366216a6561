"""Playback: how attention on one input formed during training, from the snapshots of a run."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from regard.errors import InputError
from regard.inspection import AttentionMap
from regard.training import RunFolder

if TYPE_CHECKING:
    from regard.inspection.widget import AttentionWidget

SHOWN_LOSSES = 300
"""Points of the loss curve, at most."""


@dataclass(frozen=True, kw_only=True)
class Playback:
    """One input, as a model attended to it after more and more training."""

    steps: list[int]
    """Training steps behind each snapshot."""
    frames: list[AttentionMap]
    """What the model of each snapshot did."""
    losses: list[tuple[int, float]]
    """Loss of training batches, by step."""

    def data(self) -> dict[str, Any]:
        """Return it as `regard.inspection.page` takes it."""
        return {"steps": self.steps, "losses": self.losses, "frames": self.frames}

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook; raises `InputError` where anywidget is not installed."""
        from regard.inspection.widget import view

        return view(self.frames[-1:], playback=self.data())

    def to_html(self, path: str | Path) -> Path:
        """Write one page, with a slider over training, that opens offline."""
        from regard.inspection.page import write_page

        return write_page(path, self.frames[-1:], playback=self.data())


def play_back(folder: Path, model: nn.Module, attend: Callable[[Any], AttentionMap]) -> Playback:
    """Return what `attend` finds with the model of each snapshot of the run in `folder`.

    Raises `InputError` where the run has kept none, or one is damaged.
    """
    run = RunFolder(folder)
    if not run.snapshots:
        raise InputError(f"run {str(folder)!r} has no snapshots: train it with --snapshots 50")
    model = copy.deepcopy(model)
    steps, frames = [], []
    for path in run.snapshots:
        parameters, step = run.read_snapshot(path)
        try:
            model.load_state_dict(parameters)
        except RuntimeError as error:
            raise InputError(f"run {str(folder)!r} is damaged: {path.name} does not fit its config") from error
        steps.append(step)
        frames.append(attend(model))
    lines = run.read_metrics()
    every = -(-len(lines) // SHOWN_LOSSES) or 1
    return Playback(
        steps=steps, frames=frames, losses=[(line["step"], round(line["loss"], 5)) for line in lines[::every]]
    )
