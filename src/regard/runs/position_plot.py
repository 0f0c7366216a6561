"""Plots of positional encodings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.attention import LearnedPositions, Rotary, Sinusoidal
from regard.errors import InputError, check_range
from regard.runs.loading import SAVEPATH, load

if TYPE_CHECKING:
    from regard.attention import Positions
    from regard.runs.run_types import AnyRun

POINTS_PER_POSITION = 40
"""Points of a wave between two positions."""
MOST_POINTS = 40_000


def plot_positions(
    path: str | Path = "positions.png",
    *,
    run: str | Path | None = None,
    width: int = 64,
    length: int = 100,
    savepath: str | Path = SAVEPATH,
    trust_code: bool = False,
    trust_edited: bool = False,
) -> Path:
    """Plot the paper's sinusoidal positional encoding, or that of a run, into the file `path`.

    Of a run, plots its learned or custom vectors, its sinusoidal waves, or sine and cosine of its rotary angles.
    `width`, `length`: size of the sinusoidal encoding; `length` also limits a run's, except a learned one.
    `trust_code`, `trust_edited`: as in `load`. Raises `InputError` for sizes out of range, and for a run without
    positions.
    """
    if run is None:
        check_range("width", width, 1, 65_536)
        check_range("length", length, 1, 10_000)
        return _plot(path, Sinusoidal(width), length, "Sinusoidal positions")
    loaded: AnyRun = load(run, savepath=savepath, trust_code=trust_code, trust_edited=trust_edited)
    positions = loaded.model.input_positions
    if isinstance(positions, Rotary):
        return _plot(
            path, positions.waves, length, f"Rotary positions of {loaded.name}: sine and cosine of the angles"
        )
    if isinstance(positions, LearnedPositions):
        return _plot(path, positions, len(positions.weight), f"Positions learned by {loaded.name}")
    if positions is None:
        raise InputError(f"run {str(loaded.folder)!r} has no positions: {_remedy(loaded)}")
    return _plot(path, positions, min(length, positions.length or length), f"Positions of {loaded.name}")


def _remedy(run: AnyRun) -> str:
    if hasattr(run.config.model, "pos_enc"):
        return "train it with --pos_enc"
    return f"a {run.config.kind} model reads step by step, and needs none"


@torch.no_grad()
def _plot(path: str | Path, positions: Positions, length: int, title: str) -> Path:
    """Plot `length` positions, and the waves between them."""
    from regard.viz import plots  # imports matplotlib

    vectors = positions.vectors(0, length).detach().cpu().numpy()
    between = None
    if isinstance(positions, Sinusoidal):
        points = min(POINTS_PER_POSITION * length, MOST_POINTS)
        between = positions.waves_at(torch.linspace(0, length - 1, points, dtype=torch.float64)).numpy()
    return plots.save_position_plot(vectors, path, title, between=between)
