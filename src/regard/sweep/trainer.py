"""One training on a machine that shares no disk with the one which asked for it.

It runs in a process of its own, so that there can be news of it meanwhile, and in a folder of its own, which goes
when it ends.
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
from regard.io.temporary import beside
from regard.sweep.file_transfer import Code, Files, Stamps, measure_with_code, pack, write_code
from regard.sweep.job import Job, Measured
from regard.sweep.processes import EndedError, Worker
from regard.version import __version__


@dataclass(frozen=True, kw_only=True)
class TrainingUpdate:
    """What has become of a training since it was last asked."""

    files: Files = field(default_factory=dict)
    """What has changed in its folder: nothing before its next checkpoint."""
    measured: Measured | None = None
    """What was measured, once it is done."""
    error: Exception | None = None
    """What it has raised."""
    ended: bool = False
    """Whether its process has been ended from outside, or because it was told to stop."""


class Trainer:
    """One training, which begins with the files and the code that it is given."""

    def begin(
        self, version: str, stored: dict[str, Any], files: Files, code: Code, threads: int
    ) -> TrainingUpdate:
        """Start a training of the config `stored`; raises `InputError` where Regard is another `version` here."""
        if version != __version__:
            raise InputError(
                f"{socket.gethostname()} has Regard {__version__}, and {version} asks: install the same"
            )
        home = Path(tempfile.gettempdir())
        tidy(home)  # what a training that was killed has left
        self._place = beside(home / "regard-training")
        self._place.mkdir()
        os.environ["XDG_STATE_HOME"] = str(self._place / "state")
        sent = write_code(code, self._place)
        self._job = Job(stored, self._place / "job")
        self._job.folder.mkdir()
        # The task's file may be known by its copy alone, so the folder is filled by name.
        for name, content in files.items():
            (self._job.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._job.folder / name).write_bytes(content)
        self._stamps: Stamps = pack(self._job.folder, {})[1]
        self._worker = Worker(partial(measure_with_code, sent), threads=threads)
        self._worker.begin(self._job)
        return TrainingUpdate()

    def news(self, seconds: float) -> TrainingUpdate:
        """Return what there is after so many seconds, or as soon as the training has ended."""
        if self._worker.pipe.poll(seconds):
            return self._last()
        try:
            files, stamps = pack(self._job.folder, self._stamps)
        except FileNotFoundError:  # a checkpoint is just being written
            return TrainingUpdate()
        if not any("trainer" in Path(name).parts for name in files):
            return TrainingUpdate()
        self._stamps = stamps
        return TrainingUpdate(files=files)

    def stop(self) -> TrainingUpdate:
        """Stop the training, which saves, and return the last news of it, if they have not been told."""
        if not self._place.exists():
            return TrainingUpdate()
        self._worker.stop()
        return self._last()

    def _last(self) -> TrainingUpdate:
        """Return how the training has ended, and leave nothing behind."""
        found: dict[str, Any] = {}
        try:
            found["measured"] = self._worker.result()
        except EndedError:
            found["ended"] = True
        except Exception as error:  # whatever it is, it is raised where the training was asked for
            found["error"] = self._told(error)
        self._worker.join()
        files, _ = pack(self._job.folder, self._stamps)
        remove_quietly(self._place)
        return TrainingUpdate(files=files, **found)

    def _told(self, error: Exception) -> Exception:
        """Return an error that says which machine it is from."""
        if not isinstance(error, RegardError):
            return error
        return type(error)(f"on {socket.gethostname()}: {error}")
