"""Read and check files that may be missing, damaged, or not regular files.

Every problem raises an `InputError` that states the file, the problem, and a solution. Callers of `read_json`
pass the expected type and `remedy`, the solution to report if the content has a different type.
"""

import errno
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from regard.errors import InputError, shorten

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


def list_steps(folder: Path, suffix: str = ".safetensors") -> list[Path]:
    """Return the files `step-N` with `suffix` in a folder, sorted by N. Files with other names are ignored.

    >>> list_steps(Path("a folder that does not exist"))
    []
    """
    name = re.compile(rf"step-(0|[1-9][0-9]{{0,{MAX_DIGITS - 1}}}){re.escape(suffix)}")
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
    except OSError as error:
        if error.errno in MISSING:
            raise InputError(f"file {str(path)!r} does not exist: check its name, or restore a copy") from None
        if error.errno == errno.EISDIR:
            raise InputError(
                f"{str(path)!r} is a folder, not a file: remove the folder, or choose another path"
            ) from error
        raise cannot_read(path, error) from error
    except ValueError as error:
        raise cannot_read(path, error) from error


def damaged_file(path: Path, problem: object, remedy: str) -> InputError:
    return InputError(f"{str(path)!r} is damaged: {problem}; {remedy}")


def read_text(path: Path, remedy: str, *, most: int = MAX_BYTES) -> str:
    """Return the content of a UTF-8 file. Raises `InputError` with the `remedy` for other encodings."""
    try:
        return _decode(read_bytes(path, most=most))
    except DamageError as error:
        raise damaged_file(path, error, remedy) from None


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
    try:
        return convert_json(parse_json(read_bytes(path, most=most), finite=finite), shape)
    except DamageError as error:
        raise damaged_file(path, error, remedy) from None


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
    regard.io.reading.DamageError: it contains NaN, which is not a finite number
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
    """Convert plain data to `shape`, a type that `msgspec` supports. Raises `DamageError` if the data do not
    match."""
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
