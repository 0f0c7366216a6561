"""Worker processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.data.worker_pool import map_in_processes
from regard.errors import InputError, MachineError
from tests.data.working import Squares


def test_results_are_in_the_order_of_the_jobs() -> None:
    found = list(map_in_processes(Squares(), iter(range(9)), processes=3))
    assert [square for square, _ in found] == [number * number for number in range(9)]
    assert os.getpid() not in {process for _, process in found} and len({process for _, process in found}) <= 3


@pytest.mark.parametrize(("jobs", "processes"), [(3, 2), (9, 1)])
def test_few_jobs_run_in_this_process(jobs: int, processes: int) -> None:
    assert list(map_in_processes(Squares(), range(jobs), processes=processes)) == [
        (n * n, os.getpid()) for n in range(jobs)
    ]


def test_jobs_are_taken_on_demand() -> None:
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
def test_the_error_of_the_first_failed_job_is_raised(processes: int) -> None:
    found = map_in_processes(Squares(slow=4, refused=(4, 5)), range(9), processes=processes)
    assert [next(found)[0] for _ in range(4)] == [0, 1, 4, 9]
    with pytest.raises(InputError, match="4 is refused"):
        next(found)


def test_a_dead_process_is_reported_in_one_line() -> None:
    found = map_in_processes(Squares(), range(9), processes=2, purpose="squares")
    _, process = next(found)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(MachineError, match="a process that squares died, .*: run the same command again for the rest"):
        list(found)


def test_workers_end_with_the_pool() -> None:
    found = map_in_processes(Squares(), range(9), processes=2)
    _, process = next(found)
    found.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


SCRIPT = """
from regard.data.worker_pool import map_in_processes
from tests.data.working import Squares

print("begin", flush=True)
found = map_in_processes(Squares(slow=5), iter(range(10**6)), processes=2)
print(*{process for _, process in (next(found) for _ in range(9))}, flush=True)
input()
"""


def test_workers_do_not_run_the_script_and_end_with_their_parent(tmp_path: Path) -> None:
    """A script without `if __name__ == "__main__"` works, and its workers end when it is killed."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command, root = [sys.executable, str(tmp_path / "script.py")], Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes, text=True, env=environment) as script:
        assert script.stdout is not None and script.stdout.readline() == "begin\n"
        workers = list(map(int, script.stdout.readline().split()))
        script.kill()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers and not any(Path(f"/proc/{worker}").exists() for worker in workers)
