"""Progress without a terminal is printed as lines."""

import time

import pytest

from regard import progress
from regard.progress import counting_bar, progress_bar, status_lines


def lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], steps: int, each: float) -> list[str]:
    """Return the lines of a training whose steps take `each` seconds."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with progress_bar("translation", 0, steps, show=True) as show:
        for step in range(10, steps + 1, 10):
            now[0] = step * each
            show({"step": step, "loss": 1.0, "exact_match": 0.5, "tokens": step * 200})
    return capsys.readouterr().err.splitlines()


def test_a_line_for_each_tenth_of_the_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = lines(monkeypatch, capsys, 1000, 0.1)
    assert len(shown) == 10
    assert shown[0] == (
        "train translation: step 100 of 1000, loss 1.0000, exact match 50%, 2,000 tokens/s, 0:01:30 left"
    )
    assert shown[-1].endswith("exact match 50%, 2,000 tokens/s")


def test_a_line_each_half_minute_of_a_slow_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = lines(monkeypatch, capsys, 100_000, 1.0)
    assert 3300 < len(shown) < 3350 and "step 30 of 100000" in shown[0] and "1 day" in shown[0]


def test_a_fast_training_prints_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(lines(monkeypatch, capsys, 500, 0.001)) == 1


def test_parts_print_tenths_and_silent_work_prints_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with counting_bar("compare", 0, 1000, show=True) as advance:
        for _ in range(1000):
            advance()
    assert len(capsys.readouterr().err.splitlines()) == 10
    monkeypatch.setattr(progress, "LONGEST_PAUSE", 0.2)
    with status_lines("examine"), counting_bar("runs", 0, 3, show=True) as advance:
        advance()
        time.sleep(0.7)
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("runs: 1 of 3 done") and 1 <= len(others) <= 3
    assert others[0].startswith("regard examine: 0:00:00 so far, runs: 1 of 3 done, 0:00:0")
    time.sleep(0.3)
    assert capsys.readouterr().err == ""
