"""Run a learner's code in a separate process with limits, and collect its answers.

The limits prevent damage by mistakes, but do not protect against malicious code.
"""

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

from regard.course.worker import CHECKER_FAILED, LOADING_SECONDS, MEMORY, format_limit, run_in_fork
from regard.errors import MachineError

SECONDS = 20.0
"""Default limit of processor time for each exercise, in seconds."""
MAX_OUTPUT = 1 << 20
"""Maximum number of bytes that the code may print."""
PATIENCE = 6
"""A process without an event is killed after this multiple of its time limit, because the code has blocked the
limit."""
SIGNALS: dict[int, str] = {
    signal.SIGSEGV: "crashed (segmentation fault)",
    signal.SIGABRT: "crashed (aborted)",
    signal.SIGBUS: "crashed (bus error)",
    signal.SIGFPE: "crashed (arithmetic error)",
    signal.SIGILL: "crashed (illegal instruction)",
    signal.SIGKILL: "was killed by SIGKILL, which the system sends if memory runs out",
}


class Process(Protocol):
    """A running process."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit status (negative for a signal), or None while the process runs."""
        ...


class ForkedProcess:
    """A fork of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exit_status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status (negative for a signal), or None while the process runs."""
        if self.exit_status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.exit_status = os.waitstatus_to_exitcode(status) if pid else None
        return self.exit_status


Start = Callable[[dict[str, Any], int], Process]
"""Function that starts a process for a job. The process writes its output to the file descriptor of a pipe."""
EXITED = "ended its own process, for example with os._exit: remove that call"
BROKE_CHECKER = (
    "made the checker fail: does the code replace a function of Python, or close files that it did not open?"
)
NO_EXERCISE = ""
"""Key for the time when no exercise is running."""
CHANGED_ANSWERS = "writes into the file that contains its answers: remove that code"


@dataclass
class JobResult:
    """The events that a process sent, and the reason why it ended."""

    exercises: dict[str, str] | None = None
    """Name of the answer to each exercise. None if the code was never loaded."""
    names: list[str] = field(default_factory=list)
    passed_over: dict[str, list[str]] = field(default_factory=dict)
    """Other names that fit each exercise and are not called."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For each exercise whose only candidate is an imported object: the name and the module of this object."""
    replaced: list[str] = field(default_factory=list)
    """Functions of other modules that the file replaces."""
    calls: dict[str, list[str]] = field(default_factory=dict)
    """Names in the file that the answer to each exercise uses."""
    library: dict[str, list[str]] = field(default_factory=dict)
    """Library functions that do the work of each exercise."""
    answers: dict[str, list[list[dict[str, Any]]]] = field(default_factory=dict)
    """Answers to each exercise, by attempt (see `collect_answers`) and case."""
    failures: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    """Reason why each exercise stopped, with the lines of the learner's code. The name "" stands for the whole
    file."""
    prints: str = ""


def run_file(path: Path, exercise: str | None, *, seconds: float = SECONDS, memory: int = MEMORY) -> JobResult:
    """Run a learner's file in a new Python process. `seconds`: processor time of each exercise. `memory`: limit
    in bytes."""

    def start(job: dict[str, Any], stdout: int) -> Process:
        description = json.dumps({**job, "file": str(path.resolve())})
        source = Path(__file__).parents[2]
        inherited = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(source), *([inherited] if inherited else [])]),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "TORCHDYNAMO_DISABLE": "1",  # compilers start processes, so functions run uncompiled
        }
        return subprocess.Popen(
            [sys.executable, "-P", "-c", "from regard.course.worker import main; main()", description],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stdout,
            pass_fds=(job["answers"], job["crashes"]),
            start_new_session=True,
            env=environment,
        )

    return _run_job(start, str(path.resolve().parent), exercise, seconds, memory)


def run_object(solution: Any, folder: Path, exercise: str, *, seconds: float = SECONDS) -> JobResult:
    """Run a learner's function or class that exists only in this process, in a fork of the process."""

    def start(job: dict[str, Any], stdout: int) -> Process:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fork does not need the threads of this process
            pid = os.fork()
        if not pid:
            run_in_fork({**job, "object": exercise}, {exercise: solution}, stdout)
        return ForkedProcess(pid)

    return _run_job(start, str(folder), exercise, seconds, MEMORY)


def _run_job(start: Start, folder: str, exercise: str | None, seconds: float, memory: int) -> JobResult:
    """Start processes until every exercise is answered or stopped. A crash stops only one exercise."""
    result = JobResult()
    job: dict[str, Any] = {
        "exercise": exercise,
        "folder": folder,
        "seconds": seconds,
        "memory": memory,
        "done": [],
    }
    while True:
        with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as crashes:
            files = {"answers": answers.fileno(), "crashes": crashes.fileno()}
            reason = _run_process(start, {**job, **files}, result, seconds)
            stopped = _read_events(_read_text(answers), result)
            lines = _crash_lines(_read_text(crashes), folder)
        if stopped is None:
            return result
        result.failures[stopped] = reason, lines
        if stopped == NO_EXERCISE:
            return result
        job["done"] = [*result.answers, *result.failures]
        if result.exercises is None or all(name in job["done"] for name in result.exercises):
            return result


def _read_text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _run_process(start: Start, job: dict[str, Any], result: JobResult, seconds: float) -> str:
    """Run one process until it ends. Return the reason why the process ended, for use if no event shows the
    reason."""
    reading, writing = os.pipe()
    try:
        process = start(job, writing)
    except OSError as error:
        raise MachineError(f"cannot start a process for your code: {error.strerror}; try again") from error
    finally:
        os.close(writing)
    try:
        return _wait(process, reading, job["answers"], result, seconds)
    finally:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(process.pid, signal.SIGKILL)
        while process.poll() is None:
            time.sleep(0.01)
        os.close(reading)


def _wait(process: Process, reading: int, answers: int, result: JobResult, seconds: float) -> str:
    """Read the output of a process until the process ends or exceeds a limit. Return the reason."""
    printed, size, last_event = 0, -1, time.monotonic()
    while True:
        if select.select([reading], [], [], 0.05)[0]:
            output = os.read(reading, 1 << 16)
            printed += len(output)
            if len(result.prints) < MAX_OUTPUT:
                result.prints += output.decode("utf-8", "replace")
            if printed > MAX_OUTPUT:
                return f"prints without end: more than {MAX_OUTPUT >> 20} MB"
            if output:
                continue
            time.sleep(0.05)  # after the output is closed, select returns at once
        status = process.poll()
        if status is not None:
            if status >= 0:
                return BROKE_CHECKER if status == CHECKER_FAILED else EXITED
            return SIGNALS.get(-status, f"was ended by signal {-status}")
        if os.fstat(answers).st_size != size:
            size, last_event = os.fstat(answers).st_size, time.monotonic()
        if time.monotonic() - last_event > PATIENCE * seconds + 2 * LOADING_SECONDS:
            return f"did not end within {format_limit(seconds)} and blocked its time limit: an endless loop?"


def _read_events(text: str, result: JobResult) -> str | None:
    """Add the events of a process to the result.

    Return None if the process finished, else the exercise in which it was stopped, or NO_EXERCISE.
    """
    current: str | None = NO_EXERCISE
    try:
        for line in text.splitlines():
            current = _add_event(json.loads(line), current, result)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        result.failures[NO_EXERCISE] = CHANGED_ANSWERS, []
        return None
    return current


def _add_event(event: dict[str, Any], current: str | None, result: JobResult) -> str | None:
    """Add one event to the result. Return the exercise that runs after the event, like `_read_events`."""
    kind, name = event["event"], event.get("exercise", NO_EXERCISE)
    if kind == "loaded" and result.exercises is None:
        result.exercises, result.names, result.calls = event["exercises"], event["names"], event["calls"]
        result.passed_over, result.imported = event["passed_over"], event["imported"]
        result.replaced = event["replaced"]
    elif kind == "begin":
        result.answers[name] = []
        return str(name)
    elif kind == "answer":
        answer = event["answer"]
        attempts = result.answers[str(current)]
        if answer["attempt"] == len(attempts):
            attempts.append([])
        attempts[answer["attempt"]].append(answer)
    elif kind == "monitored":
        result.calls[name] += event["names"]
        result.library[name] = event["library"]
    elif kind == "failure":
        result.failures[name] = event["words"], event["lines"]
        return current if name else None
    elif kind in ("end", "done"):
        return NO_EXERCISE if kind == "end" else None
    return current


def _crash_lines(text: str, folder: str) -> list[str]:
    """Return the innermost line of the learner's code in the traceback of a crash."""
    for line in text.splitlines():
        if f'File "{folder}' in line:
            return [line.strip().replace(folder, "").replace('"/', '"')]
    return []
