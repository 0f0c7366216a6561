"""Measure the memory used by code in a separate process."""

import subprocess
import sys
from pathlib import Path

import pytest

MEASURED = """
def peak():
    with open("/proc/self/status") as status:
        return int(status.read().split("VmHWM:")[1].split()[0]) / 1024
{setup}
before = peak()
{code}
print(peak() - before)
"""


def grown_mib(setup: str, code: str) -> float:
    """Return the increase of the peak memory of a process in MiB caused by `code`, after `setup`."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux to tell a process's peak memory")
    script = MEASURED.format(setup=setup, code=code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(done.stdout)
