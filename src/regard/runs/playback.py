"""Playback: the attention map for one input at each snapshot of a training run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from torch import nn

from regard.errors import InputError
from regard.training.checkpoint import Checkpoint
from regard.training.tensor_file import tensor_specs
from regard.viz.attention_map import Playback

if TYPE_CHECKING:
    from regard.training.run_folder import RunFolder
    from regard.viz.attention_map import AttentionMap

MOST_POINTS = 300
"""Largest number of points of the loss curve."""
Model = TypeVar("Model", bound=nn.Module)


def play_back(run: RunFolder, model: Model, attend: Callable[[Model], AttentionMap]) -> Playback:
    """Return the result of `attend` for the model of each snapshot, and the loss curve.

    Raises `InputError` for a run without snapshots, and for a damaged snapshot.
    """
    if not run.snapshots:
        raise InputError(f"run {str(run.path)!r} has no snapshots: train it with --snapshots 50")
    model = copy.deepcopy(model)
    expected = tensor_specs(model.state_dict(), half=True)
    steps, frames = [], []
    for path in run.snapshots:
        snapshot = Checkpoint.load_snapshot(run, path, expected)
        model.load_state_dict(snapshot.weights or {})
        steps.append(snapshot.step)
        frames.append(attend(model))
    lines = run.read_metrics()
    every = -(-len(lines) // MOST_POINTS) or 1
    return Playback(
        steps=steps, frames=frames, losses=[(line["step"], round(line["loss"], 5)) for line in lines[::every]]
    )
