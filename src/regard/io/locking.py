"""Locks that let only one process at a time change a folder.

    .NAME.lock beside the folder NAME: locked while a process changes the folder, contains the name of this
    process

The operating system manages the lock (`flock`, which Linux supports on NFS), so the lock ends with its process.
On file systems without locks, no lock is acquired.

The library filelock is not used: older versions truncate the file when a second process attempts to acquire the
lock, which would delete the name of the holder. The library also accepts hard links and does not remove the
lock file.
"""

import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from regard.errors import InputError
from regard.io.temporary import MAX_NAME
from regard.io.writing import cannot_write, check_name, open_regular, refuse_links, resolve_parent

PAUSE = 0.2
"""Seconds between two attempts to acquire a lock."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Error codes of file systems without locks."""


class BusyError(InputError):
    """Raised if another process is changing a path."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(
            f"{str(path)!r} is being written by {holder}: wait until that process ends, or choose another folder"
        )
        self.holder = holder


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Prevent all other processes from changing the folder at `path`, which may be missing.

    Raises `InputError` if another process is changing the folder, with the number and the machine of this
    process. Also raises `InputError` if the lock file cannot be written.

    >>> with hold_lock(Path("models/counting")):
    ...     pass
    """
    if fcntl is None:
        yield
        return
    check_name(path)
    place = resolve_parent(path)
    file = _lock_file(place)
    created: list[Path] = []
    try:
        created = [folder for folder in file.parents if not folder.exists()]
        if created:
            file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _acquire(file, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield
    finally:
        # Remove the lock file while it is locked, because later the file may be the lock of another process.
        file.unlink(missing_ok=True)
        os.close(descriptor)
        with suppress(OSError):  # a folder that is not empty is not removed
            for folder in created:
                folder.rmdir()


def remove_stale_lock(path: Path) -> None:
    """Remove the lock file of a killed process beside `path`. An active lock is not removed."""
    if os.path.lexists(_lock_file(path)):
        with suppress(InputError), hold_lock(path):
            pass


def _lock_file(path: Path) -> Path:
    name = os.fsdecode(os.fsencode(path.name)[:MAX_NAME])
    return path.parent / f".{name}.lock"


@contextmanager
def wait_for_lock(path: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other process changes `path`, then hold its lock.

    If another process holds the lock, `on_wait` is called once with a message. Raises `InputError` if the lock
    file cannot be written.
    """
    with ExitStack() as stack:
        reported = False
        while True:
            try:
                stack.enter_context(hold_lock(path))
                break
            except BusyError as busy:
                if not reported:
                    on_wait(f"waiting: {str(path)!r} is being written by {busy.holder}")
                reported = True
                time.sleep(PAUSE)
        yield


def _acquire(file: Path, path: Path) -> int:
    """Return the descriptor of the locked lock file. Raises `BusyError` if another process holds the lock."""
    while True:
        descriptor = _open(file)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(descriptor)
            os.close(descriptor)
            raise BusyError(path, holder) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise
        if _is_current(file, descriptor):
            content = {
                "process": os.getpid(),
                "host": socket.gethostname(),
                "since": f"{datetime.now():%Y-%m-%d %H:%M}",
            }
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(content).encode())
            return descriptor
        os.close(descriptor)  # the last holder has removed the opened file: open a new one


def _open(file: Path) -> int:
    """Open a lock file. Raises `InputError` if the file is a symbolic or hard link."""
    refuse_links(file)
    with open_regular(file, "a+b") as opened:
        if os.fstat(opened.fileno()).st_nlink > 1:
            raise InputError(
                f"lock file {str(file)!r} is a link to another file, and no process holds it: remove the link"
            )
        return os.dup(opened.fileno())


def _is_current(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read_holder(descriptor: int) -> str:
    """Return a description of the process that holds the lock."""
    try:
        holder = json.loads(os.pread(descriptor, 1000, 0))
        return f"process {holder['process']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
