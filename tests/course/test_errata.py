"""docs/explanation/errata.md prints what its blocks come to."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "errata.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("code", "shown"), BLOCKS)
def test_a_block_prints_what_stands_under_it(code: str, shown: str) -> None:
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(compile(code, "errata", "exec"), {})
    assert told.getvalue() == shown


def test_there_are_blocks_for_each_of_the_formulas() -> None:
    assert len(BLOCKS) == 4 == PAGE.count("```python")
