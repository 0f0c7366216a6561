"""Folders that appear, are exchanged and disappear in one step."""

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.io import temporary
from regard.io.temporary import remove_quietly, tidy
from regard.io.writing import cannot_write, check_name, resolve_parent, sync_folder

NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What file systems answer that cannot exchange two names, as NFS."""


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Make a folder at `path`, whole or not at all: yields one beside it to fill, which then takes its place.

    What stands at `path` until then is replaced in one step and removed; of a link, the link alone. Raises
    `InputError` or `MachineError` (see `cannot_write`) where the disk refuses; what stood at `path` is then as it
    was.
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
        _put(building, place)
        sync_folder(place.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        remove_quietly(building)


def _sync(folder: Path) -> None:
    """Have all files in a folder reach the disk before the folder gets its name."""
    for inside, _, names in os.walk(folder):
        for name in names:
            with Path(inside, name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(inside))


def _put(building: Path, path: Path) -> None:
    """Give a folder its place. What stands there changes places with it, or, where the file system cannot do
    that, moves away first: `tidy` puts it back if this process dies before the new one is there."""
    if not os.path.lexists(path):
        building.rename(path)
        return
    try:
        _exchange(building, path)
    except OSError as error:
        if error.errno not in NO_EXCHANGE:
            raise
        old = temporary.temporary_path(path, "old")
        path.rename(old)
        try:
            building.rename(path)
        except OSError:
            old.rename(path)
            raise
        remove_quietly(old)


def _exchange(one: Path, other: Path) -> None:
    """Let two paths change places in one step; raises `OSError` where the system cannot."""
    system = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = system.renamex_np(first, second, 2)  # RENAME_SWAP
    elif hasattr(system, "renameat2"):
        here = -100  # AT_FDCWD
        failed = system.renameat2(here, first, here, second, 2)  # RENAME_EXCHANGE
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))
