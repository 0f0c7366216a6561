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

config.json and each file of tensors carry a SHA-256 of what they hold; each file of tensors holds the config too,
and the config the digest of the vocabularies. So every file can be checked by itself and against the config,
whichever file was written last; one that was edited, or is another run's, is refused (see `trust_edited`).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import EditedError, InputError
from regard.io import (
    append_inside,
    explain_missing_folder,
    refuse_links,
    remove_quietly,
    write_file,
    write_inside,
)
from regard.io.reading import (
    DamageError,
    canonical_json,
    is_file,
    is_folder,
    json_digest,
    list_steps,
    parse_json,
    read_bytes,
    read_text,
)
from regard.plugins import PluginError
from regard.progress import print_status
from regard.training.config import RunConfig
from regard.training.flags import stored_config
from regard.training.metrics import read_metrics
from regard.training.stored import (
    BEFORE,
    FORMAT,
    LARGEST_CONFIG,
    differences,
    digest,
    is_intact,
    mixed,
    todays,
    unknown_format,
    without_digest,
)
from regard.training.tensors import Expected, pack, read_about, read_tensors
from regard.training.trust import check_trusted

MEND = "restore a copy of it, or train it again"
TRUST = "if you changed it yourself, add --trust-edited (in Python trust_edited=True)"
_told: set[tuple[Path, str]] = set()
"""Differences that were shown since a run was last loaded."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    Each reader raises `InputError` for a file that was edited or is another run's. With `trust_edited` it says on
    standard error what differs, and goes on.
    """

    path: Path
    trust_edited: bool = False

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
        """Read the config; raises `InputError` where it is missing, damaged, foreign, or its code not trusted."""
        stored = self.stored()
        if not is_intact(stored):
            self.refuse_edited("config.json", self._edits(stored))
        stored = todays(stored)
        check_trusted(stored, self.path, trust_code=trust_code)
        try:
            return stored_config(stored)
        except PluginError as error:
            raise InputError(f"run {str(self.path)!r} cannot be loaded here: {error}") from error
        except InputError as error:
            raise self._damaged("config.json", error) from error

    def stored(self) -> dict[str, Any]:
        """Return what config.json holds, unchecked."""
        if not self.exists():
            raise InputError(f"no run at {str(self.path)!r}: train one first, or name its folder")
        try:
            # A gradient that is not clipped has no largest norm, and infinity is no JSON.
            stored = parse_json(read_bytes(self.config_file, most=LARGEST_CONFIG), finite=False)
        except DamageError as error:
            raise self._damaged("config.json", error) from error
        kinds = {"format", "model_type", "architectures"} & set(stored if isinstance(stored, dict) else ())
        if kinds and "format" not in kinds:
            raise InputError(
                f"{str(self.path)!r} is a model of Hugging Face's, no run: look inside it with"
                f" `regard look {self.path}`, or make a run of a translator with `regard import {self.path}`"
            )
        if not isinstance(stored, dict) or stored.get("format") not in (FORMAT, *BEFORE):
            raise InputError(f"run {str(self.path)!r} cannot be read: {unknown_format(stored)}")
        return stored

    def _edits(self, stored: dict[str, Any]) -> str:
        """Say what of an edited config was changed, as far as the model's file tells."""
        if "digest" not in stored:
            return "its digest is missing"
        try:
            config, _ = read_about(self.model_file)
        except (DamageError, InputError):
            config = ""
        return differences(stored, config, self.model_file.name) or "it has changed since it was written"

    def refuse_edited(self, name: str, what: str, mend: str = MEND) -> None:
        """Raise `InputError` for a file that is not as this run wrote it, or, where that is trusted, say so."""
        said = f"run {str(self.path)!r} was edited or mixed with another run: {name}: {what}"
        if not self.trust_edited:
            raise EditedError(said, f"{mend}; {TRUST}")
        key = self.path.resolve(), said
        if key not in _told:
            _told.add(key)
            print_status(f"regard: {said}; it is used as it is (--trust-edited)", show=True)

    def tell_again(self) -> None:
        """Show differences that were shown before, for a run that is loaded again."""
        _told.difference_update({key for key in _told if key[0] == self.path.resolve()})

    def read_model(self, expected: Expected | None = None) -> tuple[dict[str, Tensor], int]:
        """Read the parameters and the step they belong to; raises `InputError` where that cannot be, or they
        are others than `expected`."""
        return self._read_tensors(self.model_file, expected)

    def read_trainer(self, expected: Expected | None = None) -> tuple[dict[str, Tensor], int]:
        """Read the state of the training and its step; raises `InputError` where that cannot be, where it is
        another than `expected`, or where it was made by another config."""
        files = self._trainer_files()
        if not files:
            raise InputError(
                f"run {str(self.path)!r} is incomplete: the state of its training is missing; train it again"
            )
        return self._read_tensors(files[-1], expected)

    @property
    def config_text(self) -> str:
        """The config as JSON, as each file of tensors has it."""
        return canonical_json(without_digest(self.stored()))

    def _damaged(self, name: str, what: object) -> InputError:
        return InputError(f"run {str(self.path)!r} is damaged: {name}: {what}; {MEND}")

    def write_model(self, step: int, parameters: dict[str, Tensor]) -> None:
        """Replace the parameters to use; raises `MachineError`, leaving the last ones intact."""
        write_inside(self.path, self.model_file, self.pack(parameters, step))

    def pack(self, tensors: dict[str, Tensor], step: int) -> bytes:
        """Return the content of a file of tensors of this run; raises `MachineError` where the run has gone."""
        with explain_missing_folder(self.path):
            return pack(tensors, step, self.config_text)

    def write_trainer(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Save the state of the training as of `step`; raises `MachineError`, leaving the last one intact."""
        write_inside(self.path, self.trainer_file(step), self.pack(tensors, step))
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
        write_inside(self.path, path, self.pack(small, step))

    @property
    def snapshots(self) -> list[Path]:
        """The snapshots, oldest first."""
        return list_steps(self.path / "snapshots")

    def read_snapshot(self, path: Path, expected: Expected | None = None) -> tuple[dict[str, Tensor], int]:
        """Read the parameters of a snapshot and its step; raises `InputError` where it is damaged, or does not
        hold what is `expected`."""
        tensors, step = self._read_tensors(path, expected)
        return {
            name: value.float() if value.dtype == torch.half else value for name, value in tensors.items()
        }, step

    def _trainer_files(self) -> list[Path]:
        """Return the states of the training, oldest first."""
        return list_steps(self.path / "trainer")

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
            self.refuse_edited("tokenizer", "its vocabularies are others than those of the training")
        return found

    @property
    def has_digests(self) -> bool:
        """Whether each file of the run is to have a digest; those of earlier formats need none."""
        return bool(self.stored()["format"] == FORMAT)

    @property
    def identity_of_model(self) -> dict[str, str | None]:
        """Digests of the config and of the model's file; the latter is None in a file of an earlier format."""
        try:
            _, model = read_about(self.model_file)
        except DamageError as error:
            raise self._damaged(self.model_file.name, error) from error
        return {"config": json_digest(without_digest(self.stored())), "model": model}

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

    def known_metrics(self) -> list[dict[str, Any]]:
        """Read the metrics of a finished training; raises `InputError` where there are none."""
        found = self.read_metrics()
        if not found:
            raise InputError(
                f"run {str(self.path)!r} has lost its metrics.jsonl: restore a copy of it, or delete the folder "
                f"to train it again"
            )
        return found

    def cut_metrics(self, step: int) -> None:
        """Forget metrics past `step`, which a resumed training will write again.

        Raises `InputError` where the run, or a folder in it, is a link.
        """
        for name in ("trainer", "snapshots", "tokenizer", "tensorboard"):
            refuse_links(self.path / name, below=self.path.parent)
        kept = [json.dumps(metrics) + "\n" for metrics in self.read_metrics() if metrics["step"] <= step]
        write_file(self.metrics_file, "".join(kept).encode())

    def _read_tensors(self, path: Path, expected: Expected | None) -> tuple[dict[str, Tensor], int]:
        """Return the tensors of a file of this run and their step."""
        if not is_file(path) and not is_folder(path):
            raise InputError(f"run {str(self.path)!r} is incomplete: {path.name} is missing; train it again")
        try:
            found = read_tensors(path, expected)
        except DamageError as error:
            raise self._damaged(path.name, error) from error
        stored = self.stored()
        if not found.intact:
            self.refuse_edited(
                path.name, "it has changed since it was written (its names, shapes, step or values)"
            )
        elif found.digest is None and self.has_digests:
            self.refuse_edited(path.name, "its digest is missing")
        elif self.trust_edited and not is_intact(stored):
            pass  # of the config, that was said when it was read
        elif (what := mixed(found, stored, path.name)) is not None:
            self.refuse_edited(path.name, what)
        if path != self.model_file and path.stem != f"step-{found.step}":
            raise self._damaged(path.name, f"it is of step {found.step}")
        return found.tensors, found.step
