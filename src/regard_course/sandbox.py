"""Run a learner's code in a separate process with limits, without expected outputs, and collect its answers. The limits
do not protect against malicious code, which could read memory and files."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from regard.errors import MachineError
from regard_course.arrays import decode_outputs, equal_outputs
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import MESSAGES, Array, Case
from regard_course.time_limit import format_limit
from regard_course.translated import LANGUAGE, say
from regard_course.worker import CHECKER_FAILED, LOADING_SECONDS, MEMORY, REPLY_RIGHT, REPLY_WRONG, run_in_fork

# Processes that run a learner's code: forks of a server for files, or of this process for objects in memory.

Descriptors = tuple[int, int, int]
"""Open files of a process: its output, the socket for its events, and the traceback of a crash."""
SOURCE = Path(__file__).parents[1]
"""Folder of the package, for processes that do not run in its environment."""


class Process:
    """A running process: a fork of a server, which sends its ID and its exit status, or of this process."""

    def __init__(self, server: Connection | None, pid: int = 0) -> None:
        self._server = server
        self._exit_status: int | None = None
        self.pid = self._receive(server) if server else pid

    def poll(self) -> int | None:
        """Return the exit status (negative for a signal), or None while the process runs."""
        if self._exit_status is None and self._server is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._exit_status = os.waitstatus_to_exitcode(status) if pid else None
        elif self._exit_status is None and self._server and self._server.poll():
            self._exit_status = self._receive(self._server)
        return self._exit_status

    @staticmethod
    def _receive(server: Connection) -> int:
        try:
            return int(server.recv())
        except (EOFError, ConnectionError) as error:
            raise MachineError("the process that runs your code was ended: try again") from error


Start = Callable[[dict[str, Any], Descriptors], Process]
"""Function that starts a process for a job."""


class ForkServer(contextlib.AbstractContextManager["ForkServer"]):
    """Processes that fork for each file: one for files that use PyTorch and one for the others. Use it as `with
    ForkServer() as server: run_file(..., server)`. The processes start when they are needed."""

    def __init__(self) -> None:
        self._servers: dict[str, tuple[Connection, subprocess.Popen[bytes]]] = {}

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        for connection, process in self._servers.values():
            connection.close()  # ends the process
            process.wait()
        self._servers.clear()

    def start(self, job: dict[str, Any], descriptors: Descriptors) -> Process:
        """Start a process that runs a learner's file."""
        uses_torch = re.search(rb"\btorch\b", Path(job["file"]).read_bytes())
        connection = self._connect("torch" if uses_torch else "")
        with socket.socket(fileno=os.dup(connection.fileno())) as channel:
            socket.send_fds(channel, [b"."], descriptors)
        connection.send(job)
        return Process(connection)

    def _connect(self, preload: str) -> Connection:
        if preload in self._servers:
            return self._servers[preload][0]
        ours, theirs = socket.socketpair()
        inherited = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(SOURCE), *([inherited] if inherited else [])]),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "TORCHDYNAMO_DISABLE": "1",  # compilers start processes, so functions run uncompiled
        }
        code = f"from regard_course.worker import serve; serve({theirs.fileno()}, {preload!r})"
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=environment,
            )
        self._servers[preload] = Connection(ours.detach()), process
        return self._servers[preload][0]


SECONDS = 20.0
"""Default limit of processor time without progress for each exercise, in seconds (see `time_limit`)."""
MAX_OUTPUT = 1 << 20
"""Maximum number of bytes that the code may print."""
PATIENCE = 6
"""A process without an event is killed after this multiple of its time limit, because the code has blocked the
limit. The limit itself sends an event when it lets the code go on."""
NO_EXERCISE = ""
"""Key for the time when no exercise is running."""


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
    """Why each exercise stopped, with the learner's lines. The name "" stands for the whole file."""
    prints: str = ""
    program: dict[str, Any] | None = None
    """The tables of a program for a puzzle (see `program_tables`)."""
    recordings: list[list[Array]] = field(default_factory=list)
    """All arrays of a run, for each way to call the code (see `record_answer`)."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The exercises that a file may answer."""

    exercises: Sequence[Exercise]
    chosen: bool = False
    """Whether the only exercise was chosen for the file, whatever the name of its answer."""
    seed: int = 0
    """Seed of the inputs."""

    def find(self, name: str) -> Exercise:
        return next(exercise for exercise in self.exercises if exercise.name == name)


def run_file(
    path: Path,
    assignment: Assignment,
    server: ForkServer,
    *,
    seconds: float = SECONDS,
    memory: int = MEMORY,
    home: Path | None = None,
    program: tuple[str, int] | None = None,
    record: tuple[str, Case] | None = None,
) -> JobResult:
    """Run a learner's file in a fork of a server. `seconds`, `home`: see `check_file`. `memory`: in bytes. `program`:
    alphabet and length of the texts of a puzzle. `record`: an exercise and an input to record instead."""
    path = path.resolve()
    job = {"file": str(path), "folder": str(path.parent), "seconds": seconds, "memory": memory}
    options = {"home": f"{home}{os.sep}" if home else "", "program": program, "record": record}
    return _run_job(server.start, {**job, **options}, assignment)


def run_object(
    solution: Any,
    folder: Path,
    assignment: Assignment,
    *,
    seconds: float = SECONDS,
    record: tuple[str, Case] | None = None,
) -> JobResult:
    """Run a learner's function or class that exists only in this process, in a fork of the process. Unlike the
    process of a file, the fork contains everything that this process has loaded."""
    (exercise,) = assignment.exercises

    def start(job: dict[str, Any], descriptors: Descriptors) -> Process:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fork does not need the threads of this process
            pid = os.fork()
        if not pid:
            run_in_fork(job, lambda: {exercise.name: solution}, *descriptors)
        return Process(None, pid)

    job = {"object": exercise.name, "folder": str(folder), "seconds": seconds, "memory": MEMORY}
    return _run_job(start, {**job, "record": record}, assignment)


def _run_job(start: Start, job: dict[str, Any], assignment: Assignment) -> JobResult:
    """Start processes until every exercise is answered or stopped. A crash stops only one exercise."""
    result = JobResult()
    job = {
        **job,
        "exercises": [exercise.specification for exercise in assignment.exercises],
        "cases": {exercise.name: exercise.cases(assignment.seed) for exercise in assignment.exercises},
        "chosen": assignment.chosen,
        "language": LANGUAGE.get(),
        "done": [],
    }
    while True:
        with tempfile.TemporaryFile() as crashes:
            events = _Events(result, assignment)
            reason = _run_process(start, job, crashes.fileno(), events)
            crashes.seek(0)
            traceback, folder = crashes.read().decode("utf-8", "replace").splitlines(), job["folder"]
            lines = [line for line in traceback if f'File "{folder}' in line][:1]
        stopped = events.current
        if stopped is None:
            return result
        result.failures[stopped] = reason, [line.strip().replace(folder, "").replace('"/', '"') for line in lines]
        if stopped == NO_EXERCISE:
            return result
        job["done"] = [*result.answers, *result.failures]
        if result.exercises is None or all(name in job["done"] for name in result.exercises):
            return result


class _Events:
    """The events of a process, as they arrive."""

    def __init__(self, result: JobResult, assignment: Assignment) -> None:
        self.result, self._assignment, self._unread = result, assignment, b""
        self.current: str | None = NO_EXERCISE
        """The exercise that runs, NO_EXERCISE, or None if the process has finished."""

    def read(self, channel: socket.socket) -> bool:
        """Read the available bytes, and answer questions. Return whether there were any."""
        try:
            data = channel.recv(1 << 20)
        except ConnectionError:
            return False
        if self.current is None:  # the process has finished, or its events are not its own
            return bool(data)
        *lines, self._unread = (self._unread + data).split(b"\n")
        try:
            for line in lines:
                event = json.loads(line)
                if event["event"] == "question":
                    right = self._is_right(event["answer"])
                    with contextlib.suppress(BrokenPipeError):
                        channel.sendall(REPLY_RIGHT if right else REPLY_WRONG)
                else:
                    self._add(event)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration):
            self.result.failures[NO_EXERCISE] = say(MESSAGES["changed_answers"]), []
            self.current = None
        return bool(data)

    def _is_right(self, answer: dict[str, Any]) -> bool:
        exercise = self._assignment.find(str(self.current))
        case, outputs = exercise.cases(self._assignment.seed)[0], decode_outputs(answer)
        return outputs is not None and equal_outputs(case, outputs, exercise.expected(case))

    def _add(self, event: dict[str, Any]) -> None:
        kind, name, result = event["event"], event.get("exercise", NO_EXERCISE), self.result
        if kind == "loaded" and result.exercises is None:
            vars(result).update(event["found"])
        elif kind == "begin":
            result.answers[name] = []
            self.current = str(name)
        elif kind == "answer":
            answer = event["answer"]
            attempts = result.answers[str(self.current)]
            if answer["attempt"] == len(attempts):
                attempts.append([])
            attempts[answer["attempt"]].append(answer)
        elif kind == "monitored":
            result.calls[name] += event["names"]
            result.library[name] = event["library"]
        elif kind == "recorded":
            result.recordings = [decode_outputs({"outputs": run}) or [] for run in event["runs"]]
        elif kind == "program":
            result.program = event["program"]
        elif kind == "failure":
            result.failures[name] = event["words"], event["lines"]
            self.current = self.current if name else None
        elif kind in ("end", "done"):
            self.current = NO_EXERCISE if kind == "end" else None


def _run_process(start: Start, job: dict[str, Any], crashes: int, events: _Events) -> str:
    """Run one process until it ends, and return why it ended, for use if no event shows the reason."""
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            process = start(job, (writing, theirs.fileno(), crashes))
        except OSError as error:
            raise MachineError(f"cannot start a process for your code: {error.strerror}; try again") from error
        finally:
            os.close(writing)
        theirs.close()
        try:
            return _wait(process, reading, ours, events, job["seconds"])
        finally:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(process.pid, signal.SIGKILL)
            while process.poll() is None:
                time.sleep(0.002)
            os.close(reading)


def _wait(process: Process, reading: int, channel: socket.socket, events: _Events, seconds: float) -> str:
    """Read the output and the events of a process until it ends or exceeds a limit. Return the reason."""
    result, printed, last_event = events.result, 0, time.monotonic()
    streams: list[Any] = [reading, channel]
    while True:
        readable = select.select(streams, [], [], 0.02)[0]
        if channel in readable:
            if events.read(channel):
                last_event = time.monotonic()
            else:
                streams.remove(channel)
        if reading in readable:
            output = os.read(reading, 1 << 16)
            printed += len(output)
            if len(result.prints) < MAX_OUTPUT:
                result.prints += output.decode("utf-8", "replace")
            if printed > MAX_OUTPUT:
                return say("prints without end: more than {0} MB", MAX_OUTPUT >> 20)
            if not output:
                streams.remove(reading)
        if readable:
            continue
        status = process.poll()
        if status is not None:
            if status >= 0:
                return say(MESSAGES["broke_checker" if status == CHECKER_FAILED else "exited"])
            signals = MESSAGES["signals"].items()
            known = {getattr(signal, name): words for name, words in signals if hasattr(signal, name)}
            return say(known[-status]) if -status in known else say("was ended by signal {0}", -status)
        if time.monotonic() - last_event > PATIENCE * seconds + 2 * LOADING_SECONDS:
            return say(MESSAGES["blocked"], format_limit(seconds))
