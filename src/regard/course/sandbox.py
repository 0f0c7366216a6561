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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from regard.course.worker import BROKEN, LOADING, MEMORY, run_in_fork, within
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
    signal.SIGKILL: "was ended by SIGKILL, as by the system where memory is short",
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


Start = Callable[[dict[str, Any], int], Process]
"""Starts a process for a job, that prints into a pipe."""
ENDED = "ended its own process, as os._exit does: take that out"
BROKE = (
    "broke the checker's own steps: does it replace a function of Python's, or close files that are not its own?"
)
OUTSIDE = ""
"""Where a process is that is in no exercise."""
MEDDLED = "writes into the file of its own answers: take that out"


@dataclass
class Told:
    """What a process told, and how it ended."""

    found: dict[str, str] | None = None
    """Which name answers which exercise; None where the code was never loaded."""
    names: list[str] = field(default_factory=list)
    passed_over: dict[str, list[str]] = field(default_factory=dict)
    """For each exercise, names that would answer it too and are not asked."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Exercises that only an imported object would answer: its name and its module."""
    replaced: list[str] = field(default_factory=list)
    """Functions of other modules that the file has replaced."""
    calls: dict[str, list[str]] = field(default_factory=dict)
    """For each exercise, names of the file that its answer uses."""
    library: dict[str, list[str]] = field(default_factory=dict)
    """For each exercise, library functions that do such work when it is answered."""
    answers: dict[str, list[list[dict[str, Any]]]] = field(default_factory=dict)
    """For each exercise, for each reading of its parameters, the answers."""
    troubles: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    """What stopped an exercise, or under the name "" the whole file; and the lines where."""
    prints: str = ""


def run_file(path: Path, exercise: str | None, *, seconds: float = SECONDS, memory: int = MEMORY) -> Told:
    """Run a learner's file in a fresh Python, and return what it told."""

    def start(job: dict[str, Any], stdout: int) -> Process:
        description = json.dumps({**job, "file": str(path.resolve())})
        home = Path(__file__).parents[2]
        inherited = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(home), *([inherited] if inherited else [])]),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "TORCHDYNAMO_DISABLE": "1",  # compilers start processes: a function is asked as it is written
        }
        return subprocess.Popen(
            [sys.executable, "-P", "-c", "from regard.course.worker import main; main()", description],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stdout,
            pass_fds=(job["answers"], job["crashed"]),
            start_new_session=True,
            env=environment,
        )

    return _run_all(start, str(path.resolve().parent), exercise, seconds, memory)


def run_object(thing: Any, folder: Path, exercise: str, *, seconds: float = SECONDS) -> Told:
    """Run a learner's object, which only this process has, in a fork of it."""

    def start(job: dict[str, Any], stdout: int) -> Process:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads of this process are not needed in the fork
            pid = os.fork()
        if not pid:
            run_in_fork({**job, "asked": exercise}, {exercise: thing}, stdout)
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
        with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as crashed:
            files = {"answers": answers.fileno(), "crashed": crashed.fileno()}
            stopped = _run_once(start, {**job, **files}, told, seconds)
            ended = _read(_contents(answers), told)
            lines = _crash_lines(_contents(crashed), home)
        if ended is None:
            return told
        told.troubles[ended] = stopped, lines
        if ended == OUTSIDE:
            return told
        job["done"] = [*told.answers, *told.troubles]
        if told.found is None or all(each in job["done"] for each in told.found):
            return told


def _contents(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _run_once(start: Start, job: dict[str, Any], told: Told, seconds: float) -> str:
    """Run one process to its end; return why it ended, which says something where it told of no end."""
    reading, writing = os.pipe()
    try:
        process = start(job, writing)
    except OSError as error:
        raise MachineError(f"no process can be started for your code: {error.strerror}; try again") from error
    finally:
        os.close(writing)
    try:
        return _attend(process, reading, job["answers"], told, seconds)
    finally:
        for ending in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                ending(process.pid, signal.SIGKILL)
        while process.poll() is None:
            time.sleep(0.01)
        os.close(reading)


def _attend(process: Process, reading: int, answers: int, told: Told, seconds: float) -> str:
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
            time.sleep(0.05)  # its output is closed, which a select does not wait for
        ended = process.poll()
        if ended is not None:
            if ended >= 0:
                return BROKE if ended == BROKEN else ENDED
            return SIGNALS.get(-ended, f"was ended by signal {-ended}")
        if os.fstat(answers).st_size != size:
            size, heard = os.fstat(answers).st_size, time.monotonic()
        if time.monotonic() - heard > PATIENCE * seconds + 2 * LOADING:
            return f"did not end within {within(seconds)}, and holds up its own limit: an endless loop?"


def _read(text: str, told: Told) -> str | None:
    """Read what a process told.

    Return None where it came to its end, and else the exercise in which it broke off, or OUTSIDE.
    """
    where: str | None = OUTSIDE
    try:
        for line in text.splitlines():
            where = _note(json.loads(line), where, told)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        told.troubles[OUTSIDE] = MEDDLED, []
        return None
    return where


def _note(event: dict[str, Any], where: str | None, told: Told) -> str | None:
    """Take in one event; return where the process is after it, as `_read` does."""
    kind, name = event["event"], event.get("exercise", OUTSIDE)
    if kind == "found" and told.found is None:
        told.found, told.names, told.calls = event["exercises"], event["names"], event["calls"]
        told.passed_over, told.imported = event["passed over"], event["imported"]
        told.replaced = event["replaced"]
    elif kind == "begin":
        told.answers[name] = []
        return str(name)
    elif kind == "answer":
        answer = event["answer"]
        kept = told.answers[str(where)]
        if answer["reading"] == len(kept):
            kept.append([])
        kept[answer["reading"]].append(answer)
    elif kind == "ran":
        told.calls[name] += event["names"]
        told.library[name] = event["library"]
    elif kind == "trouble":
        told.troubles[name] = event["words"], event["lines"]
        return where if name else None
    elif kind in ("end", "done"):
        return OUTSIDE if kind == "end" else None
    return where


def _crash_lines(text: str, home: str) -> list[str]:
    """Return the learner's innermost line of a crash."""
    for line in text.splitlines():
        if f'File "{home}' in line:
            return [line.strip().replace(home, "").replace('"/', '"')]
    return []
