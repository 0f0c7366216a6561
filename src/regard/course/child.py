"""The process that runs a learner's code: a fresh Python for a file, or a fork for an object in memory.

It writes what happens, one line of JSON after the other, into an open file: its standard output is the learner's.
The functions that write are looked up before the learner's code is loaded, which may replace any of them.
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

from regard.course.answering import answers_of, one_line, own_lines
from regard.course.candidates import Candidates, Watch, find_candidates
from regard.course.exercises import EXERCISES, Exercise, find_exercise
from regard.plugins import plugin_imports

MEMORY = 3 << 30
"""Bytes that the code may ask for, beyond what is there at its start."""
LOADING = 20.0
"""Seconds that may be added for loading a file, PyTorch included."""
STARTING = {"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec", "subprocess.Popen"}
"""What Python calls the ways to start a process."""
SEED = 0
BROKEN = 97
"""Exit status of a process whose checker failed, as when the code has replaced what it needs."""
Tell = Callable[[dict[str, Any]], None]
_encode, _write, _getpid, _exit = json.JSONEncoder().encode, os.write, os.getpid, os._exit
_signal, _setitimer = signal.signal, signal.setitimer
_clock = {"on": False}
"""Whether the code may be stopped for the time that it has taken."""


class StopError(BaseException):
    """The code is to go no further; no `except Exception` of its own holds that up."""


def within(seconds: float) -> str:
    """Return a time in words."""
    return "1 second" if seconds == 1 else f"{seconds:g} seconds"


def limit(seconds: float) -> None:
    """Give the code so many seconds of the processor from now on, and four times as many of the clock."""

    def end(number: int, frame: Any) -> None:
        if not _clock["on"]:
            return
        _clock["on"] = False
        raise StopError(f"did not end within {within(seconds)}: is there an endless loop?")

    _clock["on"] = True
    _signal(signal.SIGPROF, end)
    _signal(signal.SIGALRM, end)
    _setitimer(signal.ITIMER_PROF, seconds)
    _setitimer(signal.ITIMER_REAL, 4 * seconds)


def confine(memory: int) -> None:
    """Limit memory, and refuse new processes and signals to others."""
    there = 0
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [each for each in status.read_text().splitlines() if each.startswith("VmData")]
        there = int(line.split()[1]) << 10
    import resource  # which Windows has not, where no code is run

    resource.setrlimit(resource.RLIMIT_DATA, (there + memory, there + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def refuse(event: str, arguments: Any) -> None:
        if event in STARTING:
            raise StopError(f"starts a process ({event}): take that out, the checker runs your code in one")
        if event in ("os.kill", "os.killpg") and arguments[0] != _getpid():
            raise StopError(f"sends a signal to another process ({event}): take that out")

    def refuse_spawning(*arguments: Any) -> NoReturn:
        raise StopError("starts a process (multiprocessing): take that out, the checker runs your code in one")

    sys.addaudithook(refuse)
    with contextlib.suppress(ImportError):
        import _posixsubprocess  # by which multiprocessing starts processes, without an audit event

        _posixsubprocess.fork_exec = refuse_spawning


def load_file(path: Path) -> dict[str, Any]:
    """Run a learner's file as a module, and return its names."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    with plugin_imports(path.parent, path.stem):
        spec.loader.exec_module(module)
    return vars(module)


def work(job: Mapping[str, Any], load: Callable[[], Mapping[str, Any]], tell: Tell) -> None:
    """Load the learner's code and ask it everything, telling what happens."""
    home = _getpid()

    def told(event: dict[str, Any]) -> None:
        if _getpid() == home:  # a fork that came through all the same has nothing to tell
            tell(event)

    exercise = find_exercise(job["exercise"]) if job["exercise"] else None
    for each in EXERCISES:  # drawn before the code is loaded, which may replace NumPy's functions
        each.expected(each.cases(SEED)[0])
    try:
        limit(job["seconds"] + LOADING)
        found = find_candidates(load(), exercise)
    except BaseException as error:
        _clock["on"] = False  # first of all: a signal that waits comes with the next call
        told({"event": "trouble", **_trouble(error, job["folder"])})
        return
    if "asked" in job:  # an object that was given, wherever it is written
        found = Candidates(found.names, dict(found.names), {job["asked"]: job["asked"]})
    told(
        {
            "event": "found",
            "exercises": found.exercises,
            "names": list(found.own)[:20],
            "passed over": found.passed_over,
            "imported": found.imported,
            "replaced": found.replaced,
            "calls": found.calls,
        }
    )
    for name, called in found.exercises.items():
        if name in job["done"]:
            continue
        told({"event": "begin", "exercise": name})
        try:
            limit(job["seconds"])
            _ask(find_exercise(name), called, found, told)
        except BaseException as error:
            _clock["on"] = False
            told({"event": "trouble", "exercise": name, **_trouble(error, job["folder"])})
        told({"event": "end", "exercise": name})
    told({"event": "done"})


def _ask(exercise: Exercise, called: str, found: Candidates, told: Tell) -> None:
    cases, watch = exercise.cases(SEED), Watch(found)
    right = exercise.expected(cases[0])

    def answered(answer: dict[str, Any]) -> None:
        told({"event": "answer", "answer": answer})

    answers_of(exercise, found.names[called], cases, right, answered, watch)
    told({"event": "ran", "exercise": exercise.name, "names": list(watch.names), "library": list(watch.library)})


def _trouble(error: BaseException, folder: str) -> dict[str, Any]:
    words, lines = trouble_of(error), []
    with contextlib.suppress(Exception):  # as where the traceback fills the memory
        lines = lines_of(error, folder)
    error.__traceback__ = error.__context__ = None
    return {"words": words, "lines": lines}


def trouble_of(error: BaseException) -> str:
    """Return what stopped the code, in a few words."""
    if isinstance(error, KeyboardInterrupt):
        return "raises KeyboardInterrupt: take that out"
    if isinstance(error, StopError):
        return str(error)
    if isinstance(error, SystemExit):
        return "calls sys.exit: take that out, or put it under `if __name__ == '__main__':`"
    if isinstance(error, MemoryError) or "memory" in str(error).lower():
        return f"asks for more than {MEMORY >> 30} GB of memory"
    if isinstance(error, EOFError):
        return "reads standard input, as input() does: give the values in the code"
    if isinstance(error, SyntaxError):
        return f"cannot be read: {error.msg} (line {error.lineno})"
    if isinstance(error, ModuleNotFoundError):
        return f"cannot be loaded: {error}: install it, or take the import out"
    return f"cannot be run: {one_line(error)}"


def lines_of(error: BaseException, folder: str) -> list[str]:
    """Return the learner's own lines of a traceback."""
    return [] if isinstance(error, SyntaxError) else own_lines(error, Path(folder))


def teller(descriptor: int) -> Tell:
    """Return what writes events into an open file, each at once."""

    def tell(event: dict[str, Any]) -> None:
        left = (_encode(event) + "\n").encode()
        while left:
            left = left[_write(descriptor, left) :]

    return tell


def run_in_fork(job: Mapping[str, Any], names: Mapping[str, Any], stdout: int) -> NoReturn:
    """Do the work in a process that was just forked, and end it."""
    try:
        os.setsid()
        devnull = os.open(os.devnull, os.O_RDONLY)
        for descriptor, standard in ((devnull, 0), (stdout, 1), (stdout, 2)):
            os.dup2(descriptor, standard)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = sys.stdout
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # a fork has none of the threads that there were
        _prepare(job)
        work(job, lambda: names, teller(job["answers"]))
    finally:
        _end()


def _prepare(job: Mapping[str, Any]) -> None:
    faulthandler.enable(job["crashed"])
    confine(job["memory"])


def main() -> NoReturn:
    """Do the work that the JSON on the command line describes."""
    try:
        job = json.loads(sys.argv[1])
        _prepare(job)
        work(job, lambda: load_file(Path(job["file"])), teller(job["answers"]))
    finally:
        _end()


def _end() -> NoReturn:
    """End this process, whatever threads the code left and whatever it did to its output."""
    broken = sys.exc_info()[0] is not None
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    _exit(BROKEN if broken else 0)
