"""Choices between implementations are measured once, stored, and survive damaged files and read-only folders."""

import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from regard import machine
from regard.machine import choose
from regard.training import trainer


class Clock:
    """A clock that only the measured functions advance, in seconds."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, 0

    def thread_time(self) -> float:
        return self.now

    def spends(self, seconds: float) -> Callable[[], None]:
        def work() -> None:
            self.now += seconds
            self.calls += 1

        return work


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "_CHOICES", {})
    clock = Clock()
    monkeypatch.setattr(machine, "time", clock)
    return clock


@pytest.mark.parametrize(("second", "choice"), [(0.5, "b"), (0.79, "b"), (0.81, "a"), (2.0, "a")])
def test_another_implementation_must_be_clearly_faster_than_the_default(
    clock: Clock, second: float, choice: str
) -> None:
    assert choose("work", lambda: {"a": clock.spends(1.0), "b": clock.spends(second)}, version="1") == choice


def test_the_first_choice_is_stored(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("work", lambda: {"a": clock.spends(2.0), "b": clock.spends(1.0)}, version="1") == "b"
    [file] = tmp_path.rglob("work-*.json")
    stored = json.loads(file.read_text())
    assert stored["milliseconds"] == {"a": 2000, "b": 1000} and "1" in stored["machine"]
    monkeypatch.setattr(machine, "_CHOICES", {})  # as in another process
    calls = clock.calls
    assert choose("work", lambda: {"a": clock.spends(1.0), "b": clock.spends(2.0)}, version="1") == "b"
    assert clock.calls == calls
    monkeypatch.setattr(machine, "_CHOICES", {})
    assert choose("work", lambda: {"a": clock.spends(1.0), "b": clock.spends(2.0)}, version="2") == "a"


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "3", '{"choice": "c"}', '{"choice": ["a"]}', "\0", "\udcff", "[" * 100_000, " " * 2**20]
)
def test_a_damaged_file_is_replaced(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    make = lambda: {"a": clock.spends(2.0), "b": clock.spends(1.0)}  # noqa: E731
    choose("work", make, version="1")
    [file] = tmp_path.rglob("work-*.json")
    stored = file.read_bytes()
    file.write_bytes(content.encode(errors="surrogateescape"))
    monkeypatch.setattr(machine, "_CHOICES", {})
    assert choose("work", make, version="1") == "b"
    assert file.read_bytes() == stored and list(file.parent.iterdir()) == [file]


def test_a_pipe_is_not_waited_for(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = lambda: {"a": clock.spends(2.0), "b": clock.spends(1.0)}  # noqa: E731
    choose("work", make, version="1")
    [file] = tmp_path.rglob("work-*.json")
    for create in (os.mkfifo, os.mkdir):
        file.unlink()
        create(file)
        monkeypatch.setattr(machine, "_CHOICES", {})
        assert choose("work", make, version="1") == "b"
        assert file.is_file() or create is os.mkdir


def test_a_full_disk_leaves_no_file(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert choose("work", lambda: {"a": clock.spends(2.0), "b": clock.spends(1.0)}, version="1") == "b"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_stored_choices_hold_in_a_block(clock: Clock) -> None:
    make = lambda: {"a": clock.spends(2.0), "b": clock.spends(1.0)}  # noqa: E731
    with machine.use_choices({"work": "a"}):
        assert choose("work", make, version="1") == "a" and not clock.calls
    assert choose("work", make, version="1") == "b"


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user without a home and without an entry in the password file, in a folder for temporary files."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    machine._temporary_state.cache_clear()
    yield tmp_path
    machine._temporary_state.cache_clear()


def test_state_without_a_home_is_temporary(homeless: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = machine.state_folder()
    assert folder == homeless / f"regard-{os.getuid()}" == machine.state_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "this user has no home" in error and str(folder) in error


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_another_user_cannot_prepare_the_temporary_state(homeless: Path, kind: str) -> None:
    folder = homeless / f"regard-{os.getuid()}"
    if kind == "file":
        folder.touch()
    elif kind == "link":
        (homeless / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(homeless / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    assert machine.state_folder() != folder and machine.state_folder().stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_written_stores_nothing(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert choose("work", lambda: {"a": clock.spends(2.0), "b": clock.spends(1.0)}, version="1") == "b"


@pytest.mark.parametrize(("faster", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_selects_the_faster_dtype(monkeypatch: pytest.MonkeyPatch, faster: bool, dtype: torch.dtype) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(trainer, "_faster_in_bfloat16", lambda: faster)
    assert trainer.product_type("auto") == dtype


def test_bfloat16_is_not_measured_without_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    monkeypatch.setattr(trainer, "_faster_in_bfloat16", lambda: pytest.fail("measured"))
    assert trainer.product_type("auto") == torch.float32


def test_a_measurement_restores_the_number_of_threads() -> None:
    threads = torch.get_num_threads()
    trainer._faster_in_bfloat16()
    assert torch.get_num_threads() == threads
