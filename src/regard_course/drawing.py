"""Shapes of the lessons' pictures, as SVG that is part of a page.

Colors are CSS variables with a fallback, so that a picture follows the page in light and dark, in print, and in
a notebook. Lengths are in pixels; the width of a picture is at most `WIDTH`, which fits a page of 390 pixels.
"""

import html
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

WIDTH = 340
COLORS = tuple(
    f"var(--{name}, {color})"
    for name, color in (("blue", "#1a5fb4"), ("red", "#c0392b"), ("green", "#26805a"), ("gold", "#9a6700"))
)
INK = "currentColor"
TEXT = re.compile(r">([^<>]+)</text>")
SIZE = 26
"""Side of a cell."""


class Drawing:
    """Shapes of one picture, in the order in which they were added."""

    def __init__(self, height: float, width: float = WIDTH) -> None:
        self.height, self.width = height, width
        self.shapes: list[str] = []

    def text(
        self, x: float, y: float, text: str, *, color: str = INK, anchor: str = "middle", size: int = 12
    ) -> None:
        self.shapes.append(
            f'<text x="{x:.1f}" y="{y + size * 0.35:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{color}">{html.escape(text)}</text>'
        )

    def rectangle(
        self, x: float, y: float, width: float, height: float, *, color: str = INK, fill: float = 0
    ) -> None:
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" fill="{color}" '
            f'fill-opacity="{fill:.2f}" stroke="{color}" stroke-opacity=".55"/>'
        )

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        color: str = INK,
        width: float = 1.5,
        strength: float = 1,
    ) -> None:
        self.shapes.append(
            f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{color}" stroke-width="{width:.1f}" '
            f'stroke-opacity="{strength:.2f}" fill="none"/>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, *, color: str = INK, width: float = 1.8) -> None:
        """Add a line with a head at its end."""
        angle = math.atan2(y2 - y1, x2 - x1)
        points = " ".join(
            f"{x2 - 8 * math.cos(angle + turn):.1f},{y2 - 8 * math.sin(angle + turn):.1f}"
            for turn in (-0.45, 0.45)
        )
        end = x2 - 6 * math.cos(angle), y2 - 6 * math.sin(angle)
        self.line(x1, y1, *end, color=color, width=width)
        self.shapes.append(f'<polygon points="{x2:.1f},{y2:.1f} {points}" fill="{color}"/>')

    def arc(self, x1: float, x2: float, y: float, rise: float, *, color: str = INK, strength: float = 1) -> None:
        """Add an arc above y that ends in an arrow's head at x2."""
        self.shapes.append(
            f'<path d="M{x1:.1f} {y:.1f}Q{(x1 + x2) / 2:.1f} {y - 2 * rise:.1f} {x2:.1f} {y:.1f}" '
            f'stroke="{color}" stroke-width="2" stroke-opacity="{strength:.2f}" fill="none"/>'
            f'<polygon points="{x2:.1f},{y:.1f} {x2 - 4:.1f},{y - 8:.1f} {x2 + 5:.1f},{y - 7:.1f}" '
            f'fill="{color}" fill-opacity="{strength:.2f}"/>'
        )

    def curve(self, points: Sequence[tuple[float, float]], *, color: str = INK) -> None:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.shapes.append(f'<path d="M{path}" stroke="{color}" stroke-width="2" fill="none"/>')

    def box(self, x: float, y: float, text: str, *, width: float, color: str = INK, fill: float = 0.08) -> None:
        self.rectangle(x, y, width, SIZE, color=color, fill=fill)
        self.text(x + width / 2, y + SIZE / 2, text)

    def grid(
        self,
        x: float,
        y: float,
        values: Array,
        *,
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        labels: Sequence[Sequence[str]] | None = None,
        color: str = COLORS[0],
        size: float = SIZE,
    ) -> None:
        """Add a table of numbers from 0 to 1 as cells that are more opaque for larger numbers.

        labels: the texts in the cells; by default none.
        """
        for number, name in enumerate(columns):
            self.text(x + (number + 0.5) * size, y - 9, name, size=11)
        for row, line in enumerate(values):
            if rows:
                self.text(x - 6, y + (row + 0.5) * size, rows[row], anchor="end", size=11)
            for column, value in enumerate(line):
                left, top = x + column * size, y + row * size
                self.rectangle(left, top, size, size, color=color, fill=0.62 * float(np.clip(value, 0, 1)))
                if labels is not None:
                    self.text(left + size / 2, top + size / 2, labels[row][column], size=11)

    def bars(
        self, x: float, y: float, values: Sequence[float], names: Sequence[str], *, height: float = 70
    ) -> None:
        for number, (value, name) in enumerate(zip(values, names, strict=True)):
            left = x + number * SIZE
            self.rectangle(left + 3, y - value * height, SIZE - 6, value * height, color=COLORS[0], fill=0.55)
            self.text(left + SIZE / 2, y + 10, name, size=11)

    def texts(self) -> list[str]:
        return [html.unescape(text) for shape in self.shapes for text in TEXT.findall(shape)]

    def svg(self, alt: str, say: Callable[[str], str] = str) -> str:
        """Return the picture as SVG.

        alt: description for readers who do not see it. say: function that translates each line of text.
        """
        shapes = TEXT.sub(
            lambda text: f">{html.escape(say(html.unescape(text[1])))}</text>", "".join(self.shapes)
        )
        width, height = f"{self.width:.0f}", f"{self.height:.0f}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {width} {height}" '
            f'width="{width}" role="img" font-family="system-ui, sans-serif" aria-label="{html.escape(alt)}">'
            f"{shapes}</svg>"
        )


def softmax(scores: Array) -> Array:
    """Return the softmax over the last dimension."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights: Array = powers / powers.sum(-1, keepdims=True)
    return weights
