"""Comparisons that are stopped: their processes end, and what they have goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard


def runs(folder: Path) -> list[Path]:
    """The runs that have begun to write metrics."""
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
def test_a_comparison_ends_with_its_processes(
    tmp_path: Path, sent: signal.Signals, to_all: bool, status: int
) -> None:
    cores = len(os.sched_getaffinity(0))
    asked = f"--vary lr=0.01,0.02 --seeds {cores} --steps 10000000".split()
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "compare", "counting", *asked, "--savepath", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while len(runs(tmp_path)) < cores and time.monotonic() < deadline:
            time.sleep(0.1)
        (os.killpg if to_all else os.kill)(process.pid, sent)
        # Which lasts until the last of its processes has closed its output.
        out, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == status
    assert "Traceback" not in out
    if sent == signal.SIGINT:
        assert out.splitlines()[-1] == "regard: stopped; the same command goes on where it stopped"
    # Nothing else was begun, and each was saved at the step where it was.
    assert len(runs(tmp_path)) == cores
    for run in runs(tmp_path):
        found = regard.load(run)
        assert 0 <= found.step - found.metrics[-1]["step"] < 10
