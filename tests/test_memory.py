"""Memory that stays with the process."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from regard.memory import OVERCOMMIT, STRICT, keep_memory

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


HUGE = """
from pathlib import Path
from regard.memory import keep_memory

def advised():
    heaps = Path("/proc/self/smaps").read_text().split("[heap]")[1:]
    return ["hg" in heap.split("VmFlags:")[1].splitlines()[0].split() for heap in heaps]

print(any(advised()))
keep_memory()
keep_memory()
held = bytearray(24 << 20)
print(advised().count(True))
"""


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists()
    or not OVERCOMMIT.exists()
    or OVERCOMMIT.read_text().strip() == STRICT,
    reason="the system has no huge pages to give, or counts addresses",
)
def test_memory_is_asked_for_in_huge_pages() -> None:
    done = subprocess.run([sys.executable, "-c", HUGE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1"]


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("no library is to be asked"))
    keep_memory()
