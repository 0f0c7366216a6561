"""If a comparison is stopped, its processes end cleanly and its runs can be resumed."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

import regard
from regard.io import hold_lock
from regard.sweep.backends import run_in_processes
from tests.processes import CONTEXT


def started_runs(folder: Path) -> list[Path]:
    """Return the runs that have written metrics."""
    return [metrics.parent for metrics in folder.rglob("metrics.jsonl")]


@pytest.mark.parametrize(
    ("sent", "to_all", "status"),
    [
        (signal.SIGINT, True, 130),  # Ctrl-C
        pytest.param(signal.SIGINT, False, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, True, -signal.SIGTERM, marks=pytest.mark.slow),
        (signal.SIGKILL, False, -signal.SIGKILL),
    ],
)
def test_stopping_a_comparison_ends_its_processes(
    tmp_path: Path, sent: signal.Signals, to_all: bool, status: int
) -> None:
    cores = len(os.sched_getaffinity(0))
    flags = f"--vary lr=0.01,0.02 --seeds {cores} --steps 10000000".split()
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "compare", "counting", *flags, "--savepath", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while len(started_runs(tmp_path)) < cores and time.monotonic() < deadline:
            time.sleep(0.1)
        (os.killpg if to_all else os.kill)(process.pid, sent)
        # `communicate` returns when the last process has closed its output.
        out, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == status
    assert "Traceback" not in out
    if sent == signal.SIGINT:
        assert out.splitlines()[-1] == "regard: stopped; repeat the command to continue"
    # No further job started, and each run was saved at its current step.
    assert len(started_runs(tmp_path)) == cores
    for run in started_runs(tmp_path):
        loaded = regard.load(run)
        assert 0 <= loaded.step - loaded.metrics[-1]["step"] < 10


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the workers from a server that has imported Regard, because a new process takes seconds to start."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: CONTEXT)


def square_or_die(number: int) -> int:
    """Return the square of a number. 3 kills the process, and 100 raises an error."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 100:
        raise regard.InputError("100 is out of range")
    return number**2


def test_a_signal_right_after_a_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives before the parent process has registered the worker process."""
    start = SpawnProcess.start

    def begin(process: SpawnProcess) -> None:
        start(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(SpawnProcess, "start", begin)
    with pytest.raises(KeyboardInterrupt):
        list(run_in_processes(square_or_die, [1, 2]))
    assert not multiprocessing.active_children()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def hold(folder: Path) -> None:
    """Acquire a lock, and fail in folder 0 while the other job is still running."""
    with hold_lock(folder / "run"):
        (folder / "held").touch()
        deadline = time.monotonic() + 60
        while not all((other / "held").exists() for other in folder.parent.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if folder.name == "0":
            raise regard.InputError("one fails")
        time.sleep(60)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two jobs at once need two cores")
def test_a_stopped_worker_leaves_no_lock(forked: None, tmp_path: Path) -> None:
    for name in ("0", "1"):
        (tmp_path / name).mkdir()
    with pytest.raises(regard.InputError, match="one fails"):
        list(run_in_processes(hold, [tmp_path / "0", tmp_path / "1"]))
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["held", "held"]


def test_a_killed_process_loses_only_its_job(forked: None) -> None:
    results: dict[int, int] = {}
    with pytest.raises(regard.MachineError, match="1 of 6 processes were terminated .* to train the missing"):
        for number, result in run_in_processes(square_or_die, range(6)):
            results[number] = result
    assert results == {0: 0, 1: 1, 2: 4, 4: 16, 5: 25}


def test_errors_of_jobs_are_raised(forked: None) -> None:
    with pytest.raises(regard.InputError, match="100 is out of range"):
        list(run_in_processes(square_or_die, [1, 100]))
