"""Fonts, colors and files of figures."""

import dataclasses
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from hypothesis import given, settings, strategies as st
from PIL import Image

import regard
from regard.viz import figure, heatmaps
from regard.viz.figure import SHADES, drawable, figure_style, new_figure
from regard.viz.heatmaps import MatrixPlot
from regard.viz.page import VIEW
from regard.viz.plots import head_figure

STRANGE = ["\ud800", "\0", "\n", "\x1b[31m", "☃漢字", "$\\foo$", "\u2028", "\U0010ffff", "a$b"]


@pytest.mark.parametrize("text", STRANGE)
@pytest.mark.parametrize("extension", ["png", "svg", "pdf", "html"])
def test_any_text_is_drawn_without_warnings(
    translator: regard.PairRun, tmp_path: Path, text: str, extension: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator.attend(f"3{text}").save(tmp_path / f"map.{extension}")
        if extension != "html":
            head_figure({text: [0.5, -1.0]}, text, text).save(tmp_path / f"heads.{extension}")


@pytest.fixture
def fonts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return an empty list that replaces the system's font files, after clearing all caches."""
    files: list[str] = []
    monkeypatch.setattr(figure, "findSystemFonts", lambda: files)
    monkeypatch.setattr(figure, "_fallback_fonts", {})
    monkeypatch.setattr(figure, "_missing_blocks", set())
    monkeypatch.setattr(figure.fontManager, "ttflist", list(figure.fontManager.ttflist))
    figure._drawable_character.cache_clear()
    yield files
    figure._drawable_character.cache_clear()


def write_font(path: Path, character: str) -> str:
    """Write a font with a single glyph (a square)."""
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


def test_characters_without_a_glyph_are_replaced(fonts: list[str], tmp_path: Path) -> None:
    (tmp_path / "no.ttf").write_bytes(b"no font")
    fonts.append(str(tmp_path / "no.ttf"))
    assert drawable("grün é ▁") == "grün é ▁"
    assert drawable("a\ud800\0\n漢") == "a\ufffd\ufffd\ufffd\ufffd"
    assert drawable("$x$") == r"\$x\$"


@pytest.mark.parametrize("extension", ["png", "svg", "pdf"])
def test_system_fonts_provide_missing_glyphs(
    fonts: list[str], tmp_path: Path, extension: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, heads = tmp_path / f"heads.{extension}", head_figure({"漢": [1.0]}, "漢", "漢")
    without = heads.save(path).read_bytes()
    figure._drawable_character.cache_clear()
    figure._missing_blocks.clear()
    fonts.append(write_font(tmp_path / "squares.ttf", "漢"))
    assert drawable("漢字") == "漢\ufffd"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert heads.save(path).read_bytes() != without
    assert not caplog.records


@settings(max_examples=10)
@given(text=st.text(st.characters(exclude_categories=[]), max_size=5))
def test_any_label_can_be_drawn(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head_figure({text: [1.0]}, text, text)._repr_png_()


def test_colours_equal_those_of_the_page() -> None:
    text = (VIEW / "colours.js").read_text(encoding="utf-8")
    [stops] = re.findall(r"const LIGHT = \[(.*?)\];", text, re.DOTALL)
    assert tuple(re.findall(r'"(#\w{6})"', stops)) == SHADES


@pytest.mark.parametrize("heads", [1, 4, 30])
def test_a_map_is_as_wide_as_a_page(heads: int, tmp_path: Path) -> None:
    maps = regard.view_weights(np.eye(6, dtype=np.float32)[None].repeat(heads, 0), list("abcdef"))
    with Image.open(maps.plot(tmp_path / "map.png")) as picture:
        assert picture.width == round(6.9 * figure.DPI)


def test_every_letter_has_a_horizontal_label() -> None:
    keys = [*"abcdefghijklmnopqrstuvwxyz", "</s>"]
    with figure_style():
        plot = MatrixPlot(weights=np.ones((3, 27)), queries="abc", keys=keys, width=3.3, axis_names=("", ""))
        drawn = new_figure(plot.width, plot.height)
        plot.draw(drawn)
    labels = [(label.get_text(), label.get_rotation()) for label in drawn.axes[0].get_xticklabels()]
    assert labels == [(key, 90 * (len(key) > 1)) for key in keys]


def test_texts_of_a_map_fit_and_titles_do_not_cover_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(heatmaps, "figure_bytes", lambda figure, *_, **__: (drawn.append(figure), b"")[1])  # type: ignore[func-returns-value]
    labels = [f"w{number}" for number in range(13)]
    layers = [np.full((4, 13, 13), 1 / 13, np.float32)] * 2
    for text in "THE QUICK BROWN FOX " * 20, "注意 " * 99, "short":
        heatmaps.draw_map(dataclasses.replace(regard.view_weights(layers, labels), input=text), "png")
        drawn[-1].draw_without_rendering()
        title = drawn[-1].get_suptitle()
        assert title.endswith("…") == (text != "short")
        assert drawn[-1]._suptitle.get_window_extent().x1 < 1104
    rows = [panel for panel in drawn[-1].axes if "\n" in panel.get_title(loc="left")]
    lowest = min(label.get_window_extent().y0 for label in rows[0].get_xticklabels())
    assert rows[1]._left_title.get_window_extent().y1 < lowest
