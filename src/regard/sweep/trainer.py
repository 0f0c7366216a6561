"""Run one training on a machine that shares no disk with the machine that requests it.

The training runs in a separate process, so that it can be polled, and in a temporary folder, which is removed at
the end.
"""

import os
import socket
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from regard.errors import InputError, RegardError
from regard.io import remove_quietly, tidy
from regard.io.temporary import temporary_path
from regard.sweep.file_transfer import Code, Files, Stamps, measure_with_code, pack, write_code
from regard.sweep.job import Job, Measured
from regard.sweep.processes import EndedError, Worker
from regard.version import __version__


@dataclass(frozen=True, kw_only=True)
class TrainingUpdate:
    """The progress of a training since the last update."""

    files: Files = field(default_factory=dict)
    """Changed files of the training's folder; empty until the next checkpoint."""
    measured: Measured | None = None
    """The measurement, once the training is done."""
    error: Exception | None = None
    """The error of the training."""
    ended: bool = False
    """Whether the process of the training was stopped, or terminated from outside."""


class Trainer:
    """One training, started from files and code that are sent to this machine."""

    def begin(
        self, version: str, stored: dict[str, Any], files: Files, code: Code, threads: int
    ) -> TrainingUpdate:
        """Start a training of the config `stored`; raises `InputError` if this machine has another `version`."""
        if version != __version__:
            raise InputError(
                f"{socket.gethostname()} has Regard {__version__}, but {version} is required: install"
                f" Regard {version} there"
            )
        temporary = Path(tempfile.gettempdir())
        tidy(temporary)  # remove the leftovers of killed trainings
        self._folder = temporary_path(temporary / "regard-training")
        self._folder.mkdir()
        os.environ["XDG_STATE_HOME"] = str(self._folder / "state")
        code_paths = write_code(code, self._folder)
        self._job = Job(stored, self._folder / "job")
        self._job.folder.mkdir()
        # The task's file may exist only as a copy, so the config is not resolved here: files are written by name.
        for name, content in files.items():
            (self._job.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._job.folder / name).write_bytes(content)
        self._stamps: Stamps = pack(self._job.folder, {})[1]
        self._worker = Worker(partial(measure_with_code, code_paths), threads=threads)
        self._worker.begin(self._job)
        return TrainingUpdate()

    def poll(self, seconds: float) -> TrainingUpdate:
        """Return the progress after `seconds`, or as soon as the training ends."""
        if self._worker.pipe.poll(seconds):
            return self._finish()
        try:
            files, stamps = pack(self._job.folder, self._stamps)
        except FileNotFoundError:  # a checkpoint is being written
            return TrainingUpdate()
        if not any("trainer" in Path(name).parts for name in files):
            return TrainingUpdate()
        self._stamps = stamps
        return TrainingUpdate(files=files)

    def stop(self) -> TrainingUpdate:
        """Stop the training, which saves first, and return the last update; empty if this update was returned
        before.
        """
        if not self._folder.exists():
            return TrainingUpdate()
        self._worker.stop()
        return self._finish()

    def _finish(self) -> TrainingUpdate:
        """Return the last update, and remove the folder."""
        outcome: dict[str, Any] = {}
        try:
            outcome["measured"] = self._worker.result()
        except EndedError:
            outcome["ended"] = True
        except Exception as error:  # the requesting machine raises it
            outcome["error"] = self._with_hostname(error)
        self._worker.join()
        files, _ = pack(self._job.folder, self._stamps)
        remove_quietly(self._folder)
        return TrainingUpdate(files=files, **outcome)

    def _with_hostname(self, error: Exception) -> Exception:
        """Return the error with the name of this machine."""
        if not isinstance(error, RegardError):
            return error
        return type(error)(f"on {socket.gethostname()}: {error}")
