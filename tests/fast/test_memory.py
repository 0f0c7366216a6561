"""Settings that keep memory in the process."""

import ctypes
import os
import subprocess
import sys

import pytest
import torch

from regard.fast.memory import CACHES, keep_memory

FAULTS = """
import ctypes
import resource
import torch
from regard.fast.memory import MALLOPT_MMAP_THRESHOLD, keep_memory

ctypes.CDLL(None).mallopt(MALLOPT_MMAP_THRESHOLD, 1 << 17)  # glibc alone keeps memory only at times
{call}

def step():
    held = [torch.ones(1 << 20) for _ in range(16)]  # 4 MiB each

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_steps_fault_their_pages_once() -> None:
    def faults(call: str) -> int:
        command = [sys.executable, "-c", FAULTS.format(call=call)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert faults("keep_memory()") < 1000 < faults("") / 10


SHAPES = """
import resource
import torch
from regard.fast.memory import keep_memory

{call}
torch.set_num_threads(1)
states, weight = torch.ones(2000, 128, dtype=torch.bfloat16), torch.ones(128, 128, dtype=torch.bfloat16)
peaks = []
for rows in range(1000, 1800):
    states[:rows] @ weight
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
print(peaks[-1] - peaks[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.cpu.get_capabilities().get("avx512_bf16"), reason="oneDNN has no kernels for it")
def test_kernels_of_earlier_shapes_are_dropped() -> None:
    """With `keep_memory`, memory grows less than half as much over 800 shapes."""
    clean = {name: value for name, value in os.environ.items() if name not in CACHES}

    def growth(call: str) -> int:
        command = [sys.executable, "-c", SHAPES.format(call=call)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, env=clean).stdout)

    assert growth("keep_memory()") < growth("") / 2


def test_number_of_kernels_set_by_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHES[0], "7")
    monkeypatch.delenv(CACHES[1], raising=False)
    keep_memory()
    assert [os.environ[name] for name in CACHES] == ["7", "128"]


def test_other_systems_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("no library is to be asked"))
    keep_memory()
