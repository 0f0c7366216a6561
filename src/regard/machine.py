"""The machine: the folder for the user's state, and measured choices between implementations.

Processors differ. A bfloat16 product takes less time than a float32 product with AMX, and twice the time on some
processors with AVX-512 only. `choose` measures once. The stored result makes repeated runs on a machine equal.
"""

import hashlib
import json
import os
import platform
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from regard.errors import RegardError
from regard.io import write_file

ROUNDS = 5  # Number of measurements of each implementation; the shortest time counts
GAIN = 1.25
"""An implementation must be this many times as fast as the default to replace it, so that noise rarely changes
the choice: on an Intel Xeon, oneDNN has a gain of 0.89 over MKL, and bfloat16 of 0.55 over float32."""
MAX_STATE = 1 << 20  # Largest size of a file of the user's state in bytes. Larger files are damaged.
_CHOICES: dict[str, str] = {}  # The choices of this process by name


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread of PyTorch in the block, and restore the number of threads afterwards."""
    import torch  # takes a second; a stored choice does not need it

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def state_folder() -> Path:
    """Return the folder for user state that does not belong to a run: `regard` in $XDG_STATE_HOME or ~/.local/state.
    The path follows the XDG Base Directory Specification.

    The folder may be missing. A user without a home (a container, a number without an entry in the password file) gets
    a folder for temporary files, with one line on standard error.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    try:
        return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "regard"
    except RuntimeError:
        return _temporary_state()


@cache
def _temporary_state() -> Path:
    """Return a folder that only this user can write: code that it lists as trusted runs without a question."""
    folder = Path(tempfile.gettempdir(), f"regard-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    except OSError:
        private = False
    if not private:  # the folder is another user's, who could have prepared it
        folder = Path(tempfile.mkdtemp(prefix="regard-"))
    sys.stderr.write(f"regard: this user has no home: measured choices and trusted code are stored in {folder}\n")
    return folder


def read_state(path: Path) -> str:
    """Return the text of a file of the user's state, or "" if it is missing, damaged or not a regular file. A
    link is followed, unlike in `regard.io.open_regular`: users may keep their state elsewhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # do not wait for a pipe's writer
        with os.fdopen(descriptor, "rb") as file:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            content = file.read(MAX_STATE + 1) if regular else b""
        return content.decode() if len(content) <= MAX_STATE else ""
    except (OSError, ValueError):
        return ""


def write_state(path: Path, text: str) -> None:
    """Replace a file of the user's state, or a pipe with its name. If the folder cannot be written, the state
    holds for this process only."""
    try:
        if path.exists() and not path.is_file():
            path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text.encode())
    except (OSError, RegardError):
        pass


def choose(name: str, make: Callable[[], Mapping[str, Callable[[], object]]], *, version: str) -> str:
    """Return the name of the fastest implementation on this machine.

    `make` returns functions without arguments, by name. They compute in the calling thread, whose CPU time
    counts; PyTorch uses one thread. The first is the default, which another replaces only if it is 1.25 times as
    fast. `version`: version of the library that computes. The first call measures, and stores choice and times
    in `choices/NAME-DIGEST.json` of the state folder; the digest is that of processor and version. A damaged file
    is replaced. If the folder cannot be written, each process measures anew.

    >>> choose("doctest", lambda: {"nothing": lambda: None, "sum": lambda: sum(range(10**5))}, version="1")
    'nothing'
    """
    if name not in _CHOICES:
        key, implementations = f"{_processor()}, {version}", make()
        path = state_folder() / "choices" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
        _CHOICES[name] = _stored(path, implementations) or _measured(path, key, implementations)
    return _CHOICES[name]


@contextmanager
def use_choices(choices: Mapping[str, str]) -> Iterator[None]:
    """Use these choices instead of the measured ones in the block."""
    before = dict(_CHOICES)
    _CHOICES.update(choices)
    try:
        yield
    finally:
        _CHOICES.clear()
        _CHOICES.update(before)


def _measured(path: Path, machine: str, implementations: Mapping[str, Callable[[], object]]) -> str:
    """Measure, store and return a choice; or return the choice that another process stored in the meantime."""
    # The shortest processor time of each in seconds, in one thread of PyTorch
    times = dict.fromkeys(implementations, float("inf"))
    with one_thread():
        for implementation in implementations.values():
            implementation()  # the first call compiles kernels
        for _ in range(ROUNDS):  # in turn, so that other load affects all implementations
            for name, implementation in implementations.items():
                begin = time.thread_time()
                implementation()
                times[name] = min(times[name], time.thread_time() - begin)
    default, fastest = next(iter(times)), min(times, key=lambda name: times[name])
    choice = fastest if times[fastest] * GAIN <= times[default] else default
    if (stored := _stored(path, implementations)) is not None:
        return stored
    milliseconds = {name: round(1000 * seconds, 3) for name, seconds in times.items()}
    content = {"choice": choice, "machine": machine, "milliseconds": milliseconds}
    write_state(path, json.dumps(content, indent=1) + "\n")
    return choice


def _stored(path: Path, implementations: Mapping[str, Callable[[], object]]) -> str | None:
    try:
        choice = json.loads(read_state(path))["choice"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return choice if isinstance(choice, str) and choice in implementations else None


@cache
def _processor() -> str:
    """Return the model and the instruction sets of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    fields = {name.strip(): value.strip() for name, value in values.items()}
    return f"{fields.get('model name', platform.machine())} {fields.get('flags', '')}"
