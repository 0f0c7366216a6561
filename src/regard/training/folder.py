"""A run: the folder that holds everything needed to use, resume and reproduce one training.

    config.json                   what was asked for
    model.safetensors             the parameters to use, and the step they belong to
    trainer/step-N.safetensors    what training goes on from: parameters, optimizer, random state, place in data
    trainer/torchruns             who has started the processes that train it, where they are several
    metrics.jsonl                 one JSON object a line: step, loss, exact match, learning rate
    snapshots/step-N.safetensors  the parameters as they were, in half precision, where snapshots are kept
    tokenizer/                    vocabularies learned from text, where there are any

A checkpoint first replaces the model, then writes its trainer file, with which it is done, then removes older
ones; each file is replaced whole, so at any moment there is a model to use and a state to go on from. A training
that is interrupted in between does the steps since its last trainer file again, and comes to the same model.
Nothing is unpickled on loading.
"""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.files import (
    append_inside,
    new_folder,
    refuse_links,
    remove_quietly,
    still_there,
    tidy,
    write_file,
    write_inside,
    write_json,
)
from regard.own import OwnCodeError
from regard.reading import (
    DamageError,
    is_file,
    is_folder,
    numbered,
    parse_json,
    read_bytes,
    read_text,
)
from regard.training.config import RunConfig
from regard.training.flags import stored_config
from regard.training.metrics import read_metrics
from regard.training.tensors import Expected, pack, read_tensors
from regard.training.trust import check_trusted

FORMAT = "regard-run/6"
BEFORE = "regard-run/5"
"""The format before, which is read too: it called the task's name `task`, and what is chosen of it `size`."""


LARGEST_CONFIG = 1 << 20
"""Bytes of a config, at most."""


def digest(vocabularies: dict[str, str]) -> str:
    """Return what tells vocabularies, as JSON by name, from others."""
    return hashlib.sha256(json.dumps(vocabularies, sort_keys=True).encode()).hexdigest()


def renamed(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored config with today's names, if it has those of the format before."""
    if "size" not in stored:
        return stored
    others = {name: value for name, value in stored.items() if name not in ("task", "size")}
    return {**others, "on": stored.get("task"), "task": stored["size"]}


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def config_file(self) -> Path:
        """What was asked for; a folder with this file is a run."""
        return self.path / "config.json"

    @property
    def model_file(self) -> Path:
        """The parameters."""
        return self.path / "model.safetensors"

    @property
    def metrics_file(self) -> Path:
        """Loss and exact match, step by step."""
        return self.path / "metrics.jsonl"

    def trainer_file(self, step: int) -> Path:
        """Return the file of optimizer, random state and position in the data at `step`."""
        return self.path / "trainer" / f"step-{step}.safetensors"

    @property
    def identity(self) -> tuple[int, int] | None:
        """What tells this folder from another one that takes its name; None where there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def exists(self) -> bool:
        """Whether there is a run here."""
        return is_file(self.config_file)

    def read_config(self, *, trust_code: bool = False) -> RunConfig:
        """Read the config; raises `InputError` where the run is missing, damaged or foreign, or names code that
        is not trusted (see `trust`)."""
        stored = self._stored_config()
        check_trusted(stored, self.path, trust_code=trust_code)
        try:
            return stored_config(stored)
        except OwnCodeError as error:
            raise InputError(f"run {str(self.path)!r} cannot be loaded here: {error}") from error
        except InputError as error:
            raise self._damaged("config.json", error) from error

    def _stored_config(self) -> dict[str, Any]:
        """Return the config as plain data, with today's names."""
        if not self.exists():
            raise InputError(f"no run at {str(self.path)!r}: train one first, or name its folder")
        try:
            # A gradient that is not clipped has no largest norm, and infinity is no JSON.
            stored = parse_json(read_bytes(self.config_file, most=LARGEST_CONFIG), finite=False)
        except DamageError as error:
            raise self._damaged("config.json", error) from error
        if not isinstance(stored, dict) or stored.get("format") not in (FORMAT, BEFORE):
            raise InputError(
                f"run {str(self.path)!r} is foreign: config.json is not of format {FORMAT!r}; train it again"
            )
        del stored["format"]
        return renamed(stored)

    def read_model(self, expected: Expected | None = None) -> tuple[dict[str, Tensor], int]:
        """Read the parameters and the step they belong to; raises `InputError` where that cannot be, or they
        are others than `expected`."""
        tensors, step, _ = self._read_tensors(self.model_file, expected)
        return tensors, step

    def read_trainer(self, expected: Expected | None = None) -> tuple[dict[str, Tensor], int]:
        """Read the state of the training and its step; raises `InputError` where that cannot be, where it is
        another than `expected`, or where it was made by another config."""
        files = self._trainer_files()
        if not files:
            raise InputError(
                f"run {str(self.path)!r} is incomplete: the state of its training is missing; train it again"
            )
        tensors, step, config = self._read_tensors(files[-1], expected)
        if files[-1].stem != f"step-{step}":
            raise self._damaged(files[-1].name, f"it is of step {step}")
        if config and config != self._config_sum():
            raise self._damaged("config.json", "it is not the one that this training began with")
        return tensors, step

    def _config_sum(self) -> str:
        """Return what tells this config from others."""
        return f"{zlib.crc32(json.dumps(self._stored_config(), sort_keys=True).encode()):08x}"

    def _damaged(self, name: str, what: object) -> InputError:
        return InputError(
            f"run {str(self.path)!r} is damaged: {name}: {what}; restore a copy of it, or train it again"
        )

    def write_model(self, step: int, parameters: dict[str, Tensor]) -> None:
        """Replace the parameters to use; raises `MachineError`, leaving the last ones intact."""
        write_inside(self.path, self.model_file, pack(parameters, step))

    def write_trainer(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Save the state of the training as of `step`; raises `MachineError`, leaving the last one intact."""
        with still_there(self.path):
            content = pack(tensors, step, self._config_sum())
        write_inside(self.path, self.trainer_file(step), content)
        self.forget_older()

    def forget_older(self) -> None:
        """Remove all states of the training but the last; a process that was killed may have left some."""
        refuse_links(self.path / "trainer")
        for older in self._trainer_files()[:-1]:
            remove_quietly(older)

    def write_snapshot(self, step: int, parameters: dict[str, Tensor]) -> None:
        """Keep the parameters as of `step`, in half precision; raises `MachineError` where the disk refuses."""
        path = self.path / "snapshots" / f"step-{step}.safetensors"
        small = {name: value.half() if value.is_floating_point() else value for name, value in parameters.items()}
        write_inside(self.path, path, pack(small, step))

    @property
    def snapshots(self) -> list[Path]:
        """The snapshots, oldest first."""
        return numbered(self.path / "snapshots")

    def read_snapshot(self, path: Path, expected: Expected | None = None) -> tuple[dict[str, Tensor], int]:
        """Read the parameters of a snapshot and its step; raises `InputError` where it is damaged, or does not
        hold what is `expected`."""
        tensors, step, _ = self._read_tensors(path, expected)
        return {
            name: value.float() if value.dtype == torch.half else value for name, value in tensors.items()
        }, step

    def _trainer_files(self) -> list[Path]:
        """Return the states of the training, oldest first."""
        return numbered(self.path / "trainer")

    def write_vocabularies(self, files: dict[str, str]) -> None:
        """Keep vocabularies learned from text, by name; raises `MachineError` where the disk refuses."""
        for name, content in files.items():
            write_inside(self.path, self.path / "tokenizer" / f"{name}.json", content.encode())

    def read_vocabularies(self, expected: str | None) -> dict[str, str]:
        """Return the vocabularies by name, whose `digest` is to be `expected`; none where that is None.

        Raises `InputError` where they are missing or others than those that the run was trained with.
        """
        if expected is None:
            return {}
        try:
            found = {
                name: read_text(self.path / "tokenizer" / f"{name}.json", "restore a copy of it")
                for name in ("source", "target")
            }
        except InputError as error:
            raise InputError(
                f"run {str(self.path)!r} is damaged: its tokenizer cannot be read: {error}"
            ) from error
        if digest(found) != expected:
            raise self._damaged("tokenizer", "it was trained with another tokenizer")
        return found

    def write_torchruns(self, torchruns: frozenset[str]) -> None:
        """Keep who has started the processes that train the run; nothing where it is one alone."""
        if torchruns:
            content = "\n".join(sorted(torchruns)).encode()
            write_inside(self.path, self.path / "trainer" / "torchruns", content)

    @property
    def torchruns(self) -> frozenset[str]:
        """Who has started the processes that train the run; none where it is one alone, or there is no run."""
        try:
            return frozenset((self.path / "trainer" / "torchruns").read_text(encoding="utf-8").splitlines())
        except (OSError, ValueError):
            return frozenset()

    def append_metrics(self, metrics: dict[str, float]) -> None:
        """Add one line to the metrics; raises `MachineError` where it cannot be written."""
        append_inside(self.path, self.metrics_file, json.dumps(metrics).encode() + b"\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read the metrics; a last line that a crash cut short is left out."""
        return read_metrics(self.metrics_file)

    def cut_metrics(self, step: int) -> None:
        """Forget metrics past `step`, which a resumed training will write again.

        Raises `InputError` where the run, or a folder in it, is a link.
        """
        for name in ("trainer", "snapshots", "tokenizer", "tensorboard"):
            refuse_links(self.path / name, below=self.path.parent)
        kept = [json.dumps(metrics) + "\n" for metrics in self.read_metrics() if metrics["step"] <= step]
        write_file(self.metrics_file, "".join(kept).encode())

    def _read_tensors(self, path: Path, expected: Expected | None) -> tuple[dict[str, Tensor], int, str]:
        if not is_file(path) and not is_folder(path):
            raise InputError(f"run {str(self.path)!r} is incomplete: {path.name} is missing; train it again")
        try:
            return read_tensors(path, expected)
        except DamageError as error:
            raise self._damaged(path.name, error) from error


@contextmanager
def new_run(path: Path, config: RunConfig, *, overwrite: bool) -> Iterator[RunFolder]:
    """Make a run at `path`: yields a folder to fill with its first checkpoint, which then takes its place.

    A run already at `path` is only replaced with `overwrite`, and only once the new one is complete on disk.
    Raises `InputError` where something is in the way, and `MachineError` where it cannot be written.
    """
    check_free(path, overwrite=overwrite)
    with new_folder(path) as building:
        folder = RunFolder(building)
        stored = {"format": FORMAT, **dataclasses.asdict(config)}
        write_json(folder.config_file, stored)
        yield folder


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raise `InputError` where no new run can be made at `path`, for something is in the way."""
    if RunFolder(path).exists() and not overwrite:
        raise InputError(
            f"{str(path)!r} already holds a run: continue it with --resume, replace it with --overwrite, "
            f"or choose another --savepath"
        )
    if path.exists() and not RunFolder(path).exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{str(path)!r} exists and is not a run: choose another --savepath")


def find_run(run: str | Path, savepath: Path) -> RunFolder:
    """Find a run by the path of its folder, or by its task's name under `savepath`.

    Raises `InputError` where there is none.
    """
    if not isinstance(run, str | Path):
        raise InputError(f"run {run!r} is no name: give a task's, or the path of a run's folder")
    for path in (Path(run), savepath / run):
        tidy(path.parent)
        if RunFolder(path).exists():
            return RunFolder(path)
    raise InputError(
        f"no run {str(run)!r} in {str(savepath)!r}: train it with `regard train`, or give its --savepath"
    )
