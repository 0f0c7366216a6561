"""On a system without the POSIX functions of the checker, the course works and `regard check` says why not.

Windows itself is not tested: the functions that it lacks are removed from Python on this system.
"""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import multiprocessing.connection, os, signal, socket, sys, types
import msgspec, numpy, rich, tyro

for module, names in (
    (signal, "SIGHUP SIGKILL SIGBUS SIGPROF SIGALRM ITIMER_PROF ITIMER_REAL setitimer"),
    (os, "fork killpg sched_getaffinity WNOHANG O_NOFOLLOW O_NONBLOCK"),
    (socket, "send_fds"),
):
    for name in names.split():
        delattr(module, name)
sys.modules |= dict.fromkeys(("fcntl", "resource", "pwd"))
import regard_course.check

sys.modules["regard_course.check"].os = types.SimpleNamespace(name="nt")
from regard.cli import main

sys.exit(main())
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_files_of_the_course_are_written(tmp_path: Path) -> None:
    done = run("learn", "--stubs", tmp_path / "stubs", "--notebooks", tmp_path / "notebooks", "--language", "de")
    assert done.returncode == 0 and "stubs into" in done.stdout, done.stderr
    done = run("check", tmp_path / "stubs" / "01_score.py")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "WSL on Windows" in done.stderr
