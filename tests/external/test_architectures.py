"""Every architecture of the table is recorded correctly, or gives a warning."""

import ast
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks" / "small_models.py"
QUICK = [
    "albert",
    "bart",
    "gemma2",
    "gptj",
    "t5",
    "longformer",
    "clip",
    "mamba",
    "prophetnet",
    "siglip_vision_model",
    "wavlm",
]
"""Architectures with and without the attention interface, with two masks, caps, biases, windows, streams or two towers,
and an architecture without attention.
"""
PARTS = 10
"""Number of tests among which all architectures of the installed transformers are divided."""


def names() -> list[str]:
    """Return the names in the table, without importing transformers."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Architecture"]
    single = [str(call.args[0].value) for call in calls if isinstance(call.args[0], ast.Constant)]
    loops = [node.generators[0].iter for node in ast.walk(tree) if isinstance(node, ast.ListComp)]
    return single + [name for loop in loops for name in ast.literal_eval(loop)]


def test_table_has_at_least_90_architectures() -> None:
    assert len(set(names())) == len(names()) >= 90


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["deepseek_v3", "gpt_oss", "kosmos-2.5", "modernbert-decoder", "t5gemma2", "unlimited_ocr_text"]
)
def test_any_architecture_is_recorded_or_named(small: Any, name: str) -> None:
    from every_architecture import examine

    result = examine(name)
    assert result.status in ("exact", "warned"), (result.why, result.checks)
    assert result.layers


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_every_architecture_is_recorded_or_named(small: Any, part: int) -> None:
    from every_architecture import examine, model_names

    results = [examine(name) for name in model_names()[part::PARTS]]
    assert not [(result.name, result.checks) for result in results if result.status == "wrong"]
    assert sum(result.status == "exact" for result in results) > 20


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in sorted(names())]
)
def test_architecture_is_recorded_correctly(small: Any, name: str) -> None:
    from model_checks import examine

    row = examine(small.known[name])
    assert row.right, {check: outcome for check, outcome in row.outcomes.items() if outcome not in ("yes", "-")}
    assert row.layers or row.architecture.unsupported
