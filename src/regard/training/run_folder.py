"""Folder with the files of a run.

    config.json                   the config
    model.safetensors             weights to use, and their step
    trainer/step-N.safetensors    training state: parameters, optimizer, generator, position in the data
    metrics.jsonl                 one JSON object per line: step, loss, exact match, learning rate
    snapshots/step-N.safetensors  weights in half precision, if snapshots are kept
    kept/step-N.safetensors       weights of the best models, if models are kept
    tokenizer/                    vocabularies learned from text, if any

config.json and each tensor file contain a SHA-256 digest of their content. Each tensor file also contains the config,
which contains the digest of the vocabularies. Every file can therefore be checked separately and against config.json. A
file that was edited, or that belongs to another run, raises an error unless `trust_edited` is set.
"""

import dataclasses
import hashlib
import json
import math
import os
import stat
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple, get_type_hints

import msgspec
import safetensors.torch
import torch
from torch import Tensor

from regard.errors import EditedError, InputError
from regard.io import (
    MAX_DIGITS,
    DamageError,
    add_digest,
    append_inside,
    canonical_json,
    check_file,
    convert_json,
    damage_errors,
    damaged_file,
    has_valid_digest,
    is_file,
    json_digest,
    list_steps,
    new_folder,
    parse_json,
    read_bytes,
    read_json_lines,
    read_text,
    refuse_links,
    tidy,
    without_digest,
    write_file,
    write_inside,
    write_json,
)
from regard.plugins import PluginError
from regard.progress import print_status
from regard.training.config import RunConfig, options_class
from regard.training.trust_code import check_trusted

# Stored configs: formats, digests, reading, and differences between two configs.

FORMAT = "regard-run/8"
"""Only format that is read. A run of another format is trained again: old formats have no digests to check."""
MOST_DIFFERENCES = 3  # Largest number of differences in a message
LONGEST_VALUE = 24  # Largest number of characters of a value in a message
LARGEST_CONFIG = 1 << 20  # Largest size of config.json in bytes


def vocabulary_digest(vocabularies: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(vocabularies, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def config_from_json(stored: Mapping[str, Any]) -> RunConfig:
    """Return the config for the result of `RunConfig.json`. Raises `InputError` for invalid data."""
    names = {option.name for option in dataclasses.fields(RunConfig)}
    if set(stored) != names:
        raise InputError(f"config needs exactly {', '.join(sorted(names))}")
    hints = get_type_hints(RunConfig)
    try:
        parts = {name: convert_json(stored[name], hints[name]) for name in names if name != "options"}
        values = convert_json(stored["options"], dict[str, Any])
    except DamageError as error:
        raise InputError(f"config: {error}") from None
    options = options_class(parts["on"], parts["kind"])
    if set(values) != {*options.flag_names()}:
        raise InputError(f"config 'options' needs exactly {', '.join(sorted(options.flag_names()))}")
    return RunConfig(**parts, options=options(**values))


def config_mismatch(config: str, stored: Mapping[str, Any], name: str) -> str | None:
    """Return a description of the differences between the config (JSON) in `name` and config.json, or None if equal."""
    if config == canonical_json(without_digest(stored)):
        return None
    return _differences(stored, config, name) or "it names no config"


def _differences(stored: Mapping[str, Any], config: str, name: str) -> str:
    """Return a description of the differences between config.json and the config in `name`; empty for other JSON."""
    try:
        other = parse_json(config, finite=False)
    except DamageError:
        return ""
    mine, theirs = dict(_values("", without_digest(stored))), dict(_values("", other))
    names = [option for option in {**mine, **theirs} if mine.get(option) != theirs.get(option)]
    if names == ["initial"]:
        return "training began with different parameters than config.json states"
    names = [option for option in names if option != "initial"]  # determined by the other options
    changes = [
        f"{option} is {_shorten(mine.get(option))} in config.json, {_shorten(theirs.get(option))} in {name}"
        for option in names
    ]
    more = len(changes) - MOST_DIFFERENCES
    return "; ".join(changes[:MOST_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")


def _values(name: str, content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects with the last key of their path, which is the name of the flag."""
    if isinstance(content, Mapping) and content:
        for inner, value in content.items():
            yield from _values(f"{name}.{inner}" if name not in ("", "options") else inner, value)
    else:
        yield name, content


def _shorten(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


# Metrics of a training run: a file with one JSON object per line.


class _Line(msgspec.Struct):
    """Required fields of a line. A line may have additional fields."""

    step: Annotated[int, msgspec.Meta(ge=1)]
    loss: float
    exact_match: float


def missing_steps(lines: Sequence[Mapping[str, Any]], step: int, steps: int, every: int) -> list[int]:
    """Return the steps up to `step` whose lines are missing. A line is expected for every multiple of `every`,
    and for the last of all `steps`.

    >>> missing_steps([{"step": 10}, {"step": 30}], step=30, steps=30, every=10)
    [20]
    """
    expected = {*range(every, step + 1, every), *({step} & {steps})}
    return sorted(expected - {line["step"] for line in lines})


MEND = "restore a copy of the run, or train it again"
TRUST = "if you edited the file yourself, add --trust-edited (in Python trust_edited=True)"
_reported: set[tuple[Path, str]] = set()  # Accepted edits that have been reported since the run was loaded


@dataclass(frozen=True)
class RunFolder:
    """Files of one run.

    Methods that read a file raise `InputError` if the file was edited or belongs to another run. With
    `trust_edited`, they report the difference on standard error and use the file.
    """

    path: Path
    trust_edited: bool = False

    @property
    def config_file(self) -> Path:
        return self.path / "config.json"

    @property
    def model_file(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def snapshots(self) -> list[Path]:
        """Files of the snapshots, oldest first."""
        return list_steps(self.path / "snapshots")

    def check_snapshots(self) -> None:
        """Raise `InputError` without snapshots."""
        if not self.snapshots:
            raise InputError(f"run {str(self.path)!r} has no snapshots: train it with --snapshots 50")

    @property
    def kept_folder(self) -> Path:
        return self.path / "kept"

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the folder, which change if the run is replaced; None without a folder."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def exists(self) -> bool:
        return is_file(self.config_file)

    def stored(self) -> dict[str, Any]:
        """Return the content of config.json as plain data, after a check of its format only."""
        if not self.exists():
            raise InputError(f"no run at {str(self.path)!r}: train a run first, or give its folder")
        try:
            # `clip` is infinite if the gradient norm is unlimited, but JSON has no infinity.
            stored = parse_json(read_bytes(self.config_file, most=LARGEST_CONFIG), finite=False)
        except DamageError as error:
            raise self.damaged_file("config.json", error) from error
        names = {"format", "model_type", "architectures"} & set(stored if isinstance(stored, dict) else ())
        if names and "format" not in names:
            raise InputError(
                f"{str(self.path)!r} is a Hugging Face model, not a run: inspect it with"
                f" `regard look {self.path}`, or convert a translation model with `regard import {self.path}`"
            )
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            name = stored.get("format") if isinstance(stored, dict) else None
            named = f"format {name!r}"[:60] if isinstance(name, str) else "no format"
            raise InputError(
                f"run {str(self.path)!r} cannot be read: config.json names {named}, but this version of Regard reads "
                f"{FORMAT}; train it again, or use the version of Regard that wrote it"
            )
        return stored

    def read_config(self, *, trust_code: bool = False) -> RunConfig:
        """Return the config. Raises `InputError` if it is missing, damaged or edited, or contains untrusted code."""
        stored = self.stored()
        if not has_valid_digest(stored):
            self.refuse_edited("config.json", self._describe_edit(stored))
        stored = {name: value for name, value in stored.items() if name not in ("format", "digest")}
        check_trusted(stored, self.path, trust_code=trust_code)
        try:
            return config_from_json(stored)
        except PluginError as error:
            raise InputError(f"run {str(self.path)!r} cannot be loaded here: {error}") from error
        except InputError as error:
            raise self.damaged_file("config.json", error) from error

    @property
    def config_text(self) -> str:
        return canonical_json(without_digest(self.stored()))

    @property
    def model_identity(self) -> dict[str, str | None]:
        try:
            _, model = read_metadata(self.model_file)
        except DamageError as error:
            raise self.damaged_file(self.model_file.name, error) from error
        return {"config": json_digest(without_digest(self.stored())), "model": model}

    def _describe_edit(self, stored: dict[str, Any]) -> str:
        if "digest" not in stored:
            return "its digest is missing"
        try:
            config, _ = read_metadata(self.model_file)
        except (DamageError, InputError):
            config = ""
        return _differences(stored, config, self.model_file.name) or "the file has changed since it was written"

    def damaged_file(self, name: str, problem: object) -> InputError:
        return InputError(f"run {str(self.path)!r} is damaged: {name}: {problem}; {MEND}")

    def refuse_edited(self, name: str, problem: str, mend: str = MEND) -> None:
        """Raise `InputError` for an edited file. With `trust_edited`, report the problem instead."""
        message = f"run {str(self.path)!r} was edited or mixed with another run: {name}: {problem}"
        if not self.trust_edited:
            raise EditedError(message, f"{mend}; {TRUST}")
        key = self.path.resolve(), message
        if key not in _reported:
            _reported.add(key)
            print_status(f"regard: {message}; the file is used unchanged (--trust-edited)", show=True)

    def report_again(self) -> None:
        """Report accepted edits again, because the run is loaded again."""
        _reported.difference_update({key for key in _reported if key[0] == self.path.resolve()})

    def write_vocabularies(self, files: dict[str, str]) -> None:
        """Write vocabularies (JSON by name). Raises `MachineError` if a file cannot be written."""
        for name, content in files.items():
            write_inside(self.path, self.path / "tokenizer" / f"{name}.json", content.encode())

    def read_vocabularies(self, expected: str | None, names: Iterable[str]) -> dict[str, str]:
        """Return the vocabularies with these names; empty if the `expected` digest is None.

        Raises `InputError` if the vocabularies are missing, or differ from those used in training.
        """
        if expected is None:
            return {}
        try:
            vocabularies = {
                name: read_text(self.path / "tokenizer" / f"{name}.json", "restore a copy of it") for name in names
            }
        except InputError as error:
            raise InputError(f"run {str(self.path)!r} is damaged: its tokenizer cannot be read: {error}") from error
        if vocabulary_digest(vocabularies) != expected:
            self.refuse_edited("tokenizer", "its vocabularies differ from the vocabularies used for training")
        return vocabularies

    def append_metrics(self, metrics: dict[str, float]) -> None:
        """Append a line of metrics. Raises `MachineError` if the line cannot be written."""
        append_inside(self.path, self.metrics_file, json.dumps(metrics).encode() + b"\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of the metrics file, without a truncated last line. Returns an empty list without a file.

        Raises `InputError` if a line before the last line is damaged, or if the steps do not increase.
        """
        if not is_file(self.metrics_file):
            return []
        mend, lines = "restore a copy, or delete that line and all later lines", list[dict[str, Any]]()
        for line in read_json_lines(self.metrics_file, dict[str, int | float], mend):
            try:
                convert_json(line, _Line)
                if lines and line["step"] <= lines[-1]["step"]:
                    raise DamageError(f"step {line['step']} does not come after step {lines[-1]['step']}")
            except DamageError as error:
                raise damaged_file(self.metrics_file, f"line {len(lines) + 1}: {error}", mend) from error
            lines.append(line)
        return lines

    def known_metrics(self) -> list[dict[str, Any]]:
        """Return the metrics of a finished training run. Raises `InputError` if there are no metrics."""
        metrics = self.read_metrics()
        if not metrics:
            raise InputError(
                f"run {str(self.path)!r} has lost its metrics.jsonl: restore a copy of the file, or delete "
                f"the folder to train the run again"
            )
        return metrics

    def cut_metrics(self, step: int) -> None:
        """Remove metrics after `step`, which a resumed training run writes again.

        Raises `InputError` if the run or one of its folders is a link.
        """
        for name in ("trainer", "snapshots", "kept", "tokenizer", "tensorboard", "watch"):
            refuse_links(self.path / name, below=self.path.parent)
        lines = [json.dumps(metrics) + "\n" for metrics in self.read_metrics() if metrics["step"] <= step]
        write_file(self.metrics_file, "".join(lines).encode())

    def write_derived(self, name: str, content: dict[str, Any]) -> None:
        """Write results computed from the model, such as `alignment.json`, with the digests of the model.

        Raises `MachineError` if the file cannot be written.
        """
        content = add_digest({**content, "of": self.model_identity})
        write_json(self.path / name, content, indent=1, allow_nan=False)

    def read_derived(self, name: str, mend: str) -> dict[str, Any] | None:
        """Return the results written by `write_derived`; None without a file, or if the model has been trained further.

        Raises `InputError` for a file that is damaged, edited, or of another run. `mend`: its remedy.
        """
        path = self.path / name
        if not is_file(path):
            return None
        with damage_errors(path, mend):
            content = parse_json(read_bytes(path))
            if not isinstance(content, dict):
                raise DamageError("it is not an object")
        model = content.get("of")
        if not has_valid_digest(content):
            self.refuse_edited(name, "the file has changed since it was written", mend)
        elif not isinstance(model, dict) or model.get("config") != self.model_identity["config"]:
            self.refuse_edited(name, "it belongs to another run", mend)
        elif model != self.model_identity:
            return None
        return {key: value for key, value in content.items() if key not in ("of", "digest")}


@contextmanager
def create_run(path: Path, config: RunConfig, *, overwrite: bool, flag: str = "--savepath") -> Iterator[RunFolder]:
    """Create a run at `path`. Yields a temporary folder for the first files, which is moved to `path` on exit.

    With `overwrite`, an existing run at `path` is replaced after the new run has been written to disk. `flag`: as
    in `check_run_path`. Raises `InputError` if `path` exists and is not a run, and `MachineError` if the folder
    cannot be written.
    """
    check_run_path(path, overwrite=overwrite, flag=flag)
    with new_folder(path) as building:
        folder = RunFolder(building)
        write_json(folder.config_file, add_digest({"format": FORMAT, **config.json()}))
        yield folder


def check_run_path(path: Path, *, overwrite: bool, flag: str = "--savepath") -> None:
    """Raise `InputError` if a new run cannot be created at `path`. `flag`: the flag that names the path; only a
    run at --savepath can be continued."""
    if RunFolder(path).exists() and not overwrite:
        resume = "continue it with --resume, " if flag == "--savepath" else ""
        raise InputError(
            f"{str(path)!r} already contains a run: {resume}replace it with --overwrite, or choose another {flag}"
        )
    if path.exists() and not RunFolder(path).exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{str(path)!r} exists and is not a run: choose another {flag}")


def is_run_folder(folder: Path) -> bool:
    """Return whether a folder contains a run of any format."""
    try:
        stored = parse_json(read_bytes(folder / "config.json", most=LARGEST_CONFIG), finite=False)
    except (DamageError, InputError, OSError):
        return False
    return isinstance(stored, dict) and str(stored.get("format", "")).startswith("regard-run/")


def find_run(run: str | Path, savepath: Path, *, trust_edited: bool = False) -> RunFolder:
    """Return a run by the path of its folder, or by the name of its task under `savepath`.

    `trust_edited`: also use edited files. Raises `InputError` if the run does not exist.
    """
    for path in (Path(run), savepath / run):
        tidy(path.parent)
        if RunFolder(path).exists():
            return RunFolder(path, trust_edited)
    known = ", ".join(sorted(path.name for path in savepath.glob("*") if is_run_folder(path))[:9])
    where = repr(str(savepath)) + f", which has {known}" * bool(known)
    raise InputError(f"no run {str(run)!r} in {where}: train the run with `regard train`, or give its --savepath")


# Tensor files (safetensors) of a run: model weights, training state, snapshots.
#
# The header is read first and compared with the expected tensors, so that no memory is allocated for unexpected
# content. The metadata contain the config of the run, and a SHA-256 digest of the header (names, dtypes, shapes,
# step, config) and all values. No data are unpickled.


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
            for name in expected:
                if name not in entries:
                    raise DamageError(f"tensor {name!r} is missing")
            for name, entry in entries.items():
                if name not in expected:
                    raise DamageError(f"tensor {name!r} is not among the expected tensors")
                spec = TensorSpec(tuple(entry.shape), TYPES[entry.dtype])
                if spec != expected[name]:
                    raise DamageError(f"tensor {name!r} is {spec}, not {expected[name]}")
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
    """Raise `DamageError` unless the tensors fill the file without gaps, and their sizes match their shapes."""
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
