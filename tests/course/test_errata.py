"""The code blocks of docs/errata.md print the output that the page shows."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("code", "shown"), BLOCKS)
def test_a_block_prints_the_output_below_it(code: str, shown: str) -> None:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "errata", "exec"), {})
    assert output.getvalue() == shown


def test_each_formula_has_a_block() -> None:
    assert len(BLOCKS) == 4 == PAGE.count("```python")
