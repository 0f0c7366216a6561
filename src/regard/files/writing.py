"""Writing files so that a crash, a full disk or a killed process never damages what was there."""

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import InputError, MachineError, RegardError
from regard.files import temporary

USERS_TO_CHANGE = {
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENODEV,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ENXIO,
    errno.EPERM,
    errno.EROFS,
}
"""Failures that another path mends; all others are the machine's."""


def cannot_write(path: Path, error: OSError) -> RegardError:
    """Return the error that says in one line that `path` could not be written, why, and what to do."""
    reason = error.strerror or str(error)
    if error.errno == errno.ENXIO:
        reason = "nobody reads from it"
    if error.errno in USERS_TO_CHANGE:
        return InputError(f"cannot write {str(path)!r}: {reason}; choose another path")
    return MachineError(f"cannot write {str(path)!r}: {reason}; what was saved before is intact")


def check_name(path: Path) -> None:
    """Raise `InputError` where no file can have this name: it holds a NUL, half a character, or leads up again
    from a folder that is not there, which would have to be made for that."""
    try:
        if b"\0" in os.fsencode(path):
            raise InputError(f"cannot write {str(path)!r}: a name holds no NUL; choose another path")
    except UnicodeEncodeError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.reason}; choose another path") from error
    for place, part in enumerate(path.parts):
        if part != "..":
            continue
        before = Path(*path.parts[:place])
        if not os.path.isdir(before):  # noqa: PTH112 (which asks nobody for permission)
            raise InputError(
                f"cannot write {str(path)!r}: there is no folder {str(before)!r}; choose another path"
            )


def check_writable(path: Path) -> None:
    """Raise `InputError` where `write_file` could not write, as far as can be told before; nothing is made."""
    check_name(path)
    try:
        if not _is_stream(path):
            _ask_folder(Path(os.path.realpath(path)).parent)
    except OSError as error:
        raise cannot_write(path, error) from error


def _ask_folder(folder: Path) -> None:
    """Raise `OSError` where a folder is none, or takes no file."""
    if not folder.is_dir():
        number = errno.ENOTDIR if os.path.lexists(folder) else errno.ENOENT
        raise OSError(number, os.strerror(number))
    if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def check_folder(folder: Path) -> None:
    """Raise `InputError` where no files can be written into a folder, which may still have to be made."""
    check_name(folder)
    whole = folder.absolute()
    try:
        _ask_folder(next(each for each in (whole, *whole.parents) if os.path.lexists(each)))
    except OSError as error:
        raise cannot_write(folder, error) from error


def write_new(contents: Mapping[Path, bytes]) -> list[Path]:
    """Write files that are somebody's own from then on, and make their folders; returns their paths.

    Raises `InputError` before anything is written where one of them is there already or cannot be written.
    """
    for path in contents:
        check_name(path)
        if os.path.lexists(path):
            raise InputError(f"file {str(path)!r} is there already: choose another folder, it is not overwritten")
        check_folder(path.parent)
    for path, content in contents.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path.parent, error) from error
        write_file(path, content)
    return list(contents)


def write_file(path: Path, content: bytes) -> None:
    """Replace the file at `path` by `content`, whole or not at all: temporary file, flush, fsync, rename.

    A link is followed, and stays a link; a device, a pipe or a socket is written to, never replaced. Raises
    `InputError` or `MachineError` (see `cannot_write`); the file at `path` is then as it was.
    """
    check_name(path)
    try:
        if _is_stream(path):
            _pour(path, content)
        else:
            _replace(Path(os.path.realpath(path)), content)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_json(path: Path, content: Any, *, indent: int = 2, allow_nan: bool = True) -> None:
    """Replace the file at `path` by `content` as JSON, as `write_file` does.

    Numbers that JSON has no word for are written as Python's `json` does; without `allow_nan` they raise
    `ValueError`, and the file stays as it was.
    """
    write_file(path, (json.dumps(content, indent=indent, allow_nan=allow_nan) + "\n").encode())


def sync_folder(folder: Path) -> None:
    """Have the names in a folder reach the disk, where its file system can promise that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # as on Windows, where a folder cannot be opened
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _is_stream(path: Path) -> bool:
    """Whether `path` leads to something that cannot be replaced: a device, a pipe, a socket, or, as /dev/stdout
    may, a file that somebody else holds open."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISREG(mode):
        return str(path.absolute()).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return True


def _pour(path: Path, content: bytes) -> None:
    # Without waiting for a reader that may never come: a pipe without one is refused.
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
    with os.fdopen(descriptor, "wb") as file:
        os.set_blocking(descriptor, True)
        file.write(content)


def _replace(path: Path, content: bytes) -> None:
    temporary.tidy(path.parent)
    building = temporary.beside(path)
    try:
        with building.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            building.chmod(stat.S_IMODE(path.stat().st_mode))
        building.replace(path)
        sync_folder(path.parent)
    except BaseException:
        building.unlink(missing_ok=True)
        raise
