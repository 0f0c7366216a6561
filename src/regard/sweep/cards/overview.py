"""The overview picture: mechanisms x tests, the difference to softmax as a color."""

from collections.abc import Sequence

import numpy as np

from regard.sweep.cards.card import Card

LARGEST = 0.5
"""Difference of scores with the darkest color."""
DARK_FROM = 0.3
"""Difference from which the text of a cell is white."""


def draw_overview(cards: Sequence[Card], format: str) -> bytes:
    """Draw one row per mechanism and one column per test, as an SVG or PNG file.

    Blue is better than softmax, red is worse. Numbers are percentage points. A number in bold type with a star
    has an interval that excludes zero; the interval holds for all tests of the mechanism at once.
    """
    from regard.viz.figure import figure_bytes  # matplotlib is slow to import
    from regard.viz.matrix_plots import new_figure

    tests = [row.test for row in cards[0].rows]
    values = np.array([[row.difference.value for row in card.rows] for card in cards])
    figure = new_figure(3.2 + 0.62 * len(tests), 1.6 + 0.27 * len(cards))
    axes = figure.subplots()
    axes.imshow(values, cmap="RdBu", vmin=-LARGEST, vmax=LARGEST, aspect="auto")
    for number, card in enumerate(cards):
        for column, row in enumerate(card.rows):
            value = row.difference.value
            axes.text(
                column,
                number,
                f"{round(100 * value):+d}" + "*" * row.shown,
                ha="center",
                va="center",
                fontsize=8,
                fontweight="bold" if row.shown else "normal",
                color="white" if abs(value) > DARK_FROM else "black",
            )
    axes.set_xticks(range(len(tests)), tests, rotation=40, ha="left", fontsize=9)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(cards)), [card.mechanism for card in cards], fontsize=9)
    axes.tick_params(length=0)
    axes.set_xlabel(
        "correct outputs (regression: explained variance) minus softmax, in percentage points, "
        f"over seeds 0 to {cards[0].seeds - 1}\n"
        "blue: better; red: worse; * and bold: the interval excludes zero",
        fontsize=9,
    )
    return figure_bytes(figure, format)
