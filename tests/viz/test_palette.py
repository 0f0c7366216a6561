"""Pictures have the colours of the page."""

import re

from regard.viz.bundle import VIEW
from regard.viz.palette import BLUES, shades


def test_the_same_stops_as_in_the_page() -> None:
    text = (VIEW / "colours.js").read_text(encoding="utf-8")
    [stops] = re.findall(r"const LIGHT = \[(.*?)\];", text, re.DOTALL)
    assert tuple(re.findall(r'"(#\w{6})"', stops)) == BLUES


def test_shades_lie_between_them() -> None:
    found = shades(17)
    assert found[0] == (1, 1, 1) and found[16] == (8 / 255, 48 / 255, 107 / 255)
    assert found[2] == tuple(int(BLUES[1][at : at + 2], 16) / 255 for at in (1, 3, 5))
    assert [sum(each) for each in found] == sorted((sum(each) for each in found), reverse=True)
