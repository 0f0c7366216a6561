"""Pictures of positions."""

from pathlib import Path

from regard.attention import Sinusoidal
from regard.errors import InputError, check_range
from regard.runs.loading import SAVEPATH, AnyRun, load


def plot_positions(
    path: str | Path = "positions.png",
    *,
    run: str | Path | None = None,
    width: int = 64,
    length: int = 100,
    savepath: str | Path = SAVEPATH,
    trust_code: bool = False,
) -> Path:
    """Draw the paper's sinusoidal positions, or those that `run` has learned, into a picture at `path`.

    `width` and `length` are of the sinusoidal ones, `trust_code` is as in `load`. Raises `InputError` where these
    do not fit, or where the run has no positions.
    """
    from regard.inspection import waves  # brings matplotlib, which nothing else here needs

    if run is None:
        check_range("width", width, 1, 65_536)
        check_range("length", length, 1, 10_000)
        vectors, title = Sinusoidal(width).vectors(0, length), "Sinusoidal positions"
    else:
        loaded: AnyRun = load(run, savepath=savepath, trust_code=trust_code)
        learned = loaded.model.learned_positions
        if learned is None:
            raise InputError(f"run {str(loaded.folder)!r} has no positions: train it with --pos_enc")
        vectors, title = learned, f"Positions learned by {loaded.name}"
    return waves.save_positions(vectors.numpy(), path, title)
