"""Plots of an examination: the importance of each head, and its attention on relevant inputs."""

from collections.abc import Sequence

from regard.interpret.estimates import Estimate
from regard.interpret.findings import HeadFindings
from regard.interpret.importance import HeadImportance

WIDTH, ROW_HEIGHT = 8.0, 0.22
"""Width of a plot and height of a head's row, in inches."""


def importance_plot(importance: HeadImportance) -> bytes:
    """Draw the loss increase when each head is disabled, with its interval, as SVG; the most important head is
    first.
    """
    values = [
        (f"{layer} {head}", value, importance.interval(layer, head))
        for value, layer, head in importance.ranked()[::-1]
    ]
    return _draw_svg(values, "added to the loss when the head is off (nats)", 0.0, "")


def relevance_plot(heads: Sequence[HeadFindings], uniform: Estimate) -> bytes:
    """Draw the fraction of each head's attention on relevant inputs with its interval, and the fraction under
    uniform attention.
    """
    shares = [
        (f"{head.layer} {head.head}", head.relevance.mean, head.relevance)
        for head in heads
        if head.relevance is not None
    ]
    unit = "fraction of attention on what the answer depends on (mean and interval)"
    return _draw_svg(shares, unit, uniform.mean, "uniform attention")


def _draw_svg(
    values: Sequence[tuple[str, float, Estimate | None]], unit: str, reference: float, reference_name: str
) -> bytes:
    from regard.viz.figure import figure_bytes
    from regard.viz.plots import ValueInterval, draw_intervals, make_panels

    figure, [axes] = make_panels(1, WIDTH, 1.0 + ROW_HEIGHT * max(len(values), 2))
    intervals = [
        ValueInterval(name, value, value if known is None else known.low, value if known is None else known.high)
        for name, value, known in values
    ]
    draw_intervals(axes, intervals, unit, reference, reference_name)
    axes.tick_params(labelsize=8)
    axes.grid(axis="x", alpha=0.3)
    return figure_bytes(figure, "svg")
