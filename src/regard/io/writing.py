"""Writing files so that a crash, a full disk or a killed process never damages what was there."""

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from regard.errors import InputError, MachineError, RegardError
from regard.io import temporary

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
    if error.errno == errno.ELOOP and os.path.islink(path):  # noqa: PTH114
        return _is_link(path)
    if error.errno in USERS_TO_CHANGE:
        return InputError(f"cannot write {str(path)!r}: {reason}; choose another path")
    return MachineError(f"cannot write {str(path)!r}: {reason}; what was saved before is intact")


def _is_link(path: Path) -> InputError:
    return InputError(
        f"{str(path)!r} is a link, and nothing is written through links there: remove it, or choose another path"
    )


def resolve_parent(path: Path) -> Path:
    """Return where a path stands: links are followed up to its last part, which may be one itself."""
    if path.name in ("", ".."):
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent)) / path.name


def refuse_links(path: Path, *, below: Path | None = None) -> None:
    """Raise `InputError` where `path`, or a folder on the way to it from the folder `below` on, is a link."""
    on_the_way = () if below is None else (each for each in path.parents if below in each.parents)
    for each in (path, *on_the_way):
        if os.path.islink(each):  # noqa: PTH114 (which asks nobody for permission)
            raise _is_link(each)


def make_folder(folder: Path, *, below: Path | None = None) -> None:
    """Make a folder where it is missing; raises `InputError` where it is a link, see `refuse_links`."""
    refuse_links(folder, below=below)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def open_regular(path: Path, mode: str) -> BinaryIO:
    """Open a file to be changed in place, with a mode of `open` for bytes; raises `OSError` for anything that is
    no regular file, such as a link."""

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EPERM, "it is no regular file", name)
        return descriptor

    return open(path, mode, opener=opener)  # type: ignore[return-value]


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
            _ask_folder(resolve_parent(path).parent)
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

    A link at `path` is replaced, and what it leads to stays as it is; a device, a pipe or a socket is written
    to, never replaced. Raises `InputError` or `MachineError` (see `cannot_write`); the file at `path` is then as
    it was.
    """
    check_name(path)
    try:
        if _is_stream(path):
            _pour(path, content)
        else:
            _replace(path, content)
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
    may, a file that somebody else holds open. Links elsewhere lead nowhere: they are replaced."""
    if path.is_symlink() and not str(path.absolute()).startswith(("/dev/", "/proc/")):
        return False
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
    building = temporary.temporary_path(path)
    try:
        with building.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and not path.is_symlink():
            building.chmod(stat.S_IMODE(path.stat().st_mode))
        building.replace(path)
        sync_folder(path.parent)
    except BaseException:
        building.unlink(missing_ok=True)
        raise
