"""Who may change a folder: one process at a time.

    .NAME.lock    beside the folder NAME: held while a process changes it, and says which one that is

The lock is the operating system's (`flock`, which Linux carries over NFS too), so it goes with the process that
held it, whatever that died of. Where a file system knows no locks, none is held.
"""

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

try:
    import fcntl
except ImportError:  # as on Windows
    fcntl = None  # type: ignore[assignment]

from regard.errors import InputError
from regard.files.temporary import LONGEST
from regard.files.writing import cannot_write, check_name

NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Keep all other processes from changing the folder at `path`, which need not be there yet, in the block.

    Raises `InputError` where another one is changing it, naming its number and machine, or where nothing can be
    written there.
    """
    if fcntl is None:
        yield
        return
    check_name(path)
    place = Path(os.path.realpath(path))
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
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise InputError(
                f"{str(path)!r} is being written by {holder}: wait until it has ended, or choose another folder"
            ) from None
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
