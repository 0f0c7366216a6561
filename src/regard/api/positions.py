"""Pictures of positions."""

from pathlib import Path

from regard.api.loading import SAVEPATH, load
from regard.attention import Sinusoidal
from regard.errors import InputError, check_range
from regard.models import QueryModel


def plot_positions(
    path: str | Path = "positions.png",
    *,
    run: str | Path | None = None,
    width: int = 64,
    length: int = 100,
    savepath: str | Path = SAVEPATH,
) -> Path:
    """Draw the paper's sinusoidal positions, or those that `run` has learned, into a picture at `path`.

    `width` and `length` are of the sinusoidal ones. Raises `InputError` where these do not fit, or where the
    run has no positions.
    """
    from regard.inspection import waves  # brings matplotlib, which nothing else here needs

    if run is None:
        check_range("width", width, 1, 65_536)
        check_range("length", length, 1, 10_000)
        vectors, title = Sinusoidal(width).vectors(0, length), "Sinusoidal positions"
    else:
        loaded = load(run, savepath=savepath)
        if not isinstance(loaded.model, QueryModel) or loaded.model.positions is None:
            raise InputError(f"run {str(loaded.folder)!r} has no positions: train it with --pos_enc")
        vectors, title = loaded.model.positions.weight.detach(), f"Positions learned by {loaded.task.name}"
    return waves.plot_positions(vectors.numpy(), path, title)
