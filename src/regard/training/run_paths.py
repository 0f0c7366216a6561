"""Where runs are: making a new one, and finding one that is there."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.errors import InputError
from regard.io import new_folder, tidy, write_json
from regard.io.reading import DamageError, add_digest, parse_json, read_bytes
from regard.training.config import RunConfig
from regard.training.folder import RunFolder
from regard.training.stored import FORMAT, LARGEST_CONFIG


@contextmanager
def new_run(path: Path, config: RunConfig, *, overwrite: bool) -> Iterator[RunFolder]:
    """Make a run at `path`: yields a folder to fill with its first checkpoint, which then takes its place.

    A run already at `path` is only replaced with `overwrite`, and only once the new one is complete on disk.
    Raises `InputError` where something is in the way, and `MachineError` where it cannot be written.
    """
    check_free(path, overwrite=overwrite)
    with new_folder(path) as building:
        folder = RunFolder(building)
        write_json(folder.config_file, add_digest({"format": FORMAT, **dataclasses.asdict(config)}))
        yield folder


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raise `InputError` where no new run can be made at `path`, for something is in the way."""
    if RunFolder(path).exists() and not overwrite:
        raise InputError(
            f"{str(path)!r} already holds a run: continue it with --resume, replace it with --overwrite, "
            f"or choose another --savepath"
        )
    if path.exists() and not RunFolder(path).exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{str(path)!r} exists and is not a run: choose another --savepath")


def holds_run(folder: Path) -> bool:
    """Say whether a folder holds a run of Regard's, of any format."""
    try:
        stored = parse_json(read_bytes(folder / "config.json", most=LARGEST_CONFIG), finite=False)
    except (DamageError, InputError, OSError):
        return False
    return isinstance(stored, dict) and str(stored.get("format", "")).startswith("regard-run/")


def find_run(run: str | Path, savepath: Path, *, trust_edited: bool = False) -> RunFolder:
    """Find a run by the path of its folder, or by its task's name under `savepath`.

    `trust_edited`: read its files also where they were edited. Raises `InputError` where there is none.
    """
    if not isinstance(run, str | Path):
        raise InputError(f"run {run!r} is no name: give a task's, or the path of a run's folder")
    for path in (Path(run), savepath / run):
        tidy(path.parent)
        if RunFolder(path).exists():
            return RunFolder(path, trust_edited)
    raise InputError(
        f"no run {str(run)!r} in {str(savepath)!r}: train it with `regard train`, or give its --savepath"
    )
