"""Locks that let only one process at a time change a folder. Readers need no lock, because writes are atomic.

    .NAME.lock beside the folder NAME: locked while a process changes the folder, contains the name of this
    process

The operating system manages the lock (through filelock), so the lock ends with its process. On file systems
without locks, no lock is acquired.
"""

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from regard.errors import InputError
from regard.io.writing import MAX_NAME, cannot_write, check_name, resolve_parent

PAUSE = 0.2  # Seconds between two attempts to acquire a lock
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Error codes of file systems without locks."""


class BusyError(InputError):
    """Raised if another process is changing a path."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(
            f"{str(path)!r} is being written by {holder}: wait until that process ends, or choose another folder"
        )
        self.path, self.holder = path, holder


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Prevent all other processes from changing the folder at `path`, which may be missing.

    Raises `InputError` if another process is changing the folder, with the number and the machine of this
    process. Also raises `InputError` if the lock file cannot be written.

    >>> with hold_lock(Path("models/counting")):
    ...     pass
    """
    from filelock import FileLock, Timeout  # importing filelock takes 0.1 s

    check_name(path)
    file = _lock_file(resolve_parent(path))
    lock, created = FileLock(file, blocking=False), list[Path]()
    try:
        created = [folder for folder in file.parents if not folder.exists()]
        file.parent.mkdir(parents=True, exist_ok=True)
        # The lock writes the name of its holder, which must not end up in another file.
        with suppress(FileNotFoundError):  # its holder may remove it at any time
            status = file.lstat()
            is_link = stat.S_ISLNK(status.st_mode) or status.st_nlink > 1
            if is_link or not stat.S_ISREG(status.st_mode):
                kind = "a link, and Regard does not follow links here" if is_link else "no regular file"
                raise InputError(f"lock file {str(file)!r} is {kind}: remove it")
        lock.acquire()
        since = f"{datetime.now():%Y-%m-%d %H:%M}"
        holder = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        file.write_text(json.dumps(holder))
    except Timeout:
        raise BusyError(path, _read_holder(file)) from None
    except OSError as error:
        lock.release()
        if error.errno not in NO_LOCKS:
            raise cannot_write(path, error) from error
    try:
        yield
    finally:
        # Remove the lock file while it is locked, because later the file may be the lock of another process.
        if lock.is_locked:
            file.unlink(missing_ok=True)
        lock.release()
        with suppress(OSError):  # a folder that is not empty is not removed
            for folder in created:
                folder.rmdir()


def _lock_file(path: Path) -> Path:
    name = os.fsdecode(os.fsencode(path.name)[:MAX_NAME])
    return path.parent / f".{name}.lock"


def build_once(
    path: Path, is_complete: Callable[[], bool], build: Callable[[], object], *, on_wait: Callable[[str], None]
) -> None:
    """Build the file or folder at `path`, unless it is complete. Waits for another process that builds it.
    `on_wait` is called once with a message if the process waits. The lock file of a killed process is removed.
    Raises `InputError` if the lock file cannot be written."""
    if is_complete():
        if os.path.lexists(_lock_file(path)):
            with suppress(InputError), hold_lock(path):
                pass
        return
    reported = False
    while True:
        try:
            with hold_lock(path):
                if not is_complete():  # another process may have built it during the wait
                    build()
                return
        except BusyError as busy:
            if busy.path != path:
                raise
            if not reported:
                on_wait(f"waiting: {str(path)!r} is being written by {busy.holder}")
            reported = True
            time.sleep(PAUSE)


def _read_holder(file: Path) -> str:
    try:
        holder = json.loads(file.read_text())
        return f"process {holder['process']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
