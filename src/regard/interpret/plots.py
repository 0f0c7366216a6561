"""What an examination found, drawn: what each head is worth, and where it looks."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from regard.interpret.estimates import Estimate
from regard.interpret.findings import HeadFindings
from regard.interpret.importance import HeadImportance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, MARK = "#2171b5", "#c2410c"
LINE = 0.22
"""Height of a head, inches."""


def importance_plot(importance: HeadImportance) -> bytes:
    """Draw what is added to the loss when each head is off, the most important first, as SVG."""
    ranked = importance.ranked()[::-1]
    names = [f"{layer} {head}" for _, layer, head in ranked]

    def draw(axes: "Axes") -> None:
        axes.barh(range(len(ranked)), [value for value, _, _ in ranked], color=BLUE)
        axes.axvline(0, color=axes.spines["left"].get_edgecolor(), linewidth=0.8)
        axes.set_xlabel("added to the loss when the head is off (nats)")

    return _drawn(names, draw)


def relevance_plot(heads: Sequence[HeadFindings], uniform: Estimate) -> bytes:
    """Draw the share of each head's attention on relevant inputs with its interval, beside even attention."""
    known = [each for each in heads if each.relevance is not None]

    def draw(axes: "Axes") -> None:
        for place, each in enumerate(known):
            found = each.relevance
            assert found is not None
            axes.plot([found.low, found.high], [place, place], color=BLUE, linewidth=3)
            axes.plot([found.mean], [place], "o", color=BLUE)
        axes.axvline(uniform.mean, color=MARK, linestyle="--", label="attention that is even")
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of attention on what the answer depends on (mean and interval)")
        axes.legend(fontsize=8)

    return _drawn([f"{each.layer} {each.head}" for each in known], draw)


def _drawn(names: Sequence[str], draw: "Callable[[Axes], None]") -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from regard.viz.figure import figure_bytes

    figure = Figure(figsize=(8, 1.0 + LINE * max(len(names), 2)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    draw(axes)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.3)
    return figure_bytes(figure, "svg")
