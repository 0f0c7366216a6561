"""The machine: the folder for the user's state, and measured choices between implementations.

Processors differ. A bfloat16 product takes less time than a float32 product with AMX, and twice the time on some
processors with AVX-512 only. `choose` measures once. The stored result makes repeated runs on a machine equal.
"""

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

ROUNDS = 5
"""Number of measurements of each implementation; the shortest time counts."""
GAIN = 1.25
"""An implementation must be this many times as fast as the default to replace it, so that noise rarely changes
the choice: on an Intel Xeon, oneDNN has a gain of 0.89 over MKL, and bfloat16 of 0.55 over float32."""
_CHOICES: dict[tuple[Path, str], str] = {}


def state_folder() -> Path:
    """Return the folder for user state that does not belong to a run: `regard` in $XDG_STATE_HOME or
    ~/.local/state.
    The path follows the XDG Base Directory Specification.

    The folder may be missing.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "regard"


def choose(name: str, implementations: Mapping[str, Callable[[], object]], *, version: str) -> str:
    """Return the name of the fastest implementation on this machine.

    `implementations`: functions without arguments, by name. They compute in the calling thread, whose CPU time
    counts; PyTorch uses one thread. The first is the default, which another replaces only if it is 1.25 times as
    fast. `version`: version of the library that computes. The first call measures, and stores choice and times
    in `choices/NAME-DIGEST.json` of the state folder; the digest is that of processor and version. If the folder
    cannot be written, each process measures anew.

    >>> choose("doctest", {"nothing": lambda: None, "sum": lambda: sum(range(10**5))}, version="1")
    'nothing'
    """
    key = f"{_processor()}, {version}"
    path = state_folder() / "choices" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    if (path, name) not in _CHOICES:
        choice = _stored(path, implementations) or _measured(path, key, implementations)
        _CHOICES[path, name] = choice
    return _CHOICES[path, name]


def _measured(path: Path, machine: str, implementations: Mapping[str, Callable[[], object]]) -> str:
    """Measure, store and return a choice; or return the choice that another process stored in the meantime."""
    times = _time(implementations)
    default, fastest = next(iter(times)), min(times, key=lambda name: times[name])
    choice = fastest if times[fastest] * GAIN <= times[default] else default
    milliseconds = {name: round(1000 * seconds, 3) for name, seconds in times.items()}
    text = json.dumps({"choice": choice, "machine": machine, "milliseconds": milliseconds}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:  # the first process decides
            file.write(text + "\n")
    except FileExistsError:
        return _stored(path, implementations) or choice
    except OSError:  # a read-only home: the choice holds for this process
        return choice
    return choice


def _time(implementations: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the shortest processor time of each implementation in seconds, in one thread of PyTorch."""
    import torch  # takes a second; a stored choice does not need it

    times, threads = dict.fromkeys(implementations, float("inf")), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for implementation in implementations.values():
            implementation()  # the first call compiles kernels
        for _ in range(ROUNDS):  # in turn, so that other load affects all implementations
            for name, implementation in implementations.items():
                begin = time.thread_time()
                implementation()
                times[name] = min(times[name], time.thread_time() - begin)
    finally:
        torch.set_num_threads(threads)
    return times


def _stored(path: Path, implementations: Mapping[str, Callable[[], object]]) -> str | None:
    try:
        choice = json.loads(path.read_text(encoding="utf-8"))["choice"]
    except (OSError, ValueError, KeyError, TypeError):
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
