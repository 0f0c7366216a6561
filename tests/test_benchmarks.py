"""Programs of `benchmarks/` that take long or need a device of another machine run here at small sizes."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.slow
def test_the_gpu_program_runs_all_parts_at_small_sizes(tmp_path: Path) -> None:
    results = tmp_path / "gpu.json"
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--small", "--json", str(results)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    tables = json.loads(results.read_text())
    assert list(tables) == ["machine", "peak, TFLOP/s", "attention", "search", "training", "tests"]
    assert "failed" not in tables["training"] and tables["training"].count("plain loop") == 3
    assert tables["attention"].count("recorded") == 4 and tables["search"].count("Regard") == 2


@pytest.mark.slow
@pytest.mark.parametrize("groups", [("attention", "pages"), ("models", "text", "runs")])
def test_the_growth_program_measures_and_draws_small_sizes(groups: tuple[str, ...], tmp_path: Path) -> None:
    results = tmp_path / "growth.json"
    command = [sys.executable, str(BENCHMARKS / "growth.py"), "--small", "--groups", *groups]
    command += ["--json", str(results), "--pictures", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    curves = json.loads(results.read_text())
    assert {curve["group"] for curve in curves} == set(groups)
    assert all(cost > 0 for curve in curves for cost in curve["costs"])
    assert process.stdout.count("\n| ") == 2 + len(curves) - 1  # the head, the line below it, and a row for each
    names = sorted(f"growth-{group}{theme}.svg" for group in groups for theme in ("", "-dark"))
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == names


@pytest.mark.parametrize(("demanded", "is_too_fast"), [(1, True), (2, False)])
def test_growth_finds_a_cost_that_grows_faster_than_its_arithmetic(
    demanded: int, is_too_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    growth: Any = importlib.import_module("growth")
    cost = growth.Growth(
        group="pages",
        panel="page",
        name="size",
        size="steps",
        sizes=(10, 100, 1000),
        prepare=lambda size, folder: lambda: size**2 + 100,  # a constant hides the growth at small sizes
        demanded=lambda size: size**demanded,
        unit="KB",
    )
    curve = growth.measure(cost, 1)
    assert curve.is_too_fast == is_too_fast
    assert round(curve.upper_slope, 2) == 2.0 and curve.slope < 1.95
