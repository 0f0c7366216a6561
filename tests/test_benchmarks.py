"""Programs of `benchmarks/` that need a device of another machine run here at small sizes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.slow
def test_the_gpu_program_runs_all_parts_at_small_sizes(tmp_path: Path) -> None:
    results = tmp_path / "gpu.json"
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--small", "--json", str(results)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    tables = json.loads(results.read_text())
    assert list(tables) == ["machine", "peak, TFLOP/s", "tests", "training", "attention", "search", "seeds"]
    assert "failed" not in tables["training"] and tables["training"].count("plain loop") == 3
    assert tables["attention"].count("recorded") == 4 and tables["search"].count("Regard") == 2
