"""Text that pictures can show."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.inspection.glyphs import drawable
from regard.inspection.waves import draw_positions

STRANGE = ["\ud800", "\0", "\n", "\x1b[31m", "☃漢字", "$\\foo$", "\u2028", "\U0010ffff", "a$b"]


@pytest.mark.parametrize("text", STRANGE)
@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html"])
def test_any_text_is_drawn_without_a_word(
    translator: regard.PairRun, tmp_path: Path, text: str, ending: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator.attend(f"3{text}").save(tmp_path / f"map.{ending}")
        if ending != "html":
            draw_positions(np.eye(3), text, ending)


def test_what_has_no_glyph_is_replaced_and_the_rest_stays() -> None:
    assert drawable("grün é ▁") == "grün é ▁"
    assert drawable("a\ud800\0\n漢") == "a\ufffd\ufffd\ufffd\ufffd"
    assert drawable("$x$") == r"\$x\$"


@settings(max_examples=30)
@given(text=st.text(st.characters(exclude_categories=[]), max_size=5))
def test_any_label_can_be_drawn(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_positions(np.eye(2), text, "svg")
