"""How the processes of one start find each other."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from regard.training.meeting import meet

PATIENCE = timedelta(seconds=20)


def test_all_processes_learn_one_name_and_none_of_an_earlier_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    store, names = HashStore(), []
    for first in (0, 2, 1):  # also when others come first, and find the name of those before them
        order = [first, *(rank for rank in range(3) if rank != first)]
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda rank: meet(store, rank, PATIENCE), order))
        assert len(set(found)) == 1 and len(found[0][1]) == 1
        names.append(found[0][0])
    assert len(set(names)) == 3


def test_one_process_meets_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert meet(HashStore(), 0, PATIENCE)[0]
