"""Where the processes of one start find each other: in the store that torchrun gives them.

torchrun starts all processes anew where one has failed, and where machines come or go (`--nnodes 1:4`), and the
store may be the one of those before them. So the first process names each meeting, and the others take no name
that it does not answer to: it may be an old one.
"""

import os
import socket
import uuid
from datetime import timedelta

from torch._C._distributed_c10d import Store
from torch.distributed import DistStoreError

NAME = "regard/meeting"
AGAIN = timedelta(seconds=1)
"""After which a name that nobody answers to is read again."""


def meet(store: Store, rank: int, patience: timedelta) -> tuple[str, frozenset[str]]:
    """Return the name of this meeting, the same in all processes and in no other start, and the torchruns that
    all of them come from."""
    me, torchrun = uuid.uuid4().hex, f"{socket.gethostname()} {os.getppid()}"
    if rank > 0:
        return _join(store, rank, me, torchrun)
    store.set(NAME, me)
    seats = [f"{me}/{other}" for other in range(1, int(os.environ["WORLD_SIZE"]))]
    store.wait(seats, patience)
    others = [store.get(seat).decode().splitlines() for seat in seats]
    found = frozenset({torchrun, *(each for _, each in others)})
    for other, _ in others:
        store.set(other, "\n".join(sorted(found)))
    return me, found


def _join(store: Store, rank: int, me: str, torchrun: str) -> tuple[str, frozenset[str]]:
    """Take a seat in the meeting whose name is there, until the first process answers."""
    while True:
        name = store.get(NAME).decode()
        store.set(f"{name}/{rank}", f"{me}\n{torchrun}")
        try:
            store.wait([me], AGAIN)
        except DistStoreError:
            continue
        return name, frozenset(store.get(me).decode().splitlines())
