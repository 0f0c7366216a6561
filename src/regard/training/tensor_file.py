"""Tensor files (safetensors) of a run: model weights, training state, snapshots.

The header is read first and compared with the expected tensors, so that no memory is allocated for unexpected
content. The metadata contain the config of the run, and a SHA-256 digest of the header (names, dtypes, shapes,
step, config) and all values. No data are unpickled.
"""

import hashlib
import json
import math
import os
import stat
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import safetensors.torch
import torch
from torch import Tensor

from regard.io import MAX_DIGITS, DamageError, canonical_json, check_file, convert_json, parse_json

LARGEST_HEADER = 1 << 24  # Largest accepted size of a header in bytes
LARGEST = 1 << 52  # Largest accepted number of values of a tensor, where a dimension of size 0 counts as 1
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


class TensorSpec(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {self.shape}"


Expected = Mapping[str, TensorSpec]


def tensor_specs(tensors: Mapping[str, Tensor], *, half: bool = False) -> dict[str, TensorSpec]:
    """Return the shape and dtype of each tensor. `half`: whether floating-point tensors are stored in half precision.

    >>> print(tensor_specs({"bias": torch.zeros(3)})["bias"])
    float32 (3,)
    """
    return {
        name: TensorSpec(tuple(tensor.shape), torch.half if half and tensor.is_floating_point() else tensor.dtype)
        for name, tensor in tensors.items()
    }


class _Metadata(msgspec.Struct, forbid_unknown_fields=True):
    """Metadata of a file; a file without a digest is refused as edited."""

    step: str
    config: str = ""
    sha256: str | None = None


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """Header entry of a tensor."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class TensorFile(NamedTuple):
    """Content of a tensor file."""

    tensors: dict[str, Tensor]
    step: int  # Number of training steps of the tensors
    config: str  # Config of the run as JSON
    digest: str | None  # SHA-256 digest of header and values, as stored in the file; None if it was removed
    intact: bool  # Whether the content matches its digest


def pack_tensors(tensors: Mapping[str, Tensor], step: int, config: str = "") -> bytes:
    """Return the bytes of a tensor file. `config`: config of the run as JSON."""
    plain = safetensors.torch.save(dict(tensors))
    begin = 8 + int.from_bytes(plain[:8], "little")
    values = memoryview(plain)[begin:]
    entries = json.loads(plain[8:begin])
    metadata = {"step": str(step), "config": config}
    digest = _header_digest(metadata, entries)
    digest.update(values)
    metadata["sha256"] = digest.hexdigest()
    header = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([len(header).to_bytes(8, "little"), header, values])


def warn_not_finite(tensors: Mapping[str, Tensor], model: str) -> None:
    """Warn about the first parameter with NaN or infinite values. `model`: name of the model in the warning."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.is_meta and not bool(tensor.isfinite().all()):
            warnings.warn(f"{name} of {model!r} is the first parameter with values that are not finite", stacklevel=3)
            return


def digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 digest of named tensors (names, dtypes, shapes, values), independent of their order."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(canonical_json([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_tensors(path: Path, expected: Expected | None = None) -> TensorFile:
    """Read a tensor file and check its digest.

    `expected`: tensors that the file must contain; None accepts all tensors. Raises `DamageError` for
    unexpected tensors or an incomplete file, and `InputError` for a file that cannot be read.
    """
    with _opened(path) as (file, size):
        metadata, entries = _read_header(file, size)
        if expected is not None:
            _check_expected(entries, expected)
        tensors, intact = _read_values(file, metadata, entries)
        return TensorFile(tensors, int(metadata.step), metadata.config, metadata.sha256, intact)


def read_metadata(path: Path) -> tuple[str, str | None]:
    """Return the config and the digest stored in a tensor file, without reading or checking its values.

    Raises the same errors as `read_tensors`.
    """
    with _opened(path) as (file, size):
        metadata, _ = _read_header(file, size)
        return metadata.config, metadata.sha256


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a tensor file. Yields the file and its size in bytes."""
    check_file(path)
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DamageError("the path is not a regular file")
            yield file, status.st_size
    except OSError as error:
        raise DamageError(f"the file cannot be read: {error.strerror or 'its end is missing'}") from error


def _read_header(file: BinaryIO, size: int) -> tuple[_Metadata, dict[str, _Entry]]:
    """Read metadata and entries. The values follow at the position of the file."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise DamageError("the end of the file is missing, or the file is not a tensor file")
    if length > LARGEST_HEADER:
        raise DamageError(f"the file's header has {length:,} bytes, more than the limit of {LARGEST_HEADER:,}")
    content = parse_json(file.read(length))
    if not isinstance(content, dict):
        raise DamageError("the file's header is not a JSON object")
    metadata = convert_json(content.pop("__metadata__", {}), _Metadata)
    if not (metadata.step.isascii() and metadata.step.isdigit() and len(metadata.step) <= MAX_DIGITS):
        raise DamageError(f"the file's step {metadata.step[:MAX_DIGITS]!r} is not a number")
    entries = convert_json(content, dict[str, _Entry])
    _check_offsets(entries, size - 8 - length)
    return metadata, entries


def _check_offsets(entries: dict[str, _Entry], size: int) -> None:
    """Raise `DamageError` unless the tensors fill the file without gaps and the size of each tensor matches its
    shape."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, next_end = entry.data_offsets
        if entry.dtype not in TYPES:
            raise DamageError(f"tensor {name!r} is of unknown type {entry.dtype[:MAX_DIGITS]!r}")
        if min(entry.shape, default=0) < 0 or math.prod(max(length, 1) for length in entry.shape) > LARGEST:
            raise DamageError(f"tensor {name!r} has the impossible shape {entry.shape}")
        if begin != end or next_end - begin != math.prod(entry.shape) * TYPES[entry.dtype].itemsize:
            raise DamageError(f"the header gives tensor {name!r} a wrong position or size")
        end = next_end
    if end != size:
        raise DamageError(f"the file holds {size:,} bytes of values, but its header names {end:,}")


def _check_expected(entries: Mapping[str, _Entry], expected: Expected) -> None:
    for name in expected:
        if name not in entries:
            raise DamageError(f"tensor {name!r} is missing")
    for name, entry in entries.items():
        if name not in expected:
            raise DamageError(f"tensor {name!r} is not among the expected tensors")
        spec = TensorSpec(tuple(entry.shape), TYPES[entry.dtype])
        if spec != expected[name]:
            raise DamageError(f"tensor {name!r} is {spec}, not {expected[name]}")


def _read_values(file: BinaryIO, metadata: _Metadata, entries: Mapping[str, _Entry]) -> tuple[dict[str, Tensor], bool]:
    """Return the tensors of a file, and whether header and values match the digest."""
    plain = {name: msgspec.to_builtins(entry) for name, entry in entries.items()}
    digest = _header_digest({"step": metadata.step, "config": metadata.config}, plain)
    tensors: dict[str, Tensor] = {}
    # The tensors are contiguous (`_check_offsets`), so one pass reads the values and computes the digest.
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        tensor = torch.empty(entry.shape, dtype=TYPES[entry.dtype])
        values = tensor.reshape(-1).view(torch.uint8).numpy().data
        if file.readinto(values) != len(values):  # type: ignore[attr-defined]
            raise DamageError("the end of the file is missing")
        tensors[name] = tensor
        digest.update(values)
    return {name: tensors[name] for name in entries}, digest.hexdigest() == metadata.sha256


def _header_digest(metadata: Mapping[str, str], entries: Mapping[str, Any]) -> "hashlib._Hash":
    """Return a SHA-256 object for a header, independent of the order of its names."""
    return hashlib.sha256(canonical_json({"__metadata__": metadata, **entries}).encode())
