"""The example of a custom part runs, and its bias is that of its equation."""

import math
import runpy
import sys
from pathlib import Path

import pytest
import torch

from regard.attention.parts import LayerSizes, positions_of
from regard.attention.windows import Window
from regard.errors import InputError

EXAMPLE = Path(__file__).parents[2] / "examples" / "recent.py"


def test_the_example_of_a_part(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    monkeypatch.delitem(sys.modules, "recent", raising=False)
    names = runpy.run_path(str(EXAMPLE), run_name="__main__")
    factors = [(1 + distance) ** -2.0 for distance in (3, 2, 1, 0)]  # equal states: only the bias counts
    expected = ", ".join(f"{factor / sum(factors):.4f}" for factor in factors)
    assert expected in capsys.readouterr().out
    sizes = LayerSizes(width=4, memory_width=4, heads=2, head_width=2)
    biases = names["Recent"](sizes, 3)(*positions_of(2, 4, torch.device("cpu")))
    assert biases.shape == (2, 2, 4)
    assert biases[0, 1, 0].item() == pytest.approx(-3 * math.log(4))


@pytest.mark.parametrize("number", [0, 2**30 + 1, 2.5, math.nan, "2", True, None])
def test_numbers_out_of_range_are_refused(number: object) -> None:
    with pytest.raises(InputError, match="width .* is (out of range: choose from 1 to|of type .*: give int)"):
        Window(LayerSizes(width=4, memory_width=4, heads=1, head_width=4), number)  # type: ignore[arg-type]
