"""Names of unfinished files. Temporary names identify the writing process, which makes the unfinished files of
a dead process recognizable.

    .NAME~HOST-PID-LIFE-COUNT.new    will become NAME
    .NAME~HOST-PID-LIFE-COUNT.old    was NAME, until the new content is in place

HOST is a digest of the machine's name. A process cannot determine whether a process on another machine is
alive. The files of a dead process are therefore removed only by a process on the same machine. LIFE
distinguishes a process from an earlier process with the same number.
"""

import hashlib
import itertools
import os
import re
import secrets
import shutil
import socket
from contextlib import suppress
from pathlib import Path

MAX_NAME = 150
"""Largest number of bytes of NAME. File systems allow names of 255 bytes."""
_FORM = re.compile(
    r"\.(?P<name>.*)~(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-(?P<life>[0-9a-f]{6})-\d+\.(?P<state>new|old)", re.DOTALL
)
_count = itertools.count()
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_LIFE = secrets.token_hex(3)


def temporary_path(path: Path, state: str = "new") -> Path:
    """Return a unique path beside `path` for its future (new) or former (old) content.

    >>> temporary_path(Path("models/run")).name.startswith(".run~")
    True
    """
    name = os.fsdecode(os.fsencode(path.name)[:MAX_NAME])
    return path.with_name(f".{name}~{_HOST}-{os.getpid()}-{_LIFE}-{next(_count)}.{state}")


def tidy(folder: Path) -> None:
    """Remove the unfinished files of dead processes in `folder`, and restore the old content that they had
    renamed."""
    for leftover, original in find_leftovers(folder):
        if original is not None and not original.exists():
            with suppress(OSError):  # the next process repeats the attempt
                leftover.rename(original)
        else:
            remove_quietly(leftover)


def remove_quietly(path: Path) -> None:
    """Remove a file or a folder, and ignore errors. A later call can remove the remaining files."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def find_leftovers(folder: Path) -> list[tuple[Path, Path | None]]:
    """Return the unfinished files of dead processes of this machine, each with its original path.

    The original path is None for a new file, or if the name was shortened. The result is empty for an
    unreadable folder.
    """
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(".")]
    except (OSError, ValueError):  # ValueError: an impossible name
        return []
    leftovers: list[tuple[Path, Path | None]] = []
    for name in names:
        parts = _FORM.fullmatch(name)
        if parts and parts["host"] == _HOST and not _is_alive(int(parts["pid"]), parts["life"]):
            whole = parts["state"] == "old" and len(os.fsencode(parts["name"])) < MAX_NAME
            leftovers.append((folder / name, folder / parts["name"] if whole else None))
    return leftovers


def _is_alive(pid: int, life: str) -> bool:
    if pid == os.getpid():
        return life == _LIFE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True  # a process of another user, or an impossible number
    return True
