"""A job of a sweep: train a run, test the run, and save the measurement.

    FOLDER/TASK/           the run
    FOLDER/measured.json   its measurement

Interrupted training runs are resumed. A job is plain data and a path, so any process can execute the job.
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from regard.arguments import public
from regard.errors import EditedError, InputError
from regard.io import is_file, list_steps, read_json, write_json
from regard.runs.run import Figures
from regard.runs.training import train
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder, config_from_json

if TYPE_CHECKING:
    from regard.runs.run_types import AnyRun


MEASURED = "measured.json"
LARGEST = 1 << 20  # Maximum size of a measurement's file, in bytes
REACHED = 0.99
"""Exact match on training batches, averaged over ten lines of metrics, at which the task counts as learned."""


@public
@dataclass(frozen=True, kw_only=True)
class Measured(Figures):
    """The measurement of one training run."""

    steps_to_99: int | None
    """Number of training steps until 99 % exact match on training batches (mean of ten lines of metrics), or None."""
    parameters: int
    seconds: float | None
    """CPU time of training in seconds. None if training was interrupted."""
    loss: float
    """Loss on training batches: the mean over the last ten lines of metrics."""


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the file of a measurement."""

    config: dict[str, Any]
    measured: Measured


@dataclass(frozen=True)
class Job:
    """One training to measure."""

    stored: dict[str, Any]  # The config in the format of a run folder
    folder: Path

    @property
    def config(self) -> RunConfig:
        return config_from_json(self.stored)

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.folder / self.config.name)

    @property
    def label(self) -> str:
        return f"{self.folder.parent.name}, {self.folder.name}"

    @property
    def saved_state(self) -> str:
        return f"step {self.last_step}"

    @property
    def last_step(self) -> int:
        states = list_steps(self.run.path / "trainer")
        return int(states[-1].stem.removeprefix("step-")) if states else 0

    def absolute(self) -> Job:
        return dataclasses.replace(self, folder=self.folder.absolute())

    def measure(self, *, trust_code: bool = False) -> Measured:
        interrupted, began = self.interrupted(trust_code=trust_code), time.process_time()
        run = train(self.config, savepath=self.folder, resume=interrupted, progress=False, trust_code=trust_code)
        return _test(self, run, None if interrupted else time.process_time() - began)

    def read(self) -> Measured | None:
        """Return the saved measurement, or None. Raises `InputError` if its flags differ."""
        file = self.folder / MEASURED
        if not is_file(file):
            return None
        stored = read_json(file, _Stored, "delete it to measure again", most=LARGEST, finite=False)
        before = stored.config
        self._check_code(before)
        if before != _compared(self.stored):
            raise InputError(f"{str(self.folder)!r} has a measurement with other flags: choose another --savepath")
        return stored.measured

    def _check_code(self, before: dict[str, Any]) -> None:
        known = before.get("code", {})
        changed = [name for name, digest in self.stored["code"].items() if known.get(name) != digest]
        if changed and before == {**_compared(self.stored), "code": known}:
            raise InputError(
                f"{' and '.join(changed)} has changed since {str(self.folder)!r} was measured: delete it "
                f"to measure again, or choose another --savepath"
            )

    def interrupted(self, *, trust_code: bool = False) -> bool:
        """Return whether there is a run to resume. Raises `InputError` if the run has other flags."""
        if not self.run.exists():
            return False
        try:
            config = self.run.read_config(trust_code=trust_code)
        except EditedError as error:
            raise InputError(f"{error.found}; delete {str(self.folder)!r} to train it again") from error
        before = _compared(config_to_json(config))
        self._check_code(before)
        if before != _compared(self.stored):
            raise InputError(f"{str(self.folder)!r} has a run with other flags: choose another --savepath")
        return True


def make_job(config: RunConfig, folder: Path) -> Job:
    return Job(config_to_json(config.resolved()), folder)


def config_to_json(config: RunConfig) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(config.json()))
    return values


def _compared(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a config without the fields that are derived from other fields or from the text."""
    return {
        name: value
        for name, value in stored.items()
        if name not in ("tokenizer", "text", "initial", "bleu_tokenizer", "measured")
    }


def _test(job: Job, run: AnyRun, seconds: float | None) -> Measured:
    lines, figures = job.run.known_metrics(), run.figures(seed=job.config.training.seed)
    recent = [
        (lines[end - 1]["step"], sum(line["exact_match"] for line in lines[end - 10 : end]) / 10)
        for end in range(10, len(lines) + 1)
    ]
    measured = Measured(
        **vars(figures),
        steps_to_99=next((step for step, share in recent if share >= REACHED), None),
        parameters=run.parameters,
        seconds=None if seconds is None else round(seconds, 3),
        loss=sum(line["loss"] for line in lines[-10:]) / len(lines[-10:]),
    )
    content = {"config": _compared(config_to_json(run.config)), "measured": dataclasses.asdict(measured)}
    write_json(job.folder / MEASURED, content)
    return measured
