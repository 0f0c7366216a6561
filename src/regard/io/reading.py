"""Reading files that may be missing, damaged, foreign, or no files at all: each kind in one place.

What is read here is checked before it is used, and all that can be wrong with it is one `InputError` that names
the file, what is wrong, and the way out. The rooms add what they know: `read_json` takes the shape that a file is
to have, `mend` says what to do where it has another.
"""

import errno
import hashlib
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from regard.errors import InputError, shorten

Shape = TypeVar("Shape")

LARGEST = 1 << 28
"""Bytes of a file that is read as a whole."""
DEEPEST = 24
"""Lists and objects within each other."""
DIGITS = 20
"""Of a whole number."""
NOT_THERE = {errno.ENOENT, errno.ENOTDIR}
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
"""What JSON's types are called."""


class DamageError(ValueError):
    """What is wrong with the content of a file, in a few words."""


def cannot_read(path: Path, error: OSError | ValueError) -> InputError:
    """Return the error that says why `path` could not be read, and what to do."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EACCES, errno.EPERM):
        return InputError(f"cannot read {str(path)!r}: permission denied; change its permissions, or use a copy")
    if number == errno.ENAMETOOLONG:
        name = str(path)
        return InputError(f"cannot read {name[:80] + '…'!r}: a name of {len(name)} characters is too long")
    if number is None:
        return InputError(f"cannot read {str(path)!r}: no file can have that name; choose another")
    reason = error.strerror if isinstance(error, OSError) else None
    return InputError(f"cannot read {str(path)!r}: {reason or error}; restore a copy, or choose another file")


def _status(path: Path) -> os.stat_result | None:
    """Return what the file system says of a path; None where there is nothing. Raises `InputError` where it does
    not say."""
    try:
        return path.stat()
    except OSError as error:
        if error.errno in NOT_THERE:
            return None
        raise cannot_read(path, error) from error
    except ValueError as error:
        raise cannot_read(path, error) from error


def is_file(path: Path) -> bool:
    """Whether there is a regular file; raises `InputError` where one may not look."""
    found = _status(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_folder(path: Path) -> bool:
    """Whether there is a folder; raises `InputError` where one may not look."""
    found = _status(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def check_file(path: Path) -> int:
    """Return the size of a regular file; raises `InputError` where there is none, or it may not be read."""
    found = _status(path)
    if found is None:
        raise InputError(f"file {str(path)!r} does not exist: check its name")
    if not stat.S_ISREG(found.st_mode):
        raise _no_file(path, found)
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise cannot_read(path, PermissionError(errno.EACCES, "Permission denied"))
    return found.st_size


def _no_file(path: Path, status: os.stat_result) -> InputError:
    what = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
    return InputError(f"{str(path)!r} is {what}, not a file: remove it, or choose another")


def list_files(folder: Path) -> list[Path]:
    """Return the regular files in a folder, by name; none where there is no folder. Raises `InputError` where it
    may not be read."""
    if not is_folder(folder):
        return []
    try:
        return sorted(path for path in folder.iterdir() if is_file(path))
    except OSError as error:
        raise cannot_read(folder, error) from error


def list_steps(folder: Path, suffix: str = ".safetensors") -> list[Path]:
    """Return the files `step-N` with this suffix in a folder, lowest N first; what has another name is none of
    ours."""
    name = re.compile(rf"step-(0|[1-9][0-9]{{0,{DIGITS - 1}}}){re.escape(suffix)}")
    found = [(int(match[1]), path) for path in list_files(folder) if (match := name.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def read_bytes(path: Path, *, most: int = LARGEST) -> bytes:
    """Return what is in a file of at most so many bytes.

    Raises `InputError` where it is missing, larger, not to be read, or no regular file: of a pipe one would wait
    for ever.
    """
    try:
        # Not to wait for whoever opens the other end of a pipe.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _no_file(path, status)
            if status.st_size > most:
                raise InputError(
                    f"{str(path)!r} has {status.st_size:,} bytes, at most {most:,} are read: restore a copy"
                )
            return file.read()
    except OSError as error:
        if error.errno in NOT_THERE:
            raise InputError(f"file {str(path)!r} does not exist: check its name, or restore a copy") from None
        if error.errno == errno.EISDIR:
            raise InputError(f"{str(path)!r} is a folder, not a file: remove it, or choose another") from error
        raise cannot_read(path, error) from error
    except ValueError as error:
        raise cannot_read(path, error) from error


def damaged_file(path: Path, what: object, mend: str) -> InputError:
    """Return the error that says what is wrong with a file, and what to do about it."""
    return InputError(f"{str(path)!r} is damaged: {what}; {mend}")


def read_text(path: Path, mend: str, *, most: int = LARGEST) -> str:
    """Return a file of UTF-8; raises `InputError` where it is none, with `mend` for what to do."""
    try:
        return _decode(read_bytes(path, most=most))
    except DamageError as error:
        raise damaged_file(path, error, mend) from None


def read_json(path: Path, shape: type[Shape], mend: str, *, most: int = LARGEST, finite: bool = True) -> Shape:
    """Return what a file of JSON holds, as `shape` has it; raises `InputError` as `read_bytes` does, and where it
    is of another shape. The rest is as in `parse_json`."""
    try:
        return convert_json(parse_json(read_bytes(path, most=most), finite=finite), shape)
    except DamageError as error:
        raise damaged_file(path, error, mend) from None


def canonical_json(content: Any) -> str:
    """Return plain data as JSON text that does not depend on the order of names or on blanks."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def json_digest(content: Any) -> str:
    """Return the SHA-256 of plain data, in hexadecimal digits."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def add_digest(content: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its digest in it, as `has_valid_digest` checks it.

    write_json(path, sealed({"step": 5}))
    """
    content = {name: value for name, value in content.items() if name != "digest"}
    return {**content, "digest": json_digest(content)}


def has_valid_digest(content: dict[str, Any]) -> bool:
    """Whether an object carries a digest, and has not changed since that was computed."""
    return content.get("digest") == json_digest({name: content[name] for name in content if name != "digest"})


def parse_json(content: bytes | str, *, finite: bool = True) -> Any:
    """Return what JSON says; raises `DamageError` for what is none, and for names that come twice, great depth,
    and, where they are to be `finite`, numbers that are not."""
    text = _decode(content) if isinstance(content, bytes) else content
    try:
        found = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_whole,
            parse_float=_finite if finite else float,
            parse_constant=_finite if finite else float,
        )
    except RecursionError:
        raise DamageError("it is nested too deep") from None
    except json.JSONDecodeError as error:
        raise DamageError(f"it is not JSON at line {error.lineno}, column {error.colno}") from None
    _check_depth(found)
    return found


def convert_json(value: object, shape: type[Shape]) -> Shape:
    """Return plain data as `shape` has it: a type that `msgspec` knows. Raises `DamageError` where it is of
    another one."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise DamageError(_our_words(str(error))) from None
    except UnicodeEncodeError:
        raise DamageError("a text in it holds half a character") from None


def _decode(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DamageError(f"it is not UTF-8 at byte {error.start}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DamageError(f"{shorten(twice)} stands in it twice")
    return found


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise DamageError(f"a number in it has {len(digits)} digits")
    return int(digits)


def _finite(digits: str) -> float:
    if not math.isfinite(found := float(digits)):
        raise DamageError(f"{digits[:DIGITS]} in it is no finite number")
    return found


def _check_depth(value: object) -> None:
    level, depth = [value], 0
    while level := [each for one in level if isinstance(one, list | dict) for each in _inside(one)]:
        depth += 1
        if depth > DEEPEST:
            raise DamageError("it is nested too deep")


def _inside(one: "list[Any] | dict[str, Any]") -> "list[Any]":
    found = one.values() if isinstance(one, dict) else one
    return [each for each in found if isinstance(each, list | dict)]


def _our_words(said: str) -> str:
    """Put what `msgspec` says of a value into our words."""
    said, _, where = said.partition(" - at ")
    place = where.strip("`").removeprefix("$").removeprefix(".")
    at = f" in {shorten(place)}" if place else ""
    if kind := re.fullmatch(r"Expected `(.+)`, got `(.+)`", said):
        expected = " or ".join(TYPES.get(each, each) for each in kind[1].split(" | "))
        got = TYPES.get(kind[2], kind[2])
        return f"{shorten(place) if place else 'it'} is {got}, not {expected}"
    if named := re.fullmatch(r"Object contains unknown field `(.*)`", said, re.DOTALL):
        return f"{shorten(named[1])}{at} is unknown"
    if named := re.fullmatch(r"Object missing required field `(.*)`", said):
        return f"{shorten(named[1])}{at} is missing"
    return f"{shorten(place) if place else 'it'} has a value that does not belong there"
