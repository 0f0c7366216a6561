"""The process that runs a learner's code: a fork of `serve` for a file, or of the caller for an object. It receives
inputs, and writes events as JSON to a socket. The code may replace functions, so they are looked up before."""

import contextlib
import faulthandler
import functools
import importlib.util
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from regard.errors import InputError
from regard.plugins import plugin_imports
from regard_course.arrays import encode_outputs
from regard_course.candidates import COURSE, CallMonitor, Candidates, find_candidates
from regard_course.inputs import MESSAGES
from regard_course.learner_calls import collect_answers, explain, learner_lines, record_answer
from regard_course.program_tables import describe_program, record_lines
from regard_course.time_limit import StopError, start_timer, stop_timer
from regard_course.translated import say, speak

MEMORY = 3 << 30
"""Memory in bytes that the code may allocate, in addition to the initial memory of the process."""
LOADING_SECONDS = 20.0
"""Additional seconds for loading a file, which may import PyTorch."""
PROCESS_EVENTS = {
    "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec", "subprocess.Popen"
}  # fmt: skip
"""Python's audit events for starting a process."""
SOLUTION_MODULES = (
    "regard_course.mistakes",
    "regard_course.exercises",
    "regard_course.puzzles",
    "regard_lab.programs.library",
)
SOLUTION_FOLDERS = tuple(str(COURSE.parent / name.replace(".", os.sep)) for name in SOLUTION_MODULES)
"""Modules that contain solutions. A learner's code must not read them."""
MAX_PRINTED = 100_000
"""Number of characters that a program for a puzzle may print."""
REPLY_RIGHT, REPLY_WRONG = b"1", b"0"
CHECKER_FAILED = 97
"""Exit status if the checker failed, for example because the code replaced a function that the checker needs."""
Send = Callable[[dict[str, Any]], None]
Ask = Callable[[dict[str, Any]], bool]
"""Function that returns whether an answer to the first case is right."""
_encode, _write, _read, _getpid, _exit = json.JSONEncoder().encode, os.write, os.read, os.getpid, os._exit
_realpath, _abspath, _basename, _fsdecode = os.path.realpath, os.path.abspath, os.path.basename, os.fsdecode


def restrict_process(memory: int, home: str) -> None:
    """Limit the memory, and forbid new processes, signals to others, and links that leave the folder `home`."""
    used = 0
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmData")]
        used = int(line.split()[1]) << 10
    import resource  # does not exist on Windows, where the checker does not run

    resource.setrlimit(resource.RLIMIT_DATA, (used + memory, used + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def refuse(event: str, arguments: Any) -> None:
        if event in PROCESS_EVENTS:
            raise StopError(say(MESSAGES["starts_process"], event))
        if event in ("os.kill", "os.killpg") and arguments[0] != _getpid():
            raise StopError(say("sends a signal to another process ({0}): remove that call", event))
        path = _fsdecode(arguments[0]) if event == "open" and isinstance(arguments[0], str | bytes) else ""
        target = _realpath(path) if path else ""
        if home and _abspath(path).startswith(home) and not target.startswith(home):
            raise StopError(say(MESSAGES["leaves_folder"], _basename(path)))
        if target.startswith(SOLUTION_FOLDERS) or (event == "import" and arguments[0].startswith(SOLUTION_MODULES)):
            raise StopError(say(MESSAGES["reads_solutions"]))

    def refuse_spawning(*arguments: Any) -> NoReturn:
        raise StopError(say(MESSAGES["starts_process"], "multiprocessing"))

    sys.addaudithook(refuse)
    with contextlib.suppress(ImportError):
        import _posixsubprocess  # multiprocessing starts processes with it, without an audit event

        _posixsubprocess.fork_exec = refuse_spawning


def load_file(path: Path) -> dict[str, Any]:
    """Import a learner's file as a module, and return its names."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    with plugin_imports(path.parent, path.stem):
        spec.loader.exec_module(module)
    return vars(module)


def run_job(job: Mapping[str, Any], load: Callable[[], Mapping[str, Any]], send: Send, ask: Ask) -> None:
    """Load the learner's code, call it with all inputs, and send the events."""
    home = _getpid()

    def send_from_here(event: dict[str, Any]) -> None:
        if _getpid() == home:  # a fork that was started in spite of the checks must not write
            send(event)

    try:
        start_timer(job["seconds"] + LOADING_SECONDS)
        candidates = find_candidates(load(), job["exercises"], chosen=job["chosen"])
    except BaseException as error:
        stop_timer()  # first of all: a pending signal arrives with the next call
        send_from_here({"event": "failure", **_describe(error, job["folder"])})
        return
    if "object" in job:  # an object in memory may be written anywhere
        candidates = Candidates(candidates.names, dict(candidates.names), {job["object"]: job["object"]})
    names = ("exercises", "passed_over", "imported", "replaced", "calls")
    found = {"names": list(candidates.own)[:20], **{name: getattr(candidates, name) for name in names}}
    send_from_here({"event": "loaded", "found": found})
    if job.get("record"):
        name, case = job["record"]
        with contextlib.suppress(BaseException):
            (exercise,) = job["exercises"]
            start_timer(job["seconds"])
            runs = record_answer(exercise, candidates.names[candidates.exercises[name]], case)
            send_from_here({"event": "recorded", "runs": [encode_outputs(run) for run in runs]})
        send_from_here({"event": "done"})
        return
    for exercise in job["exercises"]:
        if exercise.name in job["done"] or exercise.name not in candidates.exercises:
            continue
        send_from_here({"event": "begin", "exercise": exercise.name})
        try:
            start_timer(job["seconds"], lambda: send_from_here({"event": "alive"}))
            monitor = CallMonitor(candidates)
            collect_answers(
                exercise,
                candidates.names[candidates.exercises[exercise.name]],
                job["cases"][exercise.name],
                ask,
                lambda answer: send_from_here({"event": "answer", "answer": answer}),
                monitor,
            )
            monitored = {"names": list(monitor.names), "library": list(monitor.library)}
            send_from_here({"event": "monitored", "exercise": exercise.name, **monitored})
        except BaseException as error:
            stop_timer()
            send_from_here({"event": "failure", "exercise": exercise.name, **_describe(error, job["folder"])})
        send_from_here({"event": "end", "exercise": exercise.name})
    send_from_here({"event": "done"})


def run_program(job: Mapping[str, Any], load: Callable[[], Mapping[str, Any]], send: Send) -> None:
    """Load a learner's program, and send its tables."""
    printed, write = 0, sys.stdout.write

    def write_some(text: str) -> int:
        nonlocal printed
        printed += len(text)
        if printed > MAX_PRINTED:
            raise StopError(say("prints without end: more than {0} characters", f"{MAX_PRINTED:,}"))
        return write(text)

    sys.stdout.write = write_some  # type: ignore[method-assign]
    try:
        start_timer(job["seconds"])
        lines, (alphabet, longest) = record_lines(job["file"]), job["program"]
        program = describe_program(load(), alphabet, longest, lines)
    except BaseException as error:
        stop_timer()
        failure = _describe(error, job["folder"])
        send({"event": "failure", **failure, **({"words": str(error)} if isinstance(error, InputError) else {})})
        return
    send({"event": "program", "program": program})
    send({"event": "done"})


def _describe(error: BaseException, folder: str) -> dict[str, Any]:
    lines: list[str] = []
    if not isinstance(error, SyntaxError):
        with contextlib.suppress(Exception):  # for example if the traceback fills the memory
            lines = learner_lines(error, Path(folder))
    words = explain_error(error, lines)
    error.__traceback__ = error.__context__ = None
    return {"words": words, "lines": lines}


def explain_error(error: BaseException, lines: Sequence[str] = ()) -> str:
    """Return a short reason why the code was stopped. The sentence continues the name of the file or function."""
    if isinstance(error, KeyboardInterrupt):
        return say("raises KeyboardInterrupt: remove that")
    if isinstance(error, StopError):
        return str(error)
    if isinstance(error, SystemExit):
        return say("calls sys.exit: remove it, or move it under `if __name__ == '__main__':`")
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return say("needs more than {0} GB of memory", MEMORY >> 30)
    if isinstance(error, EOFError):
        return say("reads standard input, for example with input(): write the values into the code")
    if isinstance(error, SyntaxError):
        if error.lineno is None:  # for null bytes
            return say("is not a Python file: {0}", error.msg)
        return say("has a syntax error: {0} (line {1})", error.msg, error.lineno)
    words = explain(error, lines)
    if isinstance(error, ModuleNotFoundError):
        return say("cannot be imported: {0}", words.partition(": ")[2])
    return say("cannot be run: {0}", words)


def event_channel(descriptor: int) -> tuple[Send, Ask]:
    """Return a function that writes an event to a socket, and one that asks whether an answer is right."""

    writing = False

    def send(event: dict[str, Any]) -> None:
        nonlocal writing
        if writing:  # the time limit interrupts the writing of an event, which shows that the code is alive
            return
        writing, data = True, (_encode(event) + "\n").encode()
        try:
            while data:
                data = data[_write(descriptor, data) :]
        finally:
            writing = False

    def ask(answer: dict[str, Any]) -> bool:
        send({"event": "question", "answer": answer})
        return _read(descriptor, 1) == REPLY_RIGHT

    return send, ask


def run_in_fork(
    job: Mapping[str, Any], load: Callable[[], Mapping[str, Any]], stdout: int, answers: int, crashes: int
) -> NoReturn:
    """Run a job in a process that was just forked, and end the process. The file descriptors are those of the
    code's output, of the socket for events, and of the file for the traceback of a crash."""
    try:
        os.setsid()
        devnull = os.open(os.devnull, os.O_RDONLY)
        for descriptor, standard in ((devnull, 0), (stdout, 1), (stdout, 2)):
            os.dup2(descriptor, standard)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = sys.stdout
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # a fork does not have the threads of its parent
        faulthandler.enable(crashes)
        send, ask = event_channel(answers)
        with speak(job["language"]):
            restrict_process(job["memory"], job.get("home", ""))
            if job.get("program"):
                run_program(job, load, send)
            else:
                run_job(job, load, send, ask)
    finally:  # end this process, even if the code left threads running or closed its output
        failed = sys.exc_info()[0] is not None
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        _exit(CHECKER_FAILED if failed else 0)


def serve(descriptor: int, preload: str) -> None:
    """Fork a process for each job that arrives at a socket, until it is closed, after `preload` ("torch" or empty) is
    imported. For each job, the process ID and then the exit status are sent back."""
    with contextlib.suppress(ImportError):
        importlib.import_module(preload or "numpy")
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            with socket.socket(fileno=os.dup(descriptor)) as channel:
                _, descriptors, _, _ = socket.recv_fds(channel, 1, 3)
            if not descriptors:
                return
            job = connection.recv()
            pid = os.fork()
            if not pid:
                connection.close()
                run_in_fork(job, functools.partial(load_file, Path(job["file"])), *descriptors)
            for copy in descriptors:
                os.close(copy)
            connection.send(pid)
            connection.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
