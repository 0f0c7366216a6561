"""Run a function in a forked process, which inherits all imported modules, and report its outcome.

The child is isolated: it has a separate session, separate standard streams (as descriptors, so that output of C
libraries is captured), and limits of memory and file sizes. The child ends in the same way as the interpreter:
uncaught exceptions print a traceback, and standard output is flushed last.
"""

import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MEMORY, FILE_SIZE = 2 << 30, 64 << 20
"""Limits of a child: bytes of memory in addition to the memory at the fork, and bytes per file."""
PATIENCE, GRACE = 4.0, 60.0
"""Seconds until a child receives a signal to stop, and until the child is considered hung. A running
compilation ends first, which takes three seconds, and many times that on a busy machine.
"""
NAP = 0.002
OPEN = b"(Ctrl-C ends it)"
"""Text that a server prints when it is ready."""
NULL = Path(os.devnull)


@dataclass(frozen=True)
class Streams:
    """Standard streams of a child."""

    stdin: Path = NULL
    stdout: Path | None = None
    """None: captured."""
    encoding: str = "utf-8"
    closed: tuple[int, ...] = ()
    """Closed descriptors of the standard streams."""


@dataclass
class Child:
    """A started process, and the files of its output."""

    pid: int
    out: int
    err: int
    told: int
    begun: float = field(default_factory=time.monotonic)

    def running(self) -> bool:
        """Return whether the process is running; a process that has ended can still be waited for."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def serves(self) -> bool:
        """Return whether a server is ready and waits for requests, of which none will arrive."""
        return any(OPEN in _so_far(each) for each in (self.out, self.err))


@dataclass(frozen=True)
class Ended:
    """Outcome of a child."""

    status: int
    """Exit status as in a shell: 128 plus the signal's number for a killed process."""
    out: str
    err: str
    told: tuple[str, ...]
    """Reports of `watch`."""
    stopped: bool
    """The child received a signal to stop after the time limit."""
    hung: bool
    left_alive: bool
    """A child process is still running."""
    seconds: float


def begin(work: Callable[[int], int], folder: Path, streams: Streams = Streams()) -> Child:
    """Start `work` in a child with the working directory `folder`; `work` receives a descriptor for its reports."""
    out, err, told = (os.memfd_create(name) for name in ("out", "err", "told"))
    gc.freeze()
    pid = os.fork()
    if not pid:
        try:
            _enter(folder, streams, out, err)
            status = _as_a_process(lambda: work(told))
        except BaseException:
            os.write(told, f"the campaign itself fails: {traceback.format_exc()}\n".encode())
            status = 99
        os._exit(status)
    return Child(pid, out, err, told)


def finish(child: Child, patience: float = PATIENCE) -> Ended:
    """Wait for the end of a child, stop the child after `patience` seconds, and return the outcome."""
    stopped = not _wait(child, patience, Child.serves)
    hung = False
    if stopped:
        os.kill(child.pid, signal.SIGTERM)
        hung = not _wait(child, GRACE)
        if hung:
            os.killpg(child.pid, signal.SIGKILL)
    _, status = os.waitpid(child.pid, 0)
    seconds = time.monotonic() - child.begun
    code = os.waitstatus_to_exitcode(status)
    texts = [_content(each) for each in (child.out, child.err, child.told)]
    return Ended(
        status=code if code >= 0 else 128 - code,
        out=texts[0],
        err=texts[1],
        told=tuple(texts[2].splitlines()),
        stopped=stopped,
        hung=hung,
        left_alive=_outlived(child.pid),
        seconds=seconds,
    )


def run(work: Callable[[int], int], folder: Path, streams: Streams = Streams(), patience: float = PATIENCE) -> Ended:
    """Run `work` in a child, and wait for its end."""
    return finish(begin(work, folder, streams), patience)


def _wait(child: Child, seconds: float, enough: Callable[[Child], bool] = lambda child: False) -> bool:
    """Return whether a child ends within `seconds` and before `enough` returns True."""
    end = time.monotonic() + seconds
    while child.running():
        if time.monotonic() > end or enough(child):
            return False
        time.sleep(NAP)
    return True


def _outlived(group: int) -> bool:
    """Return whether a process of the group is still running, and end any such process."""
    for _ in range(3000):  # a child process finishes its step first, which takes long on a busy machine
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        time.sleep(NAP * 4)
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    return True


def _so_far(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _content(descriptor: int) -> str:
    text = _so_far(descriptor).decode(errors="backslashreplace")
    os.close(descriptor)
    return text


def _enter(folder: Path, streams: Streams, out: int, err: int) -> None:
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no child outlives the campaign
    os.chdir(folder)
    source = os.open(streams.stdin, os.O_RDONLY)
    target = out if streams.stdout is None else os.open(streams.stdout, os.O_WRONLY)
    for descriptor, standard in ((source, 0), (target, 1), (err, 2)):
        os.dup2(descriptor, standard)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=streams.encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    for number in streams.closed:
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
    _limit(resource.RLIMIT_DATA, _data() + MEMORY)
    _limit(resource.RLIMIT_FSIZE, FILE_SIZE)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _data() -> int:
    """Return the bytes of this process's data segment."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))


def _as_a_process(work: Callable[[], int]) -> int:
    try:
        status = work()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        traceback.print_exc()
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    try:
        sys.stdout.flush()
    except Exception as error:
        sys.stderr.write(f"Exception ignored in standard output: {error!r}\n")
        status = 120
    return status


@contextlib.contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Drop the rights of root in this process: become a user who owns only `folder`."""
    nobody = 65534
    if os.geteuid() == 0:
        for inside, folders, names in os.walk(folder):
            for name in (".", *folders, *names):
                os.chown(Path(inside, name), nobody, nobody, follow_symlinks=False)
        os.setgroups([])
        os.setgid(nobody)
        os.setuid(nobody)
    yield
