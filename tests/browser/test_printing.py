"""Printed PDFs contain the colors of the weights."""

import re
import zlib
from pathlib import Path
from typing import Any

import pytest

import regard


def pictures(pdf: bytes) -> list[tuple[int, int, int]]:
    """Return the width, the height and the number of colored pixels of each picture in a PDF from Chromium."""
    found = []
    for match in re.finditer(rb"<</Type /XObject\n/Subtype /Image\n(.*?)>>\s*stream\r?\n", pdf, re.DOTALL):
        width, height, length = (
            int(re.findall(rb"/%s (\d+)" % name, match[1])[0]) for name in (b"Width", b"Height", b"Length")
        )
        raw = zlib.decompress(pdf[match.end() : match.end() + length])
        if len(raw) == 3 * width * height:
            pixels = [raw[place : place + 3] for place in range(0, len(raw), 3)]
            found.append((width, height, sum(max(pixel) - min(pixel) > 40 for pixel in pixels)))
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_heatmaps_are_printed(page: Any, exported: Path, scheme: str) -> None:
    """All 3 x 13 weights of both heads are printed in color, also from a dark page."""
    page.emulate_media(color_scheme=scheme)
    page.goto(exported.as_uri())
    page.wait_for_selector("figure canvas")
    shown = [size for size in pictures(page.pdf()) if size[:2] == (13, 3)]
    assert len(shown) == 2 and all(coloured > 12 for _, _, coloured in shown)


def test_layer_and_head_are_named_on_paper(page: Any, german: regard.TranslationRun, tmp_path: Path) -> None:
    file = german.attend("Heute läuft der alte Hund.").to_html(tmp_path / "p.html")
    page.goto(f"{file.as_uri()}#head=1&all=false")
    page.wait_for_selector("figure canvas")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.inner_text(".sentence").startswith("Cross layer 0, head 1: ")
    assert page.locator(".sentence").is_visible() and not page.locator("select").first.is_visible()


def test_printing_does_not_change_the_page(page: Any, exported: Path) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(exported.as_uri())
    page.wait_for_selector("figure canvas")
    before = page.locator("figure canvas").first.screenshot()
    page.pdf()
    page.wait_for_function("document.querySelector('.regard-view').classList.contains('dark')")
    page.wait_for_timeout(100)
    assert page.locator("figure canvas").first.screenshot() == before
