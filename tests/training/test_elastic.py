"""Machines come and go while a training goes on."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.german import write
from tests.training.test_world import FLAGS, losses, train

STEPS = 80
SLOWLY = "tests.training.slowly"


@contextmanager
def machine(folder: Path, text: dict[str, Any], port: int, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start what one types on each machine."""
    words = ["train", "translation", "--train", *text["train"], "--valid", *text["valid"]]
    words += [word for name, value in {**FLAGS, "steps": STEPS}.items() for word in (f"--{name}", str(value))]
    words += [*flags, "--savepath", str(folder)]
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "elastic"]
    rendezvous += ["--rdzv-conf", "last_call_timeout=8,keep_alive_interval=2,keep_alive_max_attempt=5"]
    torchrun = ["-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1", *rendezvous]
    slowly = ["--max-restarts", "3", "-m", SLOWLY, "0.15", str(folder / "notes")]
    with (folder / "said").open("a") as said:
        process = subprocess.Popen(
            [sys.executable, *torchrun, *slowly, *words],
            env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        lose(process)
        process.wait()


def lose(process: subprocess.Popen[bytes]) -> None:
    """End a machine at once, with all that runs on it."""
    if process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for each in (process.pid, *map(int, children)):
            os.kill(each, signal.SIGKILL)


def steps(folder: Path) -> list[tuple[int, int]]:
    """Return the steps that have been taken, each with how many processes took it."""
    notes = folder / "notes"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to know of children")
@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_a_training_goes_on_from_two_machines_to_one_to_two(tmp_path: Path, sharded: bool) -> None:
    alone, elastic = tmp_path / "alone", tmp_path / "elastic"
    for folder in (alone, elastic):
        folder.mkdir()
    assert train(alone, 0, steps=STEPS).returncode == 0
    text = write(elastic)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = ["--sharded"] if sharded else []
    with machine(elastic, text, port, *flags) as stays:
        time.sleep(1)  # who comes first keeps the rendezvous
        with machine(elastic, text, port, *flags) as goes:
            wait_until(lambda: len(steps(elastic)) > 8, "two processes take no step")
            lose(goes)
        taken = len(steps(elastic))
        wait_until(lambda: len(steps(elastic)) > taken + 8, "one process does not go on")
        with machine(elastic, text, port, *flags) as comes:
            said = elastic / "said"
            assert comes.wait(timeout=120) == 0 and stays.wait(timeout=60) == 0, said.read_text()
    sizes = [size for _, size in steps(elastic)]
    assert [size for size, before in zip(sizes, [0, *sizes], strict=False) if size != before] == [2, 1, 2]
    found, expected = losses(elastic), losses(alone)
    assert [step for step, _ in found] == [step for step, _ in expected]
    for (_, one), (_, other) in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-4)
