"""Read, write and lock files, which may be missing, damaged, or not regular files.

Every problem raises an `InputError` that states the file, the problem, and a solution. Callers of `read_json`
pass the expected type and `remedy`, the solution to report if the content has a different type.
"""

import errno
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import msgspec

from regard.errors import InputError, MachineError, RegardError, shorten

Shape = TypeVar("Shape")

MAX_BYTES = 1 << 28  # Largest size of a file that is read as a whole, in bytes
MAX_DEPTH = 24  # Largest nesting depth of lists and objects
MAX_DIGITS = 20  # Largest number of digits of an integer
MISSING = {errno.ENOENT, errno.ENOTDIR}
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
TYPES = {
    "NoneType": "null",
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a text",
}
"""Names of JSON types in messages."""


class DamageError(ValueError):
    """Raised with a short description of a problem in the content of a file. Callers convert a `DamageError` to
    an `InputError` with the name of the file."""


def cannot_read(path: Path, error: OSError | ValueError) -> InputError:
    """Return a one-line error with the path that could not be read, the reason, and a solution."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EACCES, errno.EPERM):
        return InputError(f"cannot read {str(path)!r}: permission denied; change its permissions, or use a copy")
    if number == errno.ENAMETOOLONG:
        name = str(path)
        return InputError(f"cannot read {name[:80] + '…'!r}: its name of {len(name)} characters is too long")
    if number in MISSING:
        return InputError(f"file {str(path)!r} does not exist: check its name")
    if number is None:
        return InputError(f"cannot read {str(path)!r}: no file can have that name; choose another name")
    reason = error.strerror if isinstance(error, OSError) else None
    copy = "" if number == errno.EISDIR else "restore the file from a copy, or "
    return InputError(f"cannot read {str(path)!r}: {reason or error}; {copy}choose another file")


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a path, or None if it does not exist. Raises `InputError` without permission."""
    try:
        return path.stat()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in MISSING:
            return None
        raise cannot_read(path, error) from error


def is_file(path: Path) -> bool:
    """Return whether `path` is a regular file. Raises `InputError` without permission."""
    status = _status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def is_folder(path: Path) -> bool:
    """Return whether `path` is a folder. Raises `InputError` without permission."""
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def check_file(path: Path) -> int:
    """Return the size of a regular file. Raises `InputError` if the file is missing or cannot be read."""
    status = _status(path)
    if status is None:
        raise InputError(f"file {str(path)!r} does not exist: check its name")
    if not stat.S_ISREG(status.st_mode):
        raise _not_a_file(path, status)
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise cannot_read(path, PermissionError(errno.EACCES, "Permission denied"))
    return status.st_size


def _not_a_file(path: Path, status: os.stat_result) -> InputError:
    kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
    return InputError(f"{str(path)!r} is {kind}, not a file: remove it, or choose another path")


def list_files(folder: Path) -> list[Path]:
    """Return the regular files in a folder, sorted. Returns an empty list for a missing folder. Raises
    `InputError` if the folder cannot be read."""
    if not is_folder(folder):
        return []
    try:
        return sorted(path for path in folder.iterdir() if is_file(path))
    except OSError as error:
        raise cannot_read(folder, error) from error


def list_steps(folder: Path) -> list[Path]:
    """Return the files `step-N.safetensors` in a folder, sorted by N. Files with other names are ignored.

    >>> list_steps(Path("a folder that does not exist"))
    []
    """
    name = re.compile(rf"step-(0|[1-9][0-9]{{0,{MAX_DIGITS - 1}}})\.safetensors")
    steps = [(int(match[1]), path) for path in list_files(folder) if (match := name.fullmatch(path.name))]
    return [path for _, path in sorted(steps)]


def read_bytes(path: Path, *, most: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Raises `InputError` if the file is missing,
    larger, unreadable, or not a regular file. Opening a pipe does not block."""
    try:
        # O_NONBLOCK: do not wait for a process that writes to a pipe.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _not_a_file(path, status)
            if status.st_size > most:
                raise InputError(
                    f"{str(path)!r} has {status.st_size:,} bytes, but at most {most:,} bytes are read: "
                    f"restore the file from a copy"
                )
            return file.read()
    except IsADirectoryError:
        raise _not_a_file(path, path.stat()) from None
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error


def damaged_file(path: Path | str, problem: object, remedy: str) -> InputError:
    name = path if isinstance(path, str) else repr(str(path))
    return InputError(f"{name} is damaged: {problem}; {remedy}")


@contextmanager
def damage_errors(path: Path | str, remedy: str) -> Iterator[None]:
    """Convert a `DamageError` of the block, which reads `path`, to the error of `damaged_file`. `path` is a text if
    what is read is not a file."""
    try:
        yield
    except DamageError as error:
        raise damaged_file(path, error, remedy) from error


def read_text(path: Path, remedy: str, *, most: int = MAX_BYTES) -> str:
    """Return the content of a UTF-8 file. Raises `InputError` with the `remedy` for other encodings."""
    with damage_errors(path, remedy):
        return _decode(read_bytes(path, most=most))


def read_json(path: Path, shape: type[Shape], remedy: str, *, most: int = MAX_BYTES, finite: bool = True) -> Shape:
    """Return the content of a JSON file as `shape`, a type that `msgspec` supports.

    Raises the same errors as `read_bytes`, and `InputError` with the `remedy` for content of a different type.
    `finite`: see `parse_json`.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b'{"step": 5}')
    ...     file.flush()
    ...     read_json(Path(file.name), dict[str, int], "restore a copy")
    {'step': 5}
    """
    with damage_errors(path, remedy):
        return convert_json(parse_json(read_bytes(path, most=most), finite=finite), shape)


def read_json_lines(path: Path, shape: type[Shape], remedy: str) -> Iterator[Shape]:
    """Yield the objects of a file with one JSON object in each line, without a truncated last line. Raises `InputError`
    with the number of a damaged line and the `remedy`."""
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], start=1):
        try:
            value = convert_json(parse_json(line), shape)
        except DamageError as error:
            raise damaged_file(path, f"line {number}: {error}", remedy) from error
        yield value


def read_stored(path: Path, shape: type[Shape], name: str, remedy: str) -> Shape:
    """Return a JSON file that was written with `add_digest` and has a field `name`, as `shape`. Raises
    `InputError` as `read_json`, and if the content was changed, or belongs to another `name`."""
    stored: Any = read_json(path, shape, remedy)
    if not has_valid_digest(msgspec.to_builtins(stored)):
        raise damaged_file(path, "it has changed since it was written", remedy)
    if stored.name != name:
        raise damaged_file(path, f"it is {stored.name}, under another name", remedy)
    return cast("Shape", stored)


def canonical_json(content: Any) -> str:
    """Return plain data as JSON text that does not depend on the order of keys.

    >>> canonical_json({"b": 1, "a": [2]})
    '{"a":[2],"b":1}'
    """
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def json_digest(content: Any) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def add_digest(content: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an object with its digest, which `has_valid_digest` checks.

    >>> has_valid_digest(add_digest({"step": 5}))
    True
    """
    content = without_digest(content)
    return {**content, "digest": json_digest(content)}


def without_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of an object without its digest."""
    return {name: value for name, value in content.items() if name != "digest"}


def has_valid_digest(content: dict[str, Any]) -> bool:
    return content.get("digest") == json_digest(without_digest(content))


def parse_json(content: bytes | str, *, finite: bool = True) -> Any:
    """Parse JSON. Raises `DamageError` for invalid JSON, duplicate keys and deep nesting. With `finite`, NaN
    and infinity also raise an error.

    >>> parse_json('{"a": NaN}')
    Traceback (most recent call last):
    regard.io.DamageError: it contains NaN, which is not a finite number
    """
    text = _decode(content) if isinstance(content, bytes) else content
    try:
        value = json.loads(
            text,
            object_pairs_hook=_make_object,
            # Python's conversion of an integer takes quadratic time in the number of digits.
            parse_int=_parse_integer,
            parse_float=_parse_finite if finite else float,
            parse_constant=_parse_finite if finite else float,
        )
    except RecursionError:
        raise DamageError("its JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise DamageError(f"it is not valid JSON at line {error.lineno}, column {error.colno}") from None
    level, depth = [value] if isinstance(value, list | dict) else [], 0
    while level := [
        child
        for parent in level
        for child in (parent.values() if isinstance(parent, dict) else parent)
        if isinstance(child, list | dict)
    ]:
        depth += 1
        if depth > MAX_DEPTH:
            raise DamageError("its JSON is nested too deeply")
    return value


def convert_json(value: object, shape: type[Shape]) -> Shape:
    """Convert plain data to `shape`, a type that `msgspec` supports. Raises `DamageError` if the data do not match."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise DamageError(_translate_error(str(error))) from None
    except UnicodeEncodeError:
        raise DamageError("it contains an unpaired surrogate") from None


def _decode(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DamageError(f"it is not UTF-8 at byte {error.start}") from None


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise DamageError(f"{shorten(duplicate)} occurs twice")
    return content


def _parse_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise DamageError(f"it contains a number with {len(digits)} digits")
    return int(digits)


def _parse_finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise DamageError(f"it contains {digits[:MAX_DIGITS]}, which is not a finite number")
    return number


def _translate_error(message: str) -> str:
    """Convert a message of `msgspec` to the form of Regard's errors."""
    message, _, where = message.partition(" - at ")
    field = where.strip("`").removeprefix("$").removeprefix(".")
    at = f" in {shorten(field)}" if field else ""
    if match := re.fullmatch(r"Expected `(.+)`, got `(.+)`", message):
        expected = " or ".join(TYPES.get(kind, kind) for kind in match[1].split(" | "))
        return f"{shorten(field) if field else 'it'} is {TYPES.get(match[2], match[2])}, not {expected}"
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL):
        return f"{shorten(match[1])}{at} is unknown"
    if match := re.fullmatch(r"Object missing required field `(.*)`", message):
        return f"{shorten(match[1])}{at} is missing"
    return f"{shorten(field) if field else 'it'} has an invalid value"


# Write files and folders atomically: a crash, a full disk or a killed process never damages earlier content.
#
# Temporary names identify the writing process, which makes the unfinished files of a dead process recognizable.
#
#     .NAME~HOST-PID-LIFE-COUNT.new    will become NAME
#     .NAME~HOST-PID-LIFE-COUNT.old    was NAME, until the new content is in place
#
# HOST is a digest of the machine's name. A process cannot determine whether a process on another machine is
# alive. The files of a dead process are therefore removed only by a process on the same machine. LIFE
# distinguishes a process from an earlier process with the same number.


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


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Convert an `OSError` of the block, which writes `path`, to the error of `cannot_write`."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def _link_error(path: Path) -> InputError:
    return InputError(
        f"{str(path)!r} is a link, and Regard does not follow links here: remove the link, or choose another path"
    )


def _resolve_parent(path: Path) -> Path:
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
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


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
        problem = "a name must not contain NUL" if b"\0" in os.fsencode(path) else ""
    except UnicodeEncodeError as error:
        problem = error.reason
    for index, part in enumerate(path.parts if not problem else ()):
        parent = Path(*path.parts[:index])
        if part == ".." and not os.path.isdir(parent):  # noqa: PTH112 (Path.is_dir raises PermissionError)
            problem = f"folder {str(parent)!r} does not exist"
    if problem:
        raise InputError(f"cannot write {str(path)!r}: {problem}; choose another path")


def check_writable(*paths: Path | None) -> None:
    """Raise `InputError` if `write_file` would fail for a path, for a known reason. No file is created."""
    for path in filter(None, paths):
        check_name(path)
        with write_errors(path):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not _is_stream(path):
                _check_permission(_resolve_parent(path).parent)


def refuse_input(output: Path, inputs: Iterable[Path | None]) -> None:
    """Raise `InputError` if an output file is also an input, which would be lost."""
    for path in inputs:
        if path is not None and output.exists() and path.exists() and output.samefile(path):
            raise InputError(f"{str(output)!r} is also an input, and would be lost: name another output file")


def _check_permission(folder: Path) -> None:
    if not folder.is_dir():
        number = errno.ENOTDIR if os.path.lexists(folder) else errno.ENOENT
        raise OSError(number, os.strerror(number))
    if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def check_folder(folder: Path) -> None:
    """Raise `InputError` if no files can be written to a folder, which may be missing."""
    check_name(folder)
    path = folder.absolute()
    with write_errors(folder):
        _check_permission(next(part for part in (path, *path.parents) if os.path.lexists(part)))


def write_new(contents: Mapping[Path, bytes]) -> list[Path]:
    """Write new files and their folders, and return their paths. Existing files are never overwritten. Raises
    `InputError` before anything is written if a file exists or cannot be written."""
    for path in contents:
        check_name(path)
        if os.path.lexists(path):
            raise InputError(f"file {str(path)!r} exists already: rename it, or work in another folder")
        check_folder(path.parent)
    for path, content in contents.items():
        with write_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
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
    with write_errors(path):
        if not _is_stream(path):
            _replace(path, content)
            return
        # With O_NONBLOCK, opening a pipe without a reader fails instead of blocking.
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
        with os.fdopen(descriptor, "wb") as file:
            os.set_blocking(descriptor, True)
            file.write(content)


def write_json(path: Path, content: Any, *, indent: int = 2, allow_nan: bool = True) -> None:
    """Replace the file at `path` atomically by `content` as JSON (see `write_file`). NaN and infinity are written as in
    Python's `json`. Without `allow_nan`, NaN and infinity raise `ValueError`, and the file is unchanged."""
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
    place = _resolve_parent(path)
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
    """Replace the file at `path` in `folder` or in a subfolder, which is created if it is missing. Raises `InputError`
    if the subfolder is a link, and `MachineError` if `folder` is missing or the file cannot be written."""
    with explain_missing_folder(folder):
        if path.parent != folder:
            refuse_links(path.parent)
            with write_errors(path.parent):
                path.parent.mkdir(exist_ok=True)
        write_file(path, content)


def append_inside(folder: Path, path: Path, content: bytes) -> None:
    """Append `content` to the file at `path` in `folder`. Raises the same errors as `write_inside`, and
    `InputError` if the file is a link."""
    with explain_missing_folder(folder), write_errors(path), open_regular(path, "ab") as file:
        file.write(content)


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


# Locks that let only one process at a time change a folder. Readers need no lock, because writes are atomic.
#
#     .NAME.lock beside the folder NAME: locked while a process changes the folder, contains the name of this
#     process
#
# The operating system manages the lock (through filelock), so the lock ends with its process. On file systems
# without locks, no lock is acquired.


PAUSE = 0.2  # Seconds between two attempts to acquire a lock
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # Error codes of file systems without locks


class BusyError(InputError):
    """Raised if another process is changing a path."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(
            f"{str(path)!r} is being written by {holder}: wait until that process ends, or choose another folder"
        )
        self.path, self.holder = path, holder


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Prevent all other processes from changing the folder at `path`, which may be missing.

    Raises `InputError` if another process is changing the folder, with the number and the machine of this
    process. Also raises `InputError` if the lock file cannot be written.

    >>> with hold_lock(Path("models/counting")):
    ...     pass
    """
    from filelock import FileLock, Timeout  # importing filelock takes 0.1 s

    check_name(path)
    file = _lock_file(_resolve_parent(path))
    lock, created = FileLock(file, blocking=False), list[Path]()
    try:
        created = [folder for folder in file.parents if not folder.exists()]
        file.parent.mkdir(parents=True, exist_ok=True)
        # The lock writes the name of its holder, which must not end up in another file.
        with suppress(FileNotFoundError):  # its holder may remove it at any time
            status = file.lstat()
            is_link = stat.S_ISLNK(status.st_mode) or status.st_nlink > 1
            if is_link or not stat.S_ISREG(status.st_mode):
                kind = "a link, and Regard does not follow links here" if is_link else "no regular file"
                raise InputError(f"lock file {str(file)!r} is {kind}: remove it")
        lock.acquire()
        since = f"{datetime.now():%Y-%m-%d %H:%M}"
        holder = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        file.write_text(json.dumps(holder))
    except Timeout:
        owner = "another process"
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(file.read_text())
            owner = f"process {known['process']} on {known['host']} since {known['since']}"
        raise BusyError(path, owner) from None
    except OSError as error:
        lock.release()
        if error.errno not in NO_LOCKS:
            raise cannot_write(path, error) from error
    try:
        yield
    finally:
        # Remove the lock file while it is locked, because later the file may be the lock of another process.
        if lock.is_locked:
            file.unlink(missing_ok=True)
        lock.release()
        with suppress(OSError):  # a folder that is not empty is not removed
            for folder in created:
                folder.rmdir()


def _lock_file(path: Path) -> Path:
    name = os.fsdecode(os.fsencode(path.name)[:MAX_NAME])
    return path.parent / f".{name}.lock"


def build_once(
    path: Path, is_complete: Callable[[], bool], build: Callable[[], object], *, on_wait: Callable[[str], None]
) -> None:
    """Build the file or folder at `path`, unless it is complete. Waits for another process that builds it.
    `on_wait` is called once with a message if the process waits. The lock file of a killed process is removed.
    Raises `InputError` if the lock file cannot be written."""
    if is_complete():
        if os.path.lexists(_lock_file(path)):
            with suppress(InputError), hold_lock(path):
                pass
        return
    reported = False
    while True:
        try:
            with hold_lock(path):
                if not is_complete():  # another process may have built it during the wait
                    build()
                return
        except BusyError as busy:
            if busy.path != path:
                raise
            if not reported:
                on_wait(f"waiting: {str(path)!r} is being written by {busy.holder}")
            reported = True
            time.sleep(PAUSE)
