"""Pictures of positions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.attention import LearnedPositions, Rotary, Sinusoidal
from regard.errors import InputError, check_range
from regard.runs.loading import SAVEPATH, load

if TYPE_CHECKING:
    from regard.attention import Positions
    from regard.runs.kinds import AnyRun

FINE = 40
"""Places of a wave that are drawn between two positions."""


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
    """Draw the paper's sinusoidal positions, or those of `run`, into a picture at `path`.

    Of a run: the vectors that it has learned, the waves that it adds, those of its user's own, or the angles (as
    sine and cosine) by which rotary ones turn the pairs of a head's queries and keys. `width` and `length` are of
    the sinusoidal ones; `length` also of a run's, but for learned ones; `trust_code` and `trust_edited` are
    as in `load`. Raises `InputError` where these do not fit, or where the run has no positions.
    """
    if run is None:
        check_range("width", width, 1, 65_536)
        check_range("length", length, 1, 10_000)
        return _drawn(path, Sinusoidal(width), length, "Sinusoidal positions")
    loaded: AnyRun = load(run, savepath=savepath, trust_code=trust_code, trust_edited=trust_edited)
    found = loaded.model.input_positions
    if isinstance(found, Rotary):
        return _drawn(
            path, found.waves, length, f"Rotary positions of {loaded.name}: sine and cosine of the angles"
        )
    if isinstance(found, LearnedPositions):
        return _drawn(path, found, len(found.weight), f"Positions learned by {loaded.name}")
    if found is None:
        raise InputError(f"run {str(loaded.folder)!r} has no positions: {_way_out(loaded)}")
    return _drawn(path, found, min(length, found.length or length), f"Positions of {loaded.name}")


def _way_out(run: AnyRun) -> str:
    if hasattr(run.config.model, "pos_enc"):
        return "train it with --pos_enc"
    return f"a model of kind {run.config.kind} reads step by step, and needs none"


@torch.no_grad()
def _drawn(path: str | Path, positions: Positions, length: int, title: str) -> Path:
    """Draw `length` positions into a picture, waves between them too."""
    from regard.viz import plots  # brings matplotlib, which nothing else here needs

    vectors = positions.vectors(0, length).detach().cpu().numpy()
    between = None
    if isinstance(positions, Sinusoidal):
        fine = min(FINE * length, 40_000)
        between = positions.waves_at(torch.linspace(0, length - 1, fine, dtype=torch.float64)).numpy()
    return plots.save_position_plot(vectors, path, title, between=between)
