"""Plots of an examination: the importance of each head, and its attention on relevant inputs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from regard.interpret.estimates import Estimate
from regard.interpret.findings import HeadFindings
from regard.interpret.importance import HeadImportance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, MARK = "#2171b5", "#c2410c"
ROW_HEIGHT = 0.22
"""Height of a head's row in inches."""


def importance_plot(importance: HeadImportance) -> bytes:
    """Draw the loss increase when each head is off, the most important head first, as SVG."""
    ranked = importance.ranked()[::-1]  # the axis points down, so the first row is the most important head
    names = [f"{layer} {head}" for _, layer, head in ranked]

    def draw(axes: "Axes") -> None:
        axes.barh(range(len(ranked)), [value for value, _, _ in ranked], color=BLUE)
        axes.axvline(0, color=axes.spines["left"].get_edgecolor(), linewidth=0.8)
        axes.set_xlabel("added to the loss when the head is off (nats)")

    return _draw_svg(names, draw)


def relevance_plot(heads: Sequence[HeadFindings], uniform: Estimate) -> bytes:
    """Draw each head's share of attention on relevant inputs with its interval, and that of uniform attention."""
    shares = [(f"{head.layer} {head.head}", head.relevance) for head in heads if head.relevance is not None]

    def draw(axes: "Axes") -> None:
        for row, (_, share) in enumerate(shares):
            axes.plot([share.low, share.high], [row, row], color=BLUE, linewidth=3)
            axes.plot([share.mean], [row], "o", color=BLUE)
        axes.axvline(uniform.mean, color=MARK, linestyle="--", label="uniform attention")
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of attention on what the answer depends on (mean and interval)")
        axes.legend(fontsize=8)

    return _draw_svg([name for name, _ in shares], draw)


def _draw_svg(names: Sequence[str], draw: "Callable[[Axes], None]") -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from regard.viz.figure import figure_bytes

    figure = Figure(figsize=(8, 1.0 + ROW_HEIGHT * max(len(names), 2)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    draw(axes)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.3)
    return figure_bytes(figure, "svg")
