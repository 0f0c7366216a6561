"""The process that runs a learner's code: a new Python for a file, or a fork for an object in memory.

The process writes events as lines of JSON to an open file, because the learner's code uses standard output. The
functions for writing are looked up before the learner's code is loaded, because the code may replace them.
"""

import contextlib
import faulthandler
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from regard.course.candidates import CallMonitor, Candidates, find_candidates
from regard.course.exercises import EXERCISES, Exercise, find_exercise
from regard.course.learner_calls import collect_answers, learner_lines, one_line
from regard.plugins import plugin_imports

MEMORY = 3 << 30
"""Memory in bytes that the code may allocate, in addition to the initial memory of the process."""
LOADING_SECONDS = 20.0
"""Additional seconds for loading a file, which may import PyTorch."""
PROCESS_EVENTS = {
    "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec", "subprocess.Popen"
}  # fmt: skip
"""Python's audit events for starting a process."""
SEED = 0
CHECKER_FAILED = 97
"""Exit status if the checker failed, for example because the code replaced a function that the checker needs."""
Send = Callable[[dict[str, Any]], None]
_encode, _write, _getpid, _exit = json.JSONEncoder().encode, os.write, os.getpid, os._exit
_signal, _setitimer = signal.signal, signal.setitimer
_timer = {"active": False}
"""Whether the time limit may stop the code."""


class StopError(BaseException):
    """Stops the learner's code. This class does not derive from `Exception`, so that handlers in the learner's
    code do not catch it."""


def format_limit(seconds: float) -> str:
    """Return a time limit as text.

    >>> format_limit(20.0)
    '20 seconds'
    """
    return "1 second" if seconds == 1 else f"{seconds:g} seconds"


def start_timer(seconds: float) -> None:
    """Stop the code after this much processor time, or after four times as much wall-clock time."""

    def stop(number: int, frame: Any) -> None:
        if not _timer["active"]:
            return
        _timer["active"] = False
        raise StopError(f"did not end within {format_limit(seconds)}: is there an endless loop?")

    _timer["active"] = True
    _signal(signal.SIGPROF, stop)
    _signal(signal.SIGALRM, stop)
    _setitimer(signal.ITIMER_PROF, seconds)
    _setitimer(signal.ITIMER_REAL, 4 * seconds)


def restrict_process(memory: int) -> None:
    """Limit the memory, and forbid new processes and signals to other processes."""
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
            raise StopError(
                f"starts a process ({event}): remove this call, because the checker runs your code in one process"
            )
        if event in ("os.kill", "os.killpg") and arguments[0] != _getpid():
            raise StopError(f"sends a signal to another process ({event}): remove that call")

    def refuse_spawning(*arguments: Any) -> NoReturn:
        raise StopError(
            "starts a process (multiprocessing): remove this call, because the checker runs your code in one "
            "process"
        )

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


def run_job(job: Mapping[str, Any], load: Callable[[], Mapping[str, Any]], send: Send) -> None:
    """Load the learner's code, call it with all inputs, and send the events."""
    home = _getpid()

    def send_from_here(event: dict[str, Any]) -> None:
        if _getpid() == home:  # a fork that was started in spite of the checks must not write
            send(event)

    exercise = find_exercise(job["exercise"]) if job["exercise"] else None
    for item in EXERCISES:  # inputs are drawn before the code is loaded, which may replace NumPy's functions
        item.expected(item.cases(SEED)[0])
    try:
        start_timer(job["seconds"] + LOADING_SECONDS)
        candidates = find_candidates(load(), exercise)
    except BaseException as error:
        _timer["active"] = False  # first of all: a pending signal arrives with the next call
        send_from_here({"event": "failure", **_describe(error, job["folder"])})
        return
    if "object" in job:  # an object in memory may be written anywhere
        candidates = Candidates(candidates.names, dict(candidates.names), {job["object"]: job["object"]})
    send_from_here(
        {
            "event": "loaded",
            "exercises": candidates.exercises,
            "names": list(candidates.own)[:20],
            "passed_over": candidates.passed_over,
            "imported": candidates.imported,
            "replaced": candidates.replaced,
            "calls": candidates.calls,
        }
    )
    for name, function in candidates.exercises.items():
        if name in job["done"]:
            continue
        send_from_here({"event": "begin", "exercise": name})
        try:
            start_timer(job["seconds"])
            _answer_exercise(find_exercise(name), function, candidates, send_from_here)
        except BaseException as error:
            _timer["active"] = False
            send_from_here({"event": "failure", "exercise": name, **_describe(error, job["folder"])})
        send_from_here({"event": "end", "exercise": name})
    send_from_here({"event": "done"})


def _answer_exercise(exercise: Exercise, name: str, candidates: Candidates, send: Send) -> None:
    cases, monitor = exercise.cases(SEED), CallMonitor(candidates)
    expected = exercise.expected(cases[0])

    def send_answer(answer: dict[str, Any]) -> None:
        send({"event": "answer", "answer": answer})

    collect_answers(exercise, candidates.names[name], cases, expected, send_answer, monitor)
    names, library = list(monitor.names), list(monitor.library)
    send({"event": "monitored", "exercise": exercise.name, "names": names, "library": library})


def _describe(error: BaseException, folder: str) -> dict[str, Any]:
    words, lines = explain_error(error), []
    if not isinstance(error, SyntaxError):
        with contextlib.suppress(Exception):  # for example if the traceback fills the memory
            lines = learner_lines(error, Path(folder))
    error.__traceback__ = error.__context__ = None
    return {"words": words, "lines": lines}


def explain_error(error: BaseException) -> str:
    """Return a short reason why the code was stopped.

    The sentence continues the name of the file or function.
    """
    if isinstance(error, KeyboardInterrupt):
        return "raises KeyboardInterrupt: remove that"
    if isinstance(error, StopError):
        return str(error)
    if isinstance(error, SystemExit):
        return "calls sys.exit: remove it, or move it under `if __name__ == '__main__':`"
    if isinstance(error, MemoryError) or "memory" in str(error).lower():
        return f"needs more than {MEMORY >> 30} GB of memory"
    if isinstance(error, EOFError):
        return "reads standard input, for example with input(): write the values into the code"
    if isinstance(error, SyntaxError):
        return f"has a syntax error: {error.msg} (line {error.lineno})"
    if isinstance(error, ModuleNotFoundError):
        return f"cannot be imported: {error}: install it, or remove the import"
    return f"cannot be run: {one_line(error)}"


def event_writer(descriptor: int) -> Send:
    """Return a function that writes each event to an open file immediately."""

    def send(event: dict[str, Any]) -> None:
        data = (_encode(event) + "\n").encode()
        while data:
            data = data[_write(descriptor, data) :]

    return send


def run_in_fork(job: Mapping[str, Any], names: Mapping[str, Any], stdout: int) -> NoReturn:
    """Run a job in a process that was just forked, and end the process."""
    try:
        os.setsid()
        devnull = os.open(os.devnull, os.O_RDONLY)
        for descriptor, standard in ((devnull, 0), (stdout, 1), (stdout, 2)):
            os.dup2(descriptor, standard)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = sys.stdout
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # a fork does not have the threads of its parent
        _prepare(job)
        run_job(job, lambda: names, event_writer(job["answers"]))
    finally:
        _end()


def _prepare(job: Mapping[str, Any]) -> None:
    faulthandler.enable(job["crashes"])
    restrict_process(job["memory"])


def main() -> NoReturn:
    """Run the job that the command line describes as JSON."""
    try:
        job = json.loads(sys.argv[1])
        _prepare(job)
        run_job(job, lambda: load_file(Path(job["file"])), event_writer(job["answers"]))
    finally:
        _end()


def _end() -> NoReturn:
    """End this process, even if the code left threads running or closed its output."""
    failed = sys.exc_info()[0] is not None
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    _exit(CHECKER_FAILED if failed else 0)
