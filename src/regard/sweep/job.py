"""One training of a comparison: trained, tested, and kept.

    FOLDER/TASK/           the run
    FOLDER/measured.json   what its test found

What was interrupted goes on where it stopped. A job is plain data and a folder, and can be handed to any process.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from regard.errors import EditedError, InputError
from regard.io import write_json
from regard.io.reading import is_file, read_json
from regard.runs import Figures, train, train_seeds
from regard.training import RunConfig, RunFolder, config_from_json, upgrade_config

if TYPE_CHECKING:
    from regard.runs import AnyRun


MEASURED = "measured.json"
LARGEST = 1 << 20
"""Bytes of the file of a measurement, at most."""
REACHED = 0.99
"""Exact match of a training batch, mean over ten lines of metrics, that counts as having learned."""


@dataclass(frozen=True, kw_only=True)
class Measured(Figures):
    """What one training came to."""

    steps_to_99: int | None
    """Training steps until the training batches were 99 % right (mean of ten lines of metrics); None: never."""
    parameters: int
    seconds: float | None
    """Processor time of its training; None where it was interrupted."""
    loss: float
    """Mean over the last ten lines of metrics."""


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What the file of a measurement holds."""

    config: dict[str, Any]
    measured: Measured


@dataclass(frozen=True)
class Job:
    """One training to be measured."""

    stored: dict[str, Any]
    """The config, as a run's folder has it."""
    folder: Path

    @property
    def config(self) -> RunConfig:
        """What is asked for."""
        return config_from_json(self.stored)

    @property
    def run(self) -> RunFolder:
        """Where the run is, or is to be."""
        return RunFolder(self.folder / self.config.name)

    @property
    def said(self) -> str:
        """What people call it: its variant and its seed."""
        return f"{self.folder.parent.name}, {self.folder.name}"

    def read(self) -> Measured | None:
        """Return what was measured before; raises `InputError` where that was something else."""
        file = self.folder / MEASURED
        if not is_file(file):
            return None
        stored = read_json(file, _Stored, "delete it to measure anew", most=LARGEST, finite=False)
        if upgrade_config(stored.config) != _compared(self.stored):
            raise InputError(
                f"{str(self.folder)!r} holds a measurement with other flags: choose another --savepath"
            )
        return stored.measured

    def interrupted(self, *, trust_code: bool = False) -> bool:
        """Whether there is a run already, to go on with; raises `InputError` where that is another one."""
        if not self.run.exists():
            return False
        try:
            config = self.run.read_config(trust_code=trust_code)
        except EditedError as error:
            raise InputError(f"{error.found}; delete {str(self.folder)!r}, and it is trained again") from error
        if _compared(plain(config)) != _compared(self.stored):
            raise InputError(f"{str(self.folder)!r} holds a run with other flags: choose another --savepath")
        return True


def make_job(config: RunConfig, folder: Path) -> Job:
    """Return the training of a config, to be kept in a folder."""
    return Job(plain(config.resolved()), folder)


def plain(config: RunConfig) -> dict[str, Any]:
    """Return a config as JSON has it."""
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return found


def _compared(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a config without what follows from the rest, or from the text."""
    return {
        name: value
        for name, value in stored.items()
        if name not in ("tokenizer", "text", "initial", "bleu_tokenizer")
    }


def measure(job: Job, *, trust_code: bool = False) -> Measured:
    """Train, or go on where a training was interrupted, test, and keep what was found."""
    interrupted, began = job.interrupted(trust_code=trust_code), time.process_time()
    run = train(job.config, savepath=job.folder, resume=interrupted, progress=False, trust_code=trust_code)
    return _test(job, run, None if interrupted else time.process_time() - began)


def measure_together(jobs: Sequence[Job]) -> list[Measured]:
    """Train several jobs, which differ in their seed alone, as one, test them, and keep what was found."""
    if len(jobs) == 1:
        return [measure(jobs[0])]
    began = time.process_time()
    config = jobs[0].config
    flags: dict[str, Any] = {name: value for name, value in config.flags().items() if name != "seed"}
    seeds = [job.config.training.seed for job in jobs]
    runs = train_seeds(config.on, [job.folder for job in jobs], seeds=seeds, **flags)
    seconds = (time.process_time() - began) / len(jobs)
    return [_test(job, run, seconds) for job, run in zip(jobs, runs, strict=True)]


def _test(job: Job, run: AnyRun, seconds: float | None) -> Measured:
    """Test a run, and keep what was found."""
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
    content = {"config": _compared(plain(run.config)), "measured": dataclasses.asdict(measured)}
    write_json(job.folder / MEASURED, content)
    return measured
