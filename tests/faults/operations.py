"""Kill a process, or simulate a disk failure, at its n-th file operation.

Operations are counted by Python's audit events (opening for writing, mkdir, rename and replace, unlink, rmdir,
link, truncate, chmod). Functions without audit events are replaced (`os.fsync`, `os.write`, each write of a file
when it leaves the buffer), and the exchange of two names is counted by the call of the C library. Writes by C
libraries are not counted; the sizes of the written files show that no library used by Regard writes in this way
(see `test_operations`).
"""

import builtins
import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.watch import WRITES

EVENTS = {
    "os.mkdir": "mkdir",
    "os.rename": "rename",
    "os.remove": "unlink",
    "os.rmdir": "rmdir",
    "os.link": "link",
    "os.symlink": "symlink",
    "os.truncate": "truncate",
    "os.chmod": "chmod",
}
GROWING = {"open", "write", "mkdir", "fsync", "link", "symlink"}
"""Operations that fail on a full disk; renaming and removing files still work."""
WAYS = ("die", "half", "full", "io")
"""Exit before the operation; exit after half of a write; no disk space from this operation on; a single device
error.
"""


class Operations:
    """Counts file operations below a folder, and interrupts the n-th operation."""

    def __init__(self, root: Path, way: str, at: int) -> None:
        self.root, self.way, self.at = str(root), way, at
        self.log: list[str] = []

    def comes(self, name: str, path: str) -> None:
        """Count an operation before it runs."""
        self.log.append(f"{name} {path.removeprefix(self.root)}")
        count = len(self.log)
        if count == self.at and self.way in ("die", "half"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "full" and count >= self.at > 0 and name in GROWING:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.way == "io" and count == self.at:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def writes(self, path: str, content: memoryview, write: Callable[[Any], int]) -> int:
        """Count a write operation, and run it."""
        if self.way == "half" and len(self.log) + 1 == self.at:
            write(content[: len(content) // 2])
        self.comes("write", path)
        return write(content)

    def hear(self, event: str, values: tuple[Any, ...]) -> None:
        """Handle an audit event."""
        if event == "open":
            path, mode, flags = values
            if (isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & WRITES:
                self._hear_of("open", path)
        elif event in EVENTS:
            inside = event in ("os.remove", "os.rmdir") and values[-1] not in (
                -1,
                None,
            )  # a name in an open folder
            self._hear_of(EVENTS[event], f"{self.root}/.../{values[0]}" if inside else values[0])
        elif event == "ctypes.dlsym" and values[1] in ("renameat2", "renamex_np"):
            self.comes("exchange", "")

    def _hear_of(self, name: str, path: object) -> None:
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink()
        if isinstance(path, str | bytes | os.PathLike):
            found = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
            if found.startswith(self.root):
                self.comes(name, found)

    def watch(self) -> None:
        """Start counting for the remaining life of this process."""
        sys.addaudithook(self.hear)
        real_fsync, real_write, real_open, operations = os.fsync, os.write, io.open, self

        def fsync(descriptor: int) -> None:
            operations._hear_of("fsync", descriptor)
            real_fsync(descriptor)

        def write(descriptor: int, content: Any) -> int:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            if path.startswith(operations.root):
                return operations.writes(path, memoryview(content), lambda part: real_write(descriptor, part))
            return real_write(descriptor, content)

        class Raw(io.FileIO):
            def write(self, content: Any) -> int:
                where = os.path.abspath(os.fsdecode(self.name))  # noqa: PTH100
                if not where.startswith(operations.root):
                    return super().write(content) or 0
                return operations.writes(
                    where, memoryview(content), lambda part: io.FileIO.write(self, part) or 0
                )

        def opened(file: Any, mode: str = "r", buffering: int = -1, *others: Any, **named: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax") or "+" in mode or buffering == 0:
                return real_open(file, mode, buffering, *others, **named)
            raw = Raw(os.fspath(file), mode.replace("b", "").replace("t", ""), opener=named.pop("opener", None))
            buffered = io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *others, **named)

        os.fsync, os.write = fsync, write  # type: ignore[assignment]
        io.open = builtins.open = opened
