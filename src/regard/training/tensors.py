"""Files of named tensors (safetensors): what a run's parameters and its training's state are kept in.

The header is read first and held against what is expected, so that nothing is made room for that does not belong
there. The metadata hold the config of the run that the file belongs to, and a SHA-256 of the header (names,
types, shapes, step and config) and all values. Nothing is unpickled.
"""

import hashlib
import json
import math
import os
import stat
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import safetensors.torch
import torch
from torch import Tensor

from regard.io.reading import MAX_DIGITS, DamageError, canonical_json, check_file, convert_json, parse_json

HEADER = 1 << 24
"""Bytes of a header, at most."""
LARGEST = 1 << 52
"""Values of a tensor, at most, and of one that an axis of no steps leaves empty."""
TYPES = {
    "BF16": torch.bfloat16,
    "BOOL": torch.bool,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "I8": torch.int8,
    "U8": torch.uint8,
}


class Kept(NamedTuple):
    """What is known of a tensor before it is read."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {self.shape}"


Expected = Mapping[str, Kept]


def kept(tensors: Mapping[str, Tensor], *, half: bool = False) -> dict[str, Kept]:
    """Return what a file of these tensors holds; `half`: numbers with a point in half precision."""
    return {
        name: Kept(tuple(each.shape), torch.half if half and each.is_floating_point() else each.dtype)
        for name, each in tensors.items()
    }


class _About(msgspec.Struct, forbid_unknown_fields=True):
    """What a header says of the whole file. Older files have a CRC-32 of the values instead, or nothing."""

    step: str
    config: str = ""
    sha256: str | None = None
    crc32: str | None = None


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """What a header says of a tensor."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


@dataclass(frozen=True)
class _Header:
    about: _About
    entries: dict[str, _Entry]
    begin: int
    """Where the values begin."""


class TensorFile(NamedTuple):
    """What a file of tensors holds."""

    tensors: dict[str, Tensor]
    step: int
    """Training steps behind them."""
    config: str
    """The config of their run, as JSON; in older files a checksum of it, or nothing."""
    digest: str | None
    """SHA-256 of header and values, as the file has it; None in older files."""
    intact: bool
    """Whether header and values have that digest, or the checksum of an older file; True where there is none."""


def pack(tensors: Mapping[str, Tensor], step: int, config: str = "") -> bytes:
    """Return the content of a file of tensors as of `step`; `config`: JSON of the config they belong to."""
    plain = safetensors.torch.save(dict(tensors))
    begin = 8 + int.from_bytes(plain[:8], "little")
    values = memoryview(plain)[begin:]
    entries = json.loads(plain[8:begin])
    about = {"step": str(step), "config": config}
    digest = _header_digest(about, entries)
    digest.update(values)
    about["sha256"] = digest.hexdigest()
    header = json.dumps({"__metadata__": about, **entries}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([len(header).to_bytes(8, "little"), header, values])


def warn_unfinite(tensors: Mapping[str, Tensor], where: str) -> None:
    """Warn of the first of some parameters that holds NaN or infinite numbers; `where`: the model."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.is_meta and not bool(tensor.isfinite().all()):
            warnings.warn(f"{name} of {where!r} is not finite, the first such parameter", stacklevel=3)
            return


def digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of named tensors: names, types, shapes and values, in any order."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(canonical_json([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_tensors(path: Path, expected: Expected | None = None) -> TensorFile:
    """Return what a file of tensors holds, and whether it is as it was when it was written.

    `expected`: which tensors there are to be; None for any. Raises `DamageError` where there are others, or the
    file is no whole file of tensors, and `InputError` where it cannot be read at all.
    """
    with _opened(path) as (file, size):
        header = _read_header(file, size)
        if expected is not None:
            _check_expected(header.entries, expected)
        tensors, intact = _read_values(file, header)
        return TensorFile(tensors, int(header.about.step), header.about.config, header.about.sha256, intact)


def read_about(path: Path) -> tuple[str, str | None]:
    """Return the config and the digest that stand in a file of tensors, of which nothing else is read or checked.

    Raises `DamageError` and `InputError` as `read_tensors` does.
    """
    with _opened(path) as (file, size):
        about = _read_header(file, size).about
        return about.config, about.sha256


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file of tensors; yields it and its size."""
    check_file(path)
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DamageError("it is no regular file")
            yield file, status.st_size
    except OSError as error:
        raise DamageError(f"it cannot be read: {error.strerror or 'it is cut short'}") from error


def _read_header(file: BinaryIO, size: int) -> _Header:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise DamageError("it is cut short, or no file of tensors")
    if length > HEADER:
        raise DamageError(f"its header has {length:,} bytes, at most {HEADER:,} are read")
    found = parse_json(file.read(length))
    if not isinstance(found, dict):
        raise DamageError("its header is no object")
    about = convert_json(found.pop("__metadata__", {}), _About)
    if not (about.step.isascii() and about.step.isdigit() and len(about.step) <= MAX_DIGITS):
        raise DamageError(f"its step {about.step[:MAX_DIGITS]!r} is no number")
    entries = convert_json(found, dict[str, _Entry])
    _check_places(entries, size - 8 - length)
    return _Header(about, entries, 8 + length)


def _check_places(entries: dict[str, _Entry], size: int) -> None:
    """Raise `DamageError` unless the tensors lie end to end, each as large as its shape, and fill the file."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, next_end = entry.data_offsets
        if entry.dtype not in TYPES:
            raise DamageError(f"tensor {name!r} is of unknown type {entry.dtype[:MAX_DIGITS]!r}")
        if min(entry.shape, default=0) < 0 or math.prod(max(each, 1) for each in entry.shape) > LARGEST:
            raise DamageError(f"tensor {name!r} has the shape {entry.shape}")
        if begin != end or next_end - begin != math.prod(entry.shape) * TYPES[entry.dtype].itemsize:
            raise DamageError(f"tensor {name!r} does not lie where it should")
        end = next_end
    if end != size:
        raise DamageError(f"it holds {size:,} bytes of values where its header names {end:,}")


def _check_expected(entries: Mapping[str, _Entry], expected: Expected) -> None:
    for name in expected:
        if name not in entries:
            raise DamageError(f"tensor {name!r} is missing")
    for name, entry in entries.items():
        if name not in expected:
            raise DamageError(f"tensor {name!r} does not belong there")
        found = Kept(tuple(entry.shape), TYPES[entry.dtype])
        if found != expected[name]:
            raise DamageError(f"tensor {name!r} is {found}, not {expected[name]}")


def _read_values(file: BinaryIO, header: _Header) -> tuple[dict[str, Tensor], bool]:
    """Return the tensors of a file, and whether they and the header are as they were when it was written."""
    about = header.about
    entries = {name: msgspec.to_builtins(entry) for name, entry in header.entries.items()}
    digest = _header_digest({"step": about.step, "config": about.config}, entries)
    total = zlib.crc32(f"{about.step} {about.config} ".encode())
    file.seek(header.begin)
    tensors: dict[str, Tensor] = {}
    # The tensors lie end to end (`_check_places`), so one pass reads and digests them.
    for name, entry in sorted(header.entries.items(), key=lambda item: item[1].data_offsets):
        tensor = torch.empty(entry.shape, dtype=TYPES[entry.dtype])
        values = tensor.reshape(-1).view(torch.uint8).numpy().data
        if file.readinto(values) != len(values):  # type: ignore[attr-defined]
            raise DamageError("it is cut short")
        tensors[name] = tensor
        if about.sha256 is not None:
            digest.update(values)
        elif about.crc32 is not None:
            total = zlib.crc32(values, total)
    if about.sha256 is not None:
        intact = digest.hexdigest() == about.sha256
    else:
        intact = about.crc32 is None or about.crc32 == f"{total:08x}"
    return {name: tensors[name] for name in header.entries}, intact


def _header_digest(about: Mapping[str, str], entries: Mapping[str, Any]) -> "hashlib._Hash":
    """Return a SHA-256 that has taken in a header, in whatever order its names stand."""
    return hashlib.sha256(canonical_json({"__metadata__": about, **entries}).encode())
