"""Names of what is still being written: they say which process writes, so that what a dead one left is known.

    .NAME~HOST-PID-LIFE-COUNT.new    to become NAME
    .NAME~HOST-PID-LIFE-COUNT.old    was NAME, until the new one is in its place

HOST is a digest of the machine's name: of another machine nobody here can tell whether its processes live, so
what it left stays until a process there comes by. LIFE tells a process from one that had its number before.
"""

import hashlib
import itertools
import os
import re
import secrets
import shutil
import socket
from pathlib import Path

LONGEST = 150
"""Bytes of NAME that are kept: file systems take names of 255."""
_FORM = re.compile(
    r"\.(?P<name>.*)~(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-(?P<life>[0-9a-f]{6})-\d+\.(?P<state>new|old)", re.DOTALL
)
_count = itertools.count()
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_LIFE = secrets.token_hex(3)


def temporary_path(path: Path, state: str = "new") -> Path:
    """Return a name of this process's own beside `path`, for what is to stand there (new) or stood there
    (old)."""
    name = os.fsdecode(os.fsencode(path.name)[:LONGEST])
    return path.with_name(f".{name}~{_HOST}-{os.getpid()}-{_LIFE}-{next(_count)}.{state}")


def tidy(folder: Path) -> None:
    """Remove what dead processes left in `folder` half written, and put back what they had moved away."""
    for found, stood_at in left_behind(folder):
        if stood_at is not None and not stood_at.exists():
            try:
                found.rename(stood_at)
            except OSError:
                continue  # it is not lost: the next process tries again
        else:
            remove_quietly(found)


def remove_quietly(path: Path) -> None:
    """Remove a file or a folder that nobody needs; what the disk does not let go stays, to be removed later."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    except OSError:
        pass


def left_behind(folder: Path) -> list[tuple[Path, Path | None]]:
    """Return what dead processes of this machine left in `folder`, each with the path that it stood at.

    None for what was not in place yet, or no longer says where it stood. An unreadable folder has nothing.
    """
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(".")]
    except (OSError, ValueError):  # one that no folder can have
        return []
    found: list[tuple[Path, Path | None]] = []
    for name in names:
        parts = _FORM.fullmatch(name)
        if parts and parts["host"] == _HOST and not _is_alive(int(parts["pid"]), parts["life"]):
            whole = parts["state"] == "old" and len(os.fsencode(parts["name"])) < LONGEST
            found.append((folder / name, folder / parts["name"] if whole else None))
    return found


def _is_alive(pid: int, life: str) -> bool:
    if pid == os.getpid():
        return life == _LIFE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True  # somebody else's process, or a number that no process can have
    return True
