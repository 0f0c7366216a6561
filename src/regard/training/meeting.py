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
    size = int(os.environ["WORLD_SIZE"])
    mine = f"{socket.gethostname()} {os.getppid()}"
    if rank == 0:
        name = uuid.uuid4().hex
        store.set(NAME, name)
        store.wait([f"{name}/{other}" for other in range(1, size)], patience)
        others = [store.get(f"{name}/{other}").decode() for other in range(1, size)]
        found = {mine, *others}
        store.set(f"{name}/all", "\n".join(sorted(found)))
        return name, frozenset(found)
    while True:
        name = store.get(NAME).decode()
        store.set(f"{name}/{rank}", mine)
        try:
            store.wait([f"{name}/all"], AGAIN)
        except DistStoreError:
            continue
        return name, frozenset(store.get(f"{name}/all").decode().splitlines())
