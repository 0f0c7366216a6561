"""Writing files so that a crash, a full disk or a killed process never damages what was there."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import InputError, MachineError, RegardError

USERS_TO_CHANGE = {
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
"""Failures that another path mends; all others are the machine's."""


def cannot_write(path: Path, error: OSError) -> RegardError:
    """Return the error that says in one line that `path` could not be written, why, and what to do."""
    reason = error.strerror or str(error)
    if error.errno in USERS_TO_CHANGE:
        return InputError(f"cannot write {str(path)!r}: {reason}; choose another path")
    return MachineError(f"cannot write {str(path)!r}: {reason}; what was saved before is intact")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file at `path` by `content`, whole or not at all: temporary file, flush, rename.

    Raises `InputError` or `MachineError` (see `cannot_write`); the file at `path` is then as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def write_json(path: Path, content: Any, *, indent: int = 2, allow_nan: bool = True) -> None:
    """Replace the file at `path` by `content` as JSON, as `write_atomically` does.

    Numbers that JSON has no word for are written as Python's `json` does; without `allow_nan` they raise
    `ValueError`, and the file stays as it was.
    """
    write_atomically(path, (json.dumps(content, indent=indent, allow_nan=allow_nan) + "\n").encode())


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Make a folder at `path`, whole or not at all: yields one beside it to fill, which is then renamed.

    Raises `InputError` or `MachineError` (see `cannot_write`) where the disk refuses; what stands at `path` is
    the caller's to move away before the block ends.
    """
    building = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
        yield building
        building.rename(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
