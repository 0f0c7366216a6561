"""One process at a time changes a folder."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.io import build_once, hold_lock

HOLD = "import pathlib, sys, time; from regard.io import hold_lock; held = hold_lock(pathlib.Path(sys.argv[1]))"


def test_a_second_process_is_refused_with_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    with hold_lock(path):
        with pytest.raises(InputError, match=f"by process {os.getpid()} on {socket.gethostname()} since 20"):
            with hold_lock(path):
                pass
        with hold_lock(tmp_path / "deep" / "other"):
            pass
    with hold_lock(path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_dead_process_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "run"
    words = [sys.executable, "-c", f"{HOLD}; held.__enter__(); print(flush=True); time.sleep(60)", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(InputError, match=f"is being written by process {other.pid} on "), hold_lock(path):
            pass
        other.kill()
        other.wait()
        with hold_lock(path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_many_processes_take_turns(tmp_path: Path) -> None:
    """Two processes never hold the lock at the same time, and a refused process can repeat the attempt."""
    code = f"""{HOLD.rsplit(";", 1)[0]}
from regard.errors import InputError
path = pathlib.Path(sys.argv[1])
done = 0
while done < 50:
    try:
        with hold_lock(path):
            path.mkdir()
            path.rmdir()
            done += 1
    except InputError as error:
        assert "being written" in str(error), error
"""
    others = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")]) for _ in range(3)]
    assert [other.wait() for other in others] == [0, 0, 0]


def test_an_impossible_path_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "run", tmp_path / "a\0b", tmp_path / ("x" * 300) / "run"):
        with pytest.raises(InputError, match="cannot write .*choose another path"), hold_lock(path):
            pass


def test_waiting_is_reported_once_with_the_holder(tmp_path: Path) -> None:
    path, said, order = tmp_path / "run", list[str](), list[str]()
    told = threading.Event()

    def wait(what: str) -> None:
        said.append(what)
        told.set()

    def second() -> None:
        build_once(path, lambda: "second" in order, lambda: order.append("second"), on_wait=wait)

    with hold_lock(path):
        other = threading.Thread(target=second)
        other.start()
        assert told.wait(10)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"] and len(said) == 1
    assert said[0].startswith(f"waiting: {str(path)!r} is being written by process {os.getpid()} on ")
    with pytest.raises(InputError, match="cannot write"):
        build_once(Path("/proc/none/run"), lambda: False, list, on_wait=wait)


@pytest.mark.parametrize("way", ["link", "dangling", "second name", "pipe"])
def test_a_lock_that_is_a_link_is_refused(tmp_path: Path, way: str) -> None:
    victim, lock = tmp_path / "victim", tmp_path / "top" / ".run.lock"
    lock.parent.mkdir()
    if way != "dangling":
        victim.write_text("precious")
    if way == "second name":
        lock.hardlink_to(victim)
    elif way == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to("../victim")
    with pytest.raises(InputError), hold_lock(tmp_path / "top" / "run"):
        pass
    assert victim.read_text() == "precious" if way != "dangling" else not victim.exists()


def test_the_lock_is_beside_a_link_and_not_beside_its_target(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "run").symlink_to("../elsewhere")
    with hold_lock(tmp_path / "top" / "run"):
        assert [path.name for path in tmp_path.rglob("*.lock")] == [".run.lock"]
        assert (tmp_path / "top" / ".run.lock").exists()


def test_a_lock_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    stale = tmp_path / ".corpus.lock"
    stale.write_text("99999999 elsewhere")
    build_once(tmp_path / "corpus", lambda: True, list, on_wait=print)
    assert not stale.exists()
    with hold_lock(tmp_path / "corpus"):
        build_once(tmp_path / "corpus", lambda: True, list, on_wait=print)
        assert stale.exists()
