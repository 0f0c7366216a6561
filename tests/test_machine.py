"""Choices between implementations are measured once, stored, and survive damaged files and read-only folders."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard import machine
from regard.machine import choose
from regard.training import precision


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
    assert choose("work", {"a": clock.spends(1.0), "b": clock.spends(second)}, version="1") == choice


def test_the_first_choice_is_stored(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("work", {"a": clock.spends(2.0), "b": clock.spends(1.0)}, version="1") == "b"
    [file] = tmp_path.rglob("work-*.json")
    stored = json.loads(file.read_text())
    assert stored["milliseconds"] == {"a": 2000, "b": 1000} and "1" in stored["machine"]
    monkeypatch.setattr(machine, "_CHOICES", {})  # as in another process
    calls = clock.calls
    assert choose("work", {"a": clock.spends(1.0), "b": clock.spends(2.0)}, version="1") == "b"
    assert clock.calls == calls
    assert choose("work", {"a": clock.spends(1.0), "b": clock.spends(2.0)}, version="2") == "a"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"choice": "c"}', '{"choice": ["a"]}', "\0"])
def test_a_damaged_file_is_ignored(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    work = {"a": clock.spends(2.0), "b": clock.spends(1.0)}
    choose("work", work, version="1")
    [file] = tmp_path.rglob("work-*.json")
    file.write_text(content)
    monkeypatch.setattr(machine, "_CHOICES", {})
    assert choose("work", work, version="1") == "b"


def test_a_folder_that_cannot_be_written_stores_nothing(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert choose("work", {"a": clock.spends(2.0), "b": clock.spends(1.0)}, version="1") == "b"


@pytest.mark.parametrize(("faster", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_selects_the_faster_dtype(monkeypatch: pytest.MonkeyPatch, faster: bool, dtype: torch.dtype) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(precision, "_faster_in_bfloat16", lambda: faster)
    assert precision.product_type("auto") == dtype


def test_bfloat16_is_not_measured_without_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    monkeypatch.setattr(precision, "_faster_in_bfloat16", lambda: pytest.fail("measured"))
    assert precision.product_type("auto") == torch.float32


def test_a_measurement_restores_the_number_of_threads() -> None:
    threads = torch.get_num_threads()
    precision._faster_in_bfloat16()
    assert torch.get_num_threads() == threads
