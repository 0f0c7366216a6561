"""Detect forbidden acts of a child: writing outside named paths, unpickling, and connecting to other machines.

Acts are detected with Python's audit events, and with replacements of `pickle` and `torch.load`. Three callers
are allowed: the import system reads compiled modules with `marshal`, `multiprocessing` pickles messages between
Regard's processes through private pipes, and Babel reads the locales of its package. Reads and writes by C
libraries are not detected, nor are functions of `pickle` that were bound earlier (their classes are detected).
"""

import errno
import os
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

HALF_WRITTEN = re.compile(r"/\.([^/]*)(?:~[0-9a-f]{8}-\d+-[0-9a-f]{6}-\d+\.(?:new|old)|\.lock)$")
"""Name of a temporary file, which contains its final name."""
OWN = ("importlib._bootstrap", "/multiprocessing/", "zipimport", "/site-packages/babel/")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
HARMLESS = ("/dev/null", "/dev/tty", "/proc/self/", "/dev/fd/")
LOCAL = ("127.", "::1", "localhost", "0.0.0.0", "::")


def watch(told: int, root: Path, argv: Sequence[str]) -> None:
    """Report later forbidden acts of this process to the descriptor `told`.

    The process may write below `root`, and try to write to the paths in `argv`.
    """
    named = [os.path.abspath(each) for word in argv for each in (word, word.partition("=")[2]) if "/" in each]  # noqa: PTH100

    def report(what: str) -> None:
        os.write(told, f"{what!s}\n".encode(errors="backslashreplace"))

    def check_path(event: str, path: object) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            found = HALF_WRITTEN.sub(r"/\1", os.path.abspath(os.fsdecode(path)))  # noqa: PTH100
            near = any(found.startswith(each.rstrip("/")) or each.startswith(found) for each in named)
            if not found.startswith((str(root), *HARMLESS)) and not near:
                report(f"writes where nobody said: {event} {found!r}")

    def hear(event: str, values: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = values
            if (isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & WRITES:
                check_path(event, path)
        elif event in CHANGES:
            check_path(event, values[0])
        elif event in ("pickle.find_class", "marshal.loads", "marshal.load"):
            if not called_by_own(sys._getframe(1)):
                report(f"unpickles: {event}")
        elif event == "socket.connect":
            _stay_here(values[1][0] if isinstance(values[1], tuple) else "localhost")
        elif event == "socket.getaddrinfo":
            _stay_here(values[0])

    sys.addaudithook(hear)
    for name in ("load", "loads"):
        setattr(pickle, name, told_of(f"pickle.{name}", getattr(pickle, name), report))
    setattr(pickle, "Unpickler", _telling_class(pickle.Unpickler, report))  # noqa: B010
    torch.load = told_of("torch.load", torch.load, report)


def told_of(name: str, real: Callable[..., Any], report: Callable[[str], None]) -> Any:
    """Return a wrapper of `real` that reports its calls, without messages between Regard's processes."""

    def called(*values: Any, **others: Any) -> Any:
        if not called_by_own(sys._getframe(1)):
            report(f"unpickles: {name}")
        return real(*values, **others)

    return called


def _telling_class(real: type, report: Callable[[str], None]) -> type:
    class Unpickler(real):
        def __init__(self, *values: Any, **others: Any) -> None:
            if not called_by_own(sys._getframe(1)):
                report("unpickles: pickle.Unpickler")
            super().__init__(*values, **others)

    return Unpickler


def called_by_own(frame: FrameType | None) -> bool:
    """Return whether the import system or `multiprocessing` is the caller, directly or through `pickle`."""
    while frame is not None and frame.f_code.co_filename in (__file__, pickle.__file__):
        frame = frame.f_back
    return frame is not None and any(each in frame.f_code.co_filename for each in OWN)


def _stay_here(host: object) -> None:
    said = host.decode(errors="replace") if isinstance(host, bytes) else str(host or "localhost")
    if not said.startswith(LOCAL):
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
