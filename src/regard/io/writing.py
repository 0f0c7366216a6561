"""Write files and folders atomically: a crash, a full disk or a killed process never damages the previous
content.

Temporary names identify the writing process, which makes the unfinished files of a dead process recognizable.

    .NAME~HOST-PID-LIFE-COUNT.new    will become NAME
    .NAME~HOST-PID-LIFE-COUNT.old    was NAME, until the new content is in place

HOST is a digest of the machine's name. A process cannot determine whether a process on another machine is
alive. The files of a dead process are therefore removed only by a process on the same machine. LIFE
distinguishes a process from an earlier process with the same number.
"""

import errno
import hashlib
import itertools
import json
import os
import re
import secrets
import shutil
import socket
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from regard.errors import InputError, MachineError, RegardError

MAX_NAME = 150  # Largest number of bytes of NAME. File systems allow names of 255 bytes.
_FORM = re.compile(
    r"\.(?P<name>.*)~(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-(?P<life>[0-9a-f]{6})-\d+\.(?P<state>new|old)", re.DOTALL
)
_count = itertools.count()
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_LIFE = secrets.token_hex(3)
USER_ERRORS = {
    *(errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENODEV, errno.ENOENT),
    *(errno.ENOTDIR, errno.ENXIO, errno.EPERM, errno.EROFS),
}
"""Error codes that a different path can avoid. All other codes are errors of the machine."""


def cannot_write(path: Path, error: OSError) -> RegardError:
    """Return a one-line error with the path that could not be written, the reason, and a solution."""
    reason = error.strerror or str(error)
    if error.errno == errno.ENXIO:
        reason = "no process reads from it"
    if error.errno == errno.ELOOP and os.path.islink(path):  # noqa: PTH114
        return _link_error(path)
    if error.errno in USER_ERRORS:
        return InputError(f"cannot write {str(path)!r}: {reason}; choose another path")
    return MachineError(f"cannot write {str(path)!r}: {reason}; the earlier content is intact")


def _link_error(path: Path) -> InputError:
    return InputError(
        f"{str(path)!r} is a link, and Regard does not follow links here: remove the link, or choose another path"
    )


def resolve_parent(path: Path) -> Path:
    """Resolve links in the parents of a path. A link at the path itself is not resolved."""
    if path.name in ("", ".."):
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent)) / path.name


def refuse_links(path: Path, *, below: Path | None = None) -> None:
    """Raise `InputError` if `path` or one of its parents inside the folder `below` is a link."""
    parents = () if below is None else (folder for folder in path.parents if below in folder.parents)
    for part in (path, *parents):
        if os.path.islink(part):  # noqa: PTH114 (Path.is_symlink raises PermissionError)
            raise _link_error(part)


def make_folder(folder: Path, *, below: Path | None = None) -> None:
    """Create a folder if it is missing. Raises `InputError` if the folder is a link (see `refuse_links`)."""
    refuse_links(folder, below=below)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def open_regular(path: Path, mode: str) -> BinaryIO:
    """Open a regular file in a binary mode. Raises `OSError` for other files, for example links."""

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EPERM, "it is not a regular file", name)
        return descriptor

    return open(path, mode, opener=opener)  # type: ignore[return-value]


def check_name(path: Path) -> None:
    """Raise `InputError` if no file can have the name `path`. An impossible name contains NUL or an unpaired
    surrogate, or refers to the parent (`..`) of a missing folder."""
    try:
        if b"\0" in os.fsencode(path):
            raise InputError(f"cannot write {str(path)!r}: a name must not contain NUL; choose another path")
    except UnicodeEncodeError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.reason}; choose another path") from error
    for index, part in enumerate(path.parts):
        if part != "..":
            continue
        parent = Path(*path.parts[:index])
        if not os.path.isdir(parent):  # noqa: PTH112 (Path.is_dir raises PermissionError)
            raise InputError(f"cannot write {str(path)!r}: folder {str(parent)!r} does not exist; choose another path")


def check_writable(*paths: Path | None) -> None:
    """Raise `InputError` if `write_file` would fail for a path, for a known reason. No file is created."""
    for path in filter(None, paths):
        check_name(path)
        try:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not _is_stream(path):
                _check_permission(resolve_parent(path).parent)
        except OSError as error:
            raise cannot_write(path, error) from error


def refuse_input(output: Path, inputs: Iterable[Path | None]) -> None:
    """Raise `InputError` if an output file is also an input, which would be lost."""
    for path in inputs:
        if path is not None and output.exists() and path.exists() and output.samefile(path):
            raise InputError(f"{str(output)!r} is also an input, and would be lost: name another output file")


def _check_permission(folder: Path) -> None:
    """Raise `OSError` if a path is not a folder or not writable."""
    if not folder.is_dir():
        number = errno.ENOTDIR if os.path.lexists(folder) else errno.ENOENT
        raise OSError(number, os.strerror(number))
    if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def check_folder(folder: Path) -> None:
    """Raise `InputError` if no files can be written to a folder, which may be missing."""
    check_name(folder)
    path = folder.absolute()
    try:
        _check_permission(next(part for part in (path, *path.parents) if os.path.lexists(part)))
    except OSError as error:
        raise cannot_write(folder, error) from error


def write_new(contents: Mapping[Path, bytes]) -> list[Path]:
    """Write new files and their folders, and return their paths. Existing files are never overwritten. Raises
    `InputError` before anything is written if a file exists or cannot be written."""
    for path in contents:
        check_name(path)
        if os.path.lexists(path):
            raise InputError(f"file {str(path)!r} exists already: choose another folder")
        check_folder(path.parent)
    for path, content in contents.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path.parent, error) from error
        write_file(path, content)
    return list(contents)


def write_file(path: Path, content: bytes) -> None:
    """Replace the file at `path` atomically: temporary file, flush, fsync, rename.

    A link at `path` is replaced, and its target is unchanged. A device, a pipe or a socket is written directly.
    On failure, `InputError` or `MachineError` is raised (see `cannot_write`), and the file is unchanged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(Path(folder, "name"), b"content")
    ...     Path(folder, "name").read_bytes()
    b'content'
    """
    check_name(path)
    try:
        if not _is_stream(path):
            _replace(path, content)
            return
        # With O_NONBLOCK, opening a pipe without a reader fails instead of blocking.
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
        with os.fdopen(descriptor, "wb") as file:
            os.set_blocking(descriptor, True)
            file.write(content)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_json(path: Path, content: Any, *, indent: int = 2, allow_nan: bool = True) -> None:
    """Replace the file at `path` atomically by `content` as JSON (see `write_file`). NaN and infinity are
    written as in Python's `json`. Without `allow_nan`, NaN and infinity raise `ValueError`, and the file is
    unchanged."""
    write_file(path, (json.dumps(content, indent=indent, allow_nan=allow_nan) + "\n").encode())


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk if the file system supports it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows cannot open folders
        return
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


def _is_stream(path: Path) -> bool:
    """Return whether `path` cannot be replaced: a device, a pipe, a socket, or a file open under /dev/std*,
    /dev/fd or /proc. Links elsewhere are replaced."""
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


def _replace(path: Path, content: bytes) -> None:
    tidy(path.parent)
    building = temporary_path(path)
    try:
        with building.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # The new file has the permissions of the old file.
        if path.exists() and not path.is_symlink():
            building.chmod(stat.S_IMODE(path.stat().st_mode))
        # Flush the rename too, because a power failure could otherwise undo it.
        building.replace(path)
        sync_folder(path.parent)
    except BaseException:
        building.unlink(missing_ok=True)
        raise


def temporary_path(path: Path, state: str = "new") -> Path:
    """Return a unique path beside `path` for its future (new) or former (old) content.

    >>> temporary_path(Path("models/run")).name.startswith(".run~")
    True
    """
    name = os.fsdecode(os.fsencode(path.name)[:MAX_NAME])
    return path.with_name(f".{name}~{_HOST}-{os.getpid()}-{_LIFE}-{next(_count)}.{state}")


def tidy(folder: Path) -> None:
    """Remove the unfinished files of dead processes of this machine in `folder`, and restore the old content that
    they had renamed. An unreadable folder is left unchanged."""
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(".")]
    except (OSError, ValueError):  # ValueError: an impossible name
        return
    for name in names:
        parts = _FORM.fullmatch(name)
        if not parts or parts["host"] != _HOST or _is_alive(int(parts["pid"]), parts["life"]):
            continue
        original = folder / parts["name"]
        whole = len(os.fsencode(parts["name"])) < MAX_NAME  # else the name was shortened
        if parts["state"] == "old" and whole and not original.exists():
            with suppress(OSError):  # the next process repeats the attempt
                (folder / name).rename(original)
        else:
            remove_quietly(folder / name)


def remove_quietly(path: Path) -> None:
    """Remove a file or a folder, and ignore errors. A later call can remove the remaining files."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_alive(pid: int, life: str) -> bool:
    if pid == os.getpid():
        return life == _LIFE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True  # a process of another user, or an impossible number
    return True


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
    building = temporary_path(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        tidy(place.parent)
        building.mkdir()
        yield building
        # Flush all files to the disk before the rename, which must not become permanent first.
        for parent, _, names in os.walk(building):
            for name in names:
                with Path(parent, name).open("rb") as file:
                    os.fsync(file.fileno())
            sync_folder(Path(parent))
        # Two renames. If the process dies between them, `tidy` restores the old name.
        old = temporary_path(place, "old") if os.path.lexists(place) else None
        if old is not None:
            place.rename(old)
        try:
            building.rename(place)
        except OSError:
            if old is not None:
                old.rename(place)
            raise
        if old is not None:
            remove_quietly(old)
        sync_folder(place.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        remove_quietly(building)


def write_inside(folder: Path, path: Path, content: bytes) -> None:
    """Replace the file at `path` in `folder` or in a subfolder, which is created if it is missing. Raises
    `InputError` if the subfolder is a link, and `MachineError` if `folder` is missing or the file cannot be
    written."""
    with explain_missing_folder(folder):
        if path.parent != folder:
            refuse_links(path.parent)
            try:
                path.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise cannot_write(path.parent, error) from error
        write_file(path, content)


def append_inside(folder: Path, path: Path, content: bytes) -> None:
    """Append `content` to the file at `path` in `folder`. Raises the same errors as `write_inside`, and
    `InputError` if the file is a link."""
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
