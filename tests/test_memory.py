"""Memory that stays with the process."""

import ctypes
import subprocess
import sys

import pytest

from regard.memory import keep_memory

FAULTS = """
import ctypes
import resource
import torch
from regard.memory import MALLOPT_MMAP_THRESHOLD, keep_memory

ctypes.CDLL(None).mallopt(MALLOPT_MMAP_THRESHOLD, 1 << 17)  # by itself, glibc keeps memory at times
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
def test_steps_take_their_pages_once() -> None:
    def faults(call: str) -> int:
        command = [sys.executable, "-c", FAULTS.format(call=call)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert faults("keep_memory()") < 1000 < faults("") / 10


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("no library is to be asked"))
    keep_memory()
