"""Draw the curves of growth.py: a panel for each comparison, with both axes logarithmic."""

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
from growth import Curve
from matplotlib.figure import Figure

THEMES: dict[str, dict[str, Any]] = {
    "": {"text": "#1f2328", "grid": "#d1d9e0", "back": "#ffffff"},
    "-dark": {"text": "#e6edf3", "grid": "#30363d", "back": "#0d1117"},
}
COLORS = {
    "": ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989"),
    "-dark": ("#58a6ff", "#f0883e", "#3fb950", "#bc8cff", "#ff7bac"),
}
MARKERS = "os^Dv"
UNITS = {"s": "processor seconds", "MiB": "MiB", "KB": "KB"}


def draw(curves: list[Curve], folder: Path) -> None:
    """Write growth-GROUP.svg and growth-GROUP-dark.svg for each group of curves."""
    for group in dict.fromkeys(curve.group for curve in curves):
        for theme in THEMES:
            _draw_group(
                [curve for curve in curves if curve.group == group], theme, folder / f"growth-{group}{theme}.svg"
            )


def _draw_group(curves: list[Curve], theme: str, path: Path) -> None:
    colors = THEMES[theme]
    panels = list(dict.fromkeys((curve.panel, curve.unit) for curve in curves))
    columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    settings: Any = {
        "text.color": colors["text"],
        "axes.labelcolor": colors["text"],
        "axes.edgecolor": colors["grid"],
        "axes.facecolor": colors["back"],
        "xtick.color": colors["text"],
        "ytick.color": colors["text"],
        "font.size": 9,
        "svg.hashsalt": "growth",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(4 * columns, 4 * rows), layout="constrained")
        figure.set_facecolor(colors["back"])
        for number, (panel, unit) in enumerate(panels):
            axes = figure.add_subplot(rows, columns, number + 1)
            shown = [curve for curve in curves if (curve.panel, curve.unit) == (panel, unit)]
            _draw_panel(axes, shown, COLORS[theme], colors)
        figure.savefig(path, metadata={"Date": None})


def _draw_panel(axes: Any, curves: list[Curve], colors: tuple[str, ...], theme: dict[str, Any]) -> None:
    """Draw measured costs as points, and the growth of the arithmetic through the last point as a dashed line."""
    for curve, color, marker in zip(curves, colors, MARKERS, strict=False):
        label = f"{curve.name}: {curve.upper_slope:.2f} ({curve.upper_demanded_slope:.2f})".replace("-0.00", "0.00")
        axes.plot(curve.sizes, curve.costs, color=color, marker=marker, markersize=4, linewidth=1.4, label=label)
        demanded = [value * curve.costs[-1] / curve.demanded[-1] for value in curve.demanded]
        axes.plot(curve.sizes, demanded, color=color, linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    bottom, top = (limit([cost for curve in curves for cost in curve.costs]) for limit in (min, max))
    axes.set_ylim(bottom / 2, top * 2)
    axes.set_title(curves[0].panel, fontsize=10, fontweight="bold")
    axes.set_xlabel(curves[0].size)
    axes.set_ylabel(UNITS[curves[0].unit])
    axes.grid(color=theme["grid"], linewidth=0.6)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0, -0.16), labelcolor=theme["text"])
