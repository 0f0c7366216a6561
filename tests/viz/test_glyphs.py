"""Text that pictures can show."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.viz import glyphs
from regard.viz.glyphs import drawable
from regard.viz.waves import draw_positions

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


@pytest.fixture
def fonts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The files of a machine's fonts, to be filled; what was found before is forgotten."""
    files: list[str] = []
    monkeypatch.setattr(glyphs, "findSystemFonts", lambda: files)
    monkeypatch.setattr(glyphs, "_found", {})
    monkeypatch.setattr(glyphs, "_unknown", set())
    monkeypatch.setattr(glyphs.fontManager, "ttflist", list(glyphs.fontManager.ttflist))
    glyphs._drawable.cache_clear()
    yield files
    glyphs._drawable.cache_clear()


def font_of(path: Path, character: str) -> str:
    """Write a font that has one letter, a square."""
    pen = TTGlyphPen(None)
    for number, point in enumerate([(0, 0), (0, 900), (900, 900), (900, 0)]):
        (pen.lineTo if number else pen.moveTo)(point)
    pen.closePath()
    square = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "square"])
    builder.setupCharacterMap({ord(character): "square"})
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "square": square})
    builder.setupHorizontalMetrics({".notdef": (500, 0), "square": (1000, 0)})
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "Squares", "styleName": "Bold"})
    builder.setupOS2(usWeightClass=500)
    builder.setupPost()
    builder.save(path)
    return str(path)


def test_what_has_no_glyph_is_replaced_and_the_rest_stays(fonts: list[str], tmp_path: Path) -> None:
    (tmp_path / "no.ttf").write_bytes(b"no font")
    fonts.append(str(tmp_path / "no.ttf"))
    assert drawable("grün é ▁") == "grün é ▁"
    assert drawable("a\ud800\0\n漢") == "a\ufffd\ufffd\ufffd\ufffd"
    assert drawable("$x$") == r"\$x\$"


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_font_of_the_machine_is_found(
    fonts: list[str], tmp_path: Path, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    without = draw_positions(np.eye(2), "漢", ending)
    glyphs._drawable.cache_clear()
    glyphs._unknown.clear()
    fonts.append(font_of(tmp_path / "squares.ttf", "漢"))
    assert drawable("漢字") == "漢\ufffd"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw_positions(np.eye(2), "漢", ending) != without
    assert not caplog.records


@settings(max_examples=30)
@given(text=st.text(st.characters(exclude_categories=[]), max_size=5))
def test_any_label_can_be_drawn(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_positions(np.eye(2), text, "svg")
