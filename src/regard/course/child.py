"""The process that runs a learner's code: a fresh Python for a file, or a fork for an object in memory.

It writes what happens, one line of JSON after the other, into a file: its standard output is the learner's.
"""

import faulthandler
import importlib.util
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from regard.course.answering import answers_of, one_line, own_lines
from regard.course.exercises import EXERCISES, Exercise, find_exercise
from regard.own import own_imports

MEMORY = 3 << 30
"""Bytes that the code may ask for, beyond what is there at its start."""
LOADING = 20.0
"""Seconds that may be added for loading a file, PyTorch included."""
STARTING = {"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec", "subprocess.Popen"}
"""What Python calls the ways to start a process."""
SEED = 0
PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
Tell = Callable[[dict[str, Any]], None]


class StopError(BaseException):
    """The code is to go no further; no `except Exception` of its own holds that up."""


def within(seconds: float) -> str:
    """Return a time in words."""
    return "1 second" if seconds == 1 else f"{seconds:g} seconds"


def limit(seconds: float) -> None:
    """Give the code so many seconds of the processor from now on, and four times as many of the clock."""

    def end(number: int, frame: Any) -> NoReturn:
        raise StopError(f"did not end within {within(seconds)}: is there an endless loop?")

    signal.signal(signal.SIGPROF, end)
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 4 * seconds)


def confine(memory: int) -> None:
    """Limit memory, and refuse new processes."""
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

    sys.addaudithook(refuse)


def load_file(path: Path) -> dict[str, Any]:
    """Run a learner's file as a module, and return its names."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    with own_imports(path.parent, path.stem):
        spec.loader.exec_module(module)
    return vars(module)


def meant(names: Mapping[str, Any], exercise: Exercise | None) -> dict[str, str]:
    """Return which name of the learner's answers which exercise: that one alone where one is asked for."""
    own = {name: each for name, each in names.items() if callable(each) and not name.startswith("_")}
    found: dict[str, str] = {}
    for each in EXERCISES if exercise is None else (exercise,):
        called = [name for name in own if each.answers_to(name)]
        fitting = [name for name in called if name == each.name or fits(own[name], each)]
        for name in sorted(fitting, key=lambda name: name != each.name)[:1]:
            found[each.name] = name
    if exercise is not None and not found:
        home = [name for name, each in own.items() if getattr(each, "__module__", None) == names.get("__name__")]
        called = [name for name in home if exercise.answers_to(name)] or home
        if len(called) == 1:
            found[exercise.name] = called[0]
    return found


def fits(thing: Any, exercise: Exercise) -> bool:
    """Whether a function takes what an exercise gives, or a class is built of what it has."""
    try:
        own = [each for each in inspect.signature(thing).parameters.values() if each.kind in PLACES]
    except (TypeError, ValueError):
        return True
    needed = sum(each.default is each.empty for each in own)
    if isinstance(thing, type):
        return needed <= len(exercise.builds)
    wanted = inspect.signature(exercise.reference).parameters.values()
    return needed <= len(wanted) and sum(each.default is each.empty for each in wanted) <= len(own)


def work(job: Mapping[str, Any], load: Callable[[], Mapping[str, Any]], tell: Tell) -> None:
    """Load the learner's code and ask it everything, telling what happens."""
    home = os.getpid()

    def told(event: dict[str, Any]) -> None:
        if os.getpid() == home:  # a fork that came through all the same has nothing to tell
            tell(event)

    try:
        limit(job["seconds"] + LOADING)
        names = load()
    except BaseException as error:
        told({"event": "trouble", "words": trouble_of(error), "lines": lines_of(error, job["folder"])})
        return
    exercise = find_exercise(job["exercise"]) if job["exercise"] else None
    found = meant(names, exercise)
    own = [name for name, each in names.items() if callable(each) and not name.startswith("_")]
    told({"event": "found", "exercises": found, "names": own[:20]})
    for name, called in found.items():
        if name in job["done"]:
            continue
        told({"event": "begin", "exercise": name})
        try:
            limit(job["seconds"])
            _ask(find_exercise(name), names[called], told)
        except BaseException as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            words, lines = trouble_of(error), lines_of(error, job["folder"])
            told({"event": "trouble", "exercise": name, "words": words, "lines": lines})
        told({"event": "end", "exercise": name})
    told({"event": "done"})


def _ask(exercise: Exercise, thing: Any, told: Tell) -> None:
    cases = exercise.cases(SEED)
    right = exercise.expected(cases[0])
    answers_of(exercise, thing, cases, right, lambda answer: told({"event": "answer", "answer": answer}))


def trouble_of(error: BaseException) -> str:
    """Return what stopped the code, in a few words."""
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


def teller(path: Path) -> Tell:
    """Return what writes events into a file, each at once."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(event: dict[str, Any]) -> None:
        os.write(descriptor, (json.dumps(event) + "\n").encode())

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
        tell = teller(Path(job["answers"]))
        _prepare(job)
        work(job, lambda: names, tell)
        sys.stdout.flush()
    finally:
        os._exit(0)


def _prepare(job: Mapping[str, Any]) -> None:
    faulthandler.enable(os.open(job["crashed"], os.O_WRONLY | os.O_CREAT, 0o600))
    confine(job["memory"])


def main() -> NoReturn:
    """Do the work that the file describes that is named on the command line."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    tell = teller(Path(job["answers"]))
    _prepare(job)
    work(job, lambda: load_file(Path(job["file"])), tell)
    sys.stdout.flush()
    os._exit(0)  # whatever threads it left
