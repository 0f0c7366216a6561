"""Processes that work beside this one."""

import os
import signal
from collections.abc import Iterator

import pytest

from regard.data.worker_pool import map_in_processes
from regard.errors import InputError, MachineError
from tests.data.working import Squares


def test_what_is_made_of_jobs_comes_in_their_order() -> None:
    found = list(map_in_processes(Squares(), iter(range(9)), processes=3))
    assert [square for square, _ in found] == [number * number for number in range(9)]
    assert os.getpid() not in {process for _, process in found} and len({process for _, process in found}) <= 3


@pytest.mark.parametrize(("jobs", "processes"), [(3, 2), (9, 1)])
def test_few_jobs_are_done_here(jobs: int, processes: int) -> None:
    assert list(map_in_processes(Squares(), range(jobs), processes=processes)) == [
        (n * n, os.getpid()) for n in range(jobs)
    ]


def test_jobs_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def jobs() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    found = map_in_processes(Squares(), jobs(), processes=2)
    next(found)
    assert len(taken) <= 5
    found.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_first_job_that_fails_is_told(processes: int) -> None:
    found = map_in_processes(Squares(slow=4, refused=(4, 5)), range(9), processes=processes)
    assert [next(found)[0] for _ in range(4)] == [0, 1, 4, 9]
    with pytest.raises(InputError, match="4 is refused"):
        next(found)


def test_a_process_that_dies_is_told_in_a_line() -> None:
    found = map_in_processes(Squares(), range(9), processes=2)
    _, process = next(found)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(MachineError, match="died .status -9.*: run the same command again to prepare the rest"):
        list(found)


def test_processes_end_with_the_one_that_started_them() -> None:
    found = map_in_processes(Squares(), range(9), processes=2)
    _, process = next(found)
    found.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
