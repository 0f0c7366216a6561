"""Progress without a terminal is printed as lines."""

import time

import pytest

from regard.progress import progress_bar


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


def test_a_line_each_minute_of_a_slow_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = lines(monkeypatch, capsys, 100_000, 1.0)
    assert 1600 < len(shown) < 1680 and "step 60 of 100000" in shown[0] and "1 day" in shown[0]


def test_a_fast_training_prints_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(lines(monkeypatch, capsys, 500, 0.001)) == 1
