"""Create, replace and remove folders atomically, and write files to the folder of a running training run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.errors import InputError, MachineError
from regard.io import temporary
from regard.io.temporary import remove_quietly, tidy
from regard.io.writing import (
    cannot_write,
    check_name,
    open_regular,
    refuse_links,
    resolve_parent,
    sync_folder,
    write_file,
)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create a folder atomically. Yields a temporary folder beside `path`, which is moved to `path` on exit.

    An existing folder at `path` is replaced and removed. An existing link is replaced, and its
    target is unchanged. Raises `InputError` or `MachineError` (see `cannot_write`) if the folder cannot be
    written; `path` is then unchanged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with new_folder(Path(parent, "run")) as folder:
    ...         _ = (folder / "file").write_text("content")
    ...     Path(parent, "run", "file").read_text()
    'content'
    """
    check_name(path)
    place = resolve_parent(path)
    building = temporary.temporary_path(place)
    try:
        if not place.parent.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
        tidy(place.parent)
        building.mkdir()
        yield building
        _sync(building)
        _move_into_place(building, place)
        sync_folder(place.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        remove_quietly(building)


def _sync(folder: Path) -> None:
    """Flush all files of a folder to the disk before the folder is renamed."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with Path(parent, name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))


def _move_into_place(building: Path, path: Path) -> None:
    """Move a folder to `path` by two renames.

    If the process dies between them, `tidy` restores the old name.
    """
    if not os.path.lexists(path):
        building.rename(path)
        return
    old = temporary.temporary_path(path, "old")
    path.rename(old)
    try:
        building.rename(path)
    except OSError:
        old.rename(path)
        raise
    remove_quietly(old)


def write_inside(folder: Path, path: Path, content: bytes) -> None:
    """Replace the file at `path` in `folder` or in a subfolder, which is created if it is missing.

    Raises `InputError` if the subfolder is a link, and `MachineError` if `folder` is missing or the file cannot
    be written.
    """
    with explain_missing_folder(folder):
        if path.parent != folder:
            refuse_links(path.parent)
            try:
                path.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise cannot_write(path.parent, error) from error
        write_file(path, content)


def append_inside(folder: Path, path: Path, content: bytes) -> None:
    """Append `content` to the file at `path` in `folder`.

    Raises the same errors as `write_inside`, and `InputError` if the file is a link.
    """
    with explain_missing_folder(folder):
        try:
            with open_regular(path, "ab") as file:
                file.write(content)
        except OSError as error:
            raise cannot_write(path, error) from error


@contextmanager
def explain_missing_folder(folder: Path) -> Iterator[None]:
    """Raise `MachineError` if the block fails because `folder` was moved or removed."""
    try:
        yield
    except InputError as error:
        if folder.is_dir():
            raise
        raise MachineError(
            f"{str(folder)!r} was moved or removed during a write: restore the folder and continue with "
            f"--resume, or start again"
        ) from error
