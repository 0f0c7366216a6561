"""The overview picture: mechanisms x tests, the difference to softmax as a color."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard_lab.cards.card import Card, without_baseline

LARGEST = 0.5
"""Difference of scores with the darkest color."""
DARK_FROM = 0.3
"""Difference from which the text of a cell is white."""


def draw_overview(cards: Sequence[Card], format: str) -> bytes:
    """Draw one row per mechanism and one column per test, as an SVG or PNG file.

    The first row has the scores of softmax. Blue is better than softmax, red is worse. Numbers are percentage
    points, with half the width of the interval in small type. A number in bold type with a star has an interval
    that excludes zero; the interval holds for all tests of the mechanism at once.
    """
    from regard.viz.figure import figure_bytes  # matplotlib is slow to import
    from regard.viz.matrix_plots import new_figure

    tests = [row.test for row in cards[0].rows]
    cards = without_baseline(cards)
    values = np.array([[0.0] * len(tests), *([row.difference.value for row in card.rows] for card in cards)])
    figure = new_figure(3.2 + 0.62 * len(tests), 1.8 + 0.32 * len(values))
    axes = figure.subplots()
    axes.imshow(values, cmap="RdBu", vmin=-LARGEST, vmax=LARGEST, aspect="auto")
    for column, row in enumerate(cards[0].rows):
        axes.text(column, 0, f"{100 * row.softmax.value:.0f} %", ha="center", va="center", fontsize=8)
    for number, card in enumerate(cards, start=1):
        for column, row in enumerate(card.rows):
            value, color = row.difference.value, "black"
            if abs(value) > DARK_FROM:
                color = "white"
            text, weight = f"{round(100 * value):+d}" + "*" * row.shown, "bold" if row.shown else "normal"
            style: dict[str, Any] = {"ha": "center", "color": color}
            axes.text(column, number, text, va="bottom", fontsize=8, fontweight=weight, linespacing=0.8, **style)
            if row.difference.low is not None and row.difference.high is not None:
                half = 50 * (row.difference.high - row.difference.low)
                axes.text(column, number + 0.08, f"±{half:.0f}", va="top", fontsize=6, **style)
    axes.set_xticks(range(len(tests)), tests, rotation=40, ha="left", fontsize=9)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(values)), ["softmax: score", *(card.mechanism for card in cards)], fontsize=9)
    axes.tick_params(length=0)
    axes.set_xlabel(
        "correct outputs (regression: explained variance) minus softmax, in percentage points, "
        f"over seeds 0 to {cards[0].seeds - 1}\n"
        "blue: better; red: worse; ±: half the interval; * and bold: the interval excludes zero",
        fontsize=9,
    )
    return figure_bytes(figure, format)
