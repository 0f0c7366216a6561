"""Files of named tensors (safetensors): what a run's parameters and its training's state are kept in.

The header is read first and held against what is expected, so that nothing is made room for that does not belong
there; and a checksum (CRC-32 of the step, the config's sum and all values) finds what has changed on disk since.
Nothing is unpickled.
"""

import json
import math
import os
import stat
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import safetensors.torch
import torch
from torch import Tensor

from regard.reading import DIGITS, DamageError, check_file, parse_json, shaped

HEADER = 1 << 24
"""Bytes of a header, at most."""
PART = 1 << 22
"""Bytes that are read at once to be summed."""
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
    """What a header says of the whole file; files from before there were sums have none."""

    step: str
    config: str = ""
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


def pack(tensors: Mapping[str, Tensor], step: int, config: str = "") -> bytes:
    """Return the content of a file of tensors as of `step`; `config`: the sum of the config they belong to."""
    plain = safetensors.torch.save(dict(tensors))
    begin = 8 + int.from_bytes(plain[:8], "little")
    values = memoryview(plain)[begin:]
    about = {"step": str(step), "config": config, "crc32": _hex(zlib.crc32(values, _first(str(step), config)))}
    header = json.dumps({"__metadata__": about, **json.loads(plain[8:begin])}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([len(header).to_bytes(8, "little"), header, values])


def warn_unfinite(tensors: Mapping[str, Tensor], where: str) -> None:
    """Warn of the first of some parameters that holds NaN or infinite numbers; `where`: the model."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.is_meta and not bool(tensor.isfinite().all()):
            warnings.warn(f"{name} of {where!r} is not finite, the first such parameter", stacklevel=3)
            return


def read_tensors(path: Path, expected: Expected | None = None) -> tuple[dict[str, Tensor], int, str]:
    """Return the tensors of a file, the step they belong to, and the sum of their config.

    `expected`: which there are to be; None for any. Raises `DamageError` where the file holds anything else or
    has changed since it was written, and `InputError` where it cannot be read at all.
    """
    check_file(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno())
            if not stat.S_ISREG(size.st_mode):
                raise DamageError("it is no regular file")
            header = _read_header(file, size.st_size)
            if expected is not None:
                _check_expected(header.entries, expected)
            _check_sum(file, header)
            tensors = {name: _read_values(file, header.begin, entry) for name, entry in header.entries.items()}
    except OSError as error:
        raise DamageError(f"it cannot be read: {error.strerror or 'it is cut short'}") from error
    return tensors, int(header.about.step), header.about.config


def _read_header(file: BinaryIO, size: int) -> _Header:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise DamageError("it is cut short, or no file of tensors")
    if length > HEADER:
        raise DamageError(f"its header has {length:,} bytes, at most {HEADER:,} are read")
    found = parse_json(file.read(length))
    if not isinstance(found, dict):
        raise DamageError("its header is no object")
    about = shaped(found.pop("__metadata__", {}), _About)
    if not (about.step.isascii() and about.step.isdigit() and len(about.step) <= DIGITS):
        raise DamageError(f"its step {about.step[:DIGITS]!r} is no number")
    entries = shaped(found, dict[str, _Entry])
    _check_places(entries, size - 8 - length)
    return _Header(about, entries, 8 + length)


def _check_places(entries: dict[str, _Entry], size: int) -> None:
    """Raise `DamageError` unless the tensors lie end to end, each as large as its shape, and fill the file."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, next_end = entry.data_offsets
        if entry.dtype not in TYPES:
            raise DamageError(f"tensor {name!r} is of unknown type {entry.dtype[:DIGITS]!r}")
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


def _check_sum(file: BinaryIO, header: _Header) -> None:
    if header.about.crc32 is None:
        return
    file.seek(header.begin)
    total = _first(header.about.step, header.about.config)
    while part := file.read(PART):
        total = zlib.crc32(part, total)
    if _hex(total) != header.about.crc32:
        raise DamageError("it has changed since it was written (its checksum differs)")


def _read_values(file: BinaryIO, begin: int, entry: _Entry) -> Tensor:
    """Return a tensor of the file that was checked: of that one, whatever has its name by now."""
    tensor = torch.empty(entry.shape, dtype=TYPES[entry.dtype])
    values = tensor.reshape(-1).view(torch.uint8).numpy().data
    file.seek(begin + entry.data_offsets[0])
    if file.readinto(values) != len(values):  # type: ignore[attr-defined]
        raise DamageError("it is cut short")
    return tensor


def _first(step: str, config: str) -> int:
    return zlib.crc32(f"{step} {config} ".encode())


def _hex(total: int) -> str:
    return f"{total:08x}"
