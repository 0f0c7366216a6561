"""Running a learner's code in a process of its own, with limits, and reading what comes of it."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from regard.course.child import LOADING, MEMORY, run_in_fork, within
from regard.errors import MachineError

SECONDS = 20.0
"""Seconds of the processor for each exercise."""
FLOOD = 1 << 20
"""Bytes that may be printed."""
PATIENCE = 6
"""How many times the limit may pass without a word, before a process is ended that holds up its own limit."""
SIGNALS: dict[int, str] = {
    signal.SIGSEGV: "crashed (segmentation fault)",
    signal.SIGABRT: "crashed (aborted)",
    signal.SIGBUS: "crashed (bus error)",
    signal.SIGFPE: "crashed (arithmetic)",
    signal.SIGILL: "crashed (illegal instruction)",
    signal.SIGKILL: "was ended by the system, as where memory is short",
}


class Process(Protocol):
    """A process that was started."""

    pid: int

    def poll(self) -> int | None:
        """Return how it ended, below 0 by a signal, or None where it runs."""
        ...


class Forked:
    """A fork of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, below 0 by a signal, or None where it runs."""
        if self.ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.ended = os.waitstatus_to_exitcode(status) if pid else None
        return self.ended


Start = Callable[[dict[str, Any], Path, int], Process]
"""Starts a process for a job, in a folder for its files, that prints into a pipe."""


@dataclass
class Told:
    """What a process told, and how it ended."""

    found: dict[str, str] | None = None
    """Which name answers which exercise; None where the code was never loaded."""
    names: list[str] = field(default_factory=list)
    answers: dict[str, list[list[dict[str, Any]]]] = field(default_factory=dict)
    """For each exercise, for each reading of its parameters, the answers."""
    troubles: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    """What stopped an exercise, or under the name "" the whole file; and the lines where."""
    prints: str = ""


def run_file(path: Path, exercise: str | None, *, seconds: float = SECONDS, memory: int = MEMORY) -> Told:
    """Run a learner's file in a fresh Python, and return what it told."""

    def start(job: dict[str, Any], folder: Path, stdout: int) -> Process:
        description = folder / "job.json"
        description.write_text(json.dumps({**job, "file": str(path.resolve())}), encoding="utf-8")
        home = Path(__file__).parents[2]
        inherited = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(home), *([inherited] if inherited else [])]),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        return subprocess.Popen(
            [sys.executable, "-P", "-c", "from regard.course.child import main; main()", str(description)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stdout,
            start_new_session=True,
            env=environment,
        )

    return _run_all(start, str(path.resolve().parent), exercise, seconds, memory)


def run_object(names: Mapping[str, Any], folder: Path, exercise: str | None, *, seconds: float = SECONDS) -> Told:
    """Run a learner's objects, which only this process has, in a fork of it."""

    def start(job: dict[str, Any], _: Path, stdout: int) -> Process:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads of this process are not needed in the fork
            pid = os.fork()
        if not pid:
            run_in_fork(job, names, stdout)
        return Forked(pid)

    return _run_all(start, str(folder), exercise, seconds, MEMORY)


def _run_all(
    start: Start,
    home: str,
    exercise: str | None,
    seconds: float,
    memory: int,
) -> Told:
    """Run until every exercise has answered or was stopped: what ends the process only ends one of them."""
    told = Told()
    job: dict[str, Any] = {"exercise": exercise, "folder": home, "seconds": seconds, "memory": memory, "done": []}
    while True:
        with tempfile.TemporaryDirectory(prefix="regard-check-") as name:
            folder = Path(name)
            files = {"answers": str(folder / "answers"), "crashed": str(folder / "crashed")}
            (folder / "answers").touch()
            stopped = _run_once(start, {**job, **files}, folder, told, seconds)
            ended = _read(folder / "answers", told)
            lines = _crash_lines(folder / "crashed", home)
        if ended == "":
            return told
        words = stopped or "ended its own process, as os._exit does: take that out"
        told.troubles[ended.removeprefix("in ")] = words, lines
        if not ended.startswith("in "):
            return told
        job["done"] = [*told.answers, *told.troubles]
        if told.found is None or all(each in job["done"] for each in told.found):
            return told


def _run_once(
    start: Start,
    job: dict[str, Any],
    folder: Path,
    told: Told,
    seconds: float,
) -> str:
    """Run one process to its end; return why it was ended, where it was."""
    reading, writing = os.pipe()
    try:
        process = start(job, folder, writing)
    except OSError as error:
        raise MachineError(f"no process can be started for your code: {error.strerror}; try again") from error
    finally:
        os.close(writing)
    try:
        return _attend(process, reading, Path(job["answers"]), told, seconds)
    finally:
        for ending in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                ending(process.pid, signal.SIGKILL)
        while process.poll() is None:
            time.sleep(0.01)
        os.close(reading)


def _attend(process: Process, reading: int, answers: Path, told: Told, seconds: float) -> str:
    """Read what a process prints until it ends or has to be ended; return why."""
    printed, size, heard = 0, -1, time.monotonic()
    while True:
        if select.select([reading], [], [], 0.05)[0]:
            text = os.read(reading, 1 << 16)
            printed += len(text)
            if len(told.prints) < FLOOD:
                told.prints += text.decode("utf-8", "replace")
            if printed > FLOOD:
                return f"prints without end: more than {FLOOD >> 20} MB"
            if text:
                continue
        ended = process.poll()
        if ended is not None:
            return SIGNALS.get(-ended, f"was ended by signal {-ended}") if ended < 0 else ""
        if answers.stat().st_size != size:
            size, heard = answers.stat().st_size, time.monotonic()
        if time.monotonic() - heard > PATIENCE * seconds + 2 * LOADING:
            return f"did not end within {within(seconds)}, and holds up its own limit: an endless loop?"


def _read(path: Path, told: Told) -> str:
    """Read what a process told; return "" where it came to its end, "in NAME" where it broke off in an exercise,
    and else "outside"."""
    where = "outside"
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        kind, name = event["event"], event.get("exercise", "")
        if kind == "found":
            told.found, told.names = event["exercises"], event["names"]
        elif kind == "begin":
            where = f"in {name}"
            told.answers[name] = []
        elif kind == "answer":
            answer = event["answer"]
            kept = told.answers[where.removeprefix("in ")]
            if answer["reading"] == len(kept):
                kept.append([])
            kept[answer["reading"]].append(answer)
        elif kind == "trouble":
            told.troubles[name] = event["words"], event["lines"]
            where = where if name else ""
        elif kind in ("end", "done"):
            where = "outside" if kind == "end" else ""
    return where


def _crash_lines(path: Path, home: str) -> list[str]:
    """Return the learner's innermost line of a crash."""
    if not path.exists():
        return []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if f'File "{home}' in line:
            return [line.strip().replace(home, "").replace('"/', '"')]
    return []
