"""Tables in the terminal: at every width, numbers are whole and nothing is left out."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from rich.console import Console
from rich.table import Table

import regard
from regard import result
from regard.result import Fitted
from tests.conftest import Command

NUMBERS = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?%?(?![\w.])")
COMMANDS = [
    ["test", "induction", "--samples", "20"],
    ["explain", "induction"],
    ["explain", "induction", "--why"],
    ["examine", "induction", "--samples", "20"],
    ["circuit", "induction", "--pairs", "1", "--method", "eap"],
    ["timeline", "induction", "--samples", "10"],
    ["prune", "induction", "--heads", "1", "--overwrite"],
    ["tasks"],
    ["compare", "recall", "--vary", "pooling=last,attention", "--seeds", "2", "--steps", "2", "--hidden", "4"],
    ["card", "sink", "--seeds", "2", "--steps", "1"],
    ["bench", "--models", "compiled/reverse", "--methods", "attention", "--seeds", "2", "--quick"],
    ["trust", "dates", "--samples", "50", "--beam", "1"],
    ["align", "dates", "--samples", "20"],
]


@pytest.fixture(scope="module")
def many_heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a hardly trained run with twelve heads."""
    folder = tmp_path_factory.mktemp("many")
    options = {"hidden": 24, "heads": 12, "steps": 4, "snapshots": 2, "batchsize": 8, "max_len": 16, "layers": 1}
    regard.train("induction", savepath=folder / "models", progress=False, **options)
    regard.train("dates", savepath=folder / "models", progress=False, hidden=8, steps=4)
    return folder


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_print_whole_numbers(
    words: list[str], many_heads: Path, command: Command, small_probes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[Any] = []

    def collect(renderable: Any) -> Fitted:
        printed.append(renderable)
        return Fitted(renderable)

    monkeypatch.chdir(many_heads)
    monkeypatch.setattr(result, "Fitted", collect)
    status, _, err = command(*words)
    assert status == 0 and printed, err
    whole, *narrower = ["\n".join(drawn(renderable, width) for renderable in printed) for width in (1000, 200, 100, 80)]
    for text, width in zip(narrower, (200, 100, 80), strict=True):
        assert set(NUMBERS.findall(text)) == set(NUMBERS.findall(whole))
        assert max(map(len, text.splitlines())) <= width


def drawn(renderable: Any, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(Fitted(renderable))
    return captured.get()


@given(
    rows=st.lists(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=6), min_size=1, max_size=4),
    width=st.integers(50, 120),
)
def test_tables_of_any_width_keep_every_cell(rows: list[list[float]], width: int) -> None:
    table = Table("layer", *(f"head {index}" for index in range(6)), box=None, pad_edge=False)
    for index, row in enumerate(rows):
        table.add_row(f"encoder.layer.{index}.attention", *(f"{value:+.4f}" for value in row))
    text = drawn(table, width)
    assert all(len(line) <= width for line in text.splitlines())
    for index, row in enumerate(rows):
        assert {f"encoder.layer.{index}.attention", *(f"{value:+.4f}" for value in row)} <= set(text.split())
