"""Who may change a folder: one process at a time.

    .NAME.lock    beside the folder NAME: held while a process changes it, and says which one that is

The lock is the operating system's (`flock`, which Linux carries over NFS too), so it goes with the process that
held it, whatever that died of. Where a file system knows no locks, none is held.
"""

import errno
import json
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

try:
    import fcntl
except ImportError:  # as on Windows
    fcntl = None  # type: ignore[assignment]

from regard.errors import InputError
from regard.io.temporary import LONGEST
from regard.io.writing import cannot_write, check_name, open_regular, refuse_links, resolve_parent

PAUSE = 0.2
"""Seconds between two looks at whether a lock is free."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class BusyError(InputError):
    """Another process is changing what is at a path."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(
            f"{str(path)!r} is being written by {holder}: wait until it has ended, or choose another folder"
        )
        self.holder = holder


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Keep all other processes from changing the folder at `path`, which need not be there yet, in the block.

    Raises `InputError` where another one is changing it, naming its number and machine, or where nothing can be
    written there.
    """
    if fcntl is None:
        yield
        return
    check_name(path)
    place = resolve_parent(path)
    name = os.fsdecode(os.fsencode(place.name)[:LONGEST])
    file = place.parent / f".{name}.lock"
    made = []
    try:
        made = [each for each in file.parents if not each.exists()]
        if made:
            file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _take(file, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(descriptor)
        _remove_empty(made)


@contextmanager
def wait_for_lock(path: Path, wait: Callable[[str], None]) -> Iterator[None]:
    """Keep all other processes from changing what is at `path`, once those that do have ended; `wait` is told
    once what is waited for. Raises `InputError` where nothing can be written there."""
    with ExitStack() as stack:
        told = False
        while True:
            try:
                stack.enter_context(hold_lock(path))
                break
            except BusyError as busy:
                if not told:
                    wait(f"waiting: {str(path)!r} is being written by {busy.holder}")
                told = True
                time.sleep(PAUSE)
        yield


def mark_in_use(path: Path, owner: object) -> None:
    """Let other processes know that a file is in use, for as long as `owner` lives."""
    if fcntl is None:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # a file system that knows no locks, or somebody is about to remove it
        os.close(descriptor)
    else:
        weakref.finalize(owner, os.close, descriptor)


def is_in_use(path: Path) -> bool:
    """Whether a process keeps a file in use; also where nobody can tell."""
    if fcntl is None:
        return True
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders that were made for the lock alone, the innermost first."""
    try:
        for folder in folders:
            folder.rmdir()
    except OSError:
        pass  # something has been written there: it stays


def _take(file: Path, path: Path) -> int:
    """Return the open lock file, locked; raises `InputError` where another process has it."""
    while True:
        descriptor = _open(file)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise BusyError(path, holder) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise
        if _is_there(file, descriptor):
            me = {
                "process": os.getpid(),
                "host": socket.gethostname(),
                "since": f"{datetime.now():%Y-%m-%d %H:%M}",
            }
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(me).encode())
            return descriptor
        os.close(descriptor)  # its last holder has removed it meanwhile: another one is needed


def _open(file: Path) -> int:
    """Open a lock file; raises `InputError` where it is a link, or another name of another file."""
    refuse_links(file)
    with open_regular(file, "a+b") as opened:
        if os.fstat(opened.fileno()).st_nlink > 1:
            raise InputError(f"lock file {str(file)!r} is a link to another file: remove it, no process holds it")
        return os.dup(opened.fileno())


def _is_there(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    """Say who holds the lock, as far as it says."""
    try:
        found = json.loads(os.pread(descriptor, 1000, 0))
        return f"process {found['process']} on {found['host']} since {found['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
