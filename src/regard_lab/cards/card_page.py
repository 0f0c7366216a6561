"""Cards as a page (HTML) and as a Markdown table with the overview picture."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from regard.attention.mechanism import Mechanism
from regard.errors import plural
from regard.io.writing import write_file
from regard.result import percent, signed, to_plain
from regard.statistics import Interval, describe_range
from regard.viz.report_page import Part, Plot, render_page
from regard_lab.cards.card import Card, ClaimResult
from regard_lab.cards.probe_training import BASELINE
from regard_lab.cards.probes import PROBES, card_probes


def points(value: float, *, signed: bool = False) -> str:
    """Return a share as a number of percentage points.

    >>> points(0.123, signed=True)
    '+12.3'
    """
    text = percent(value).removesuffix("%")
    return f"+{text}" if signed and not text.startswith("-") else text


def interval_text(interval: Interval, form: Callable[[float], str] = points) -> str:
    """Return a value and its interval.

    >>> interval_text(Interval(value=0.5, low=0.4, high=0.6))
    '50.0 (40.0 to 60.0)'
    """
    if interval.low is None or interval.high is None:
        return form(interval.value)
    return f"{form(interval.value)} ({form(interval.low)} to {form(interval.high)})"


signed_points = partial(points, signed=True)


def card_tables(card: Card, *, claims: bool = True) -> Group:
    """Return the tables of a card: scores, where weight goes, cost and, if `claims`, the claims."""
    scores = _table(
        f"{card.mechanism} beside softmax: correct outputs in % (regression: explained "
        f"variance), mean (range of the seeds)",
        *("probe", card.mechanism, "softmax"),
        f"difference (intervals hold for all {len(card.rows)} at once)",
        "",
    )
    for row in card.rows:
        shown = ("higher" if row.difference.value > 0 else "lower") if row.shown else ""
        values = interval_text(row.score), interval_text(row.softmax)
        scores.add_row(row.test, *values, interval_text(row.difference, signed_points), shown)
    scores.caption, scores.caption_justify = describe_range(card.seeds), "left"
    if position := Mechanism.parse(card.mechanism).position:
        scores.caption += f"\n{position} replaces the learned positions that softmax has"
    how = "" if card.normalized else "; rows do not sum to 1, so shares are of the absolute weights"
    shares = _table(
        f"Where weight goes, {card.mechanism} | softmax (mean over heads and seeds{how})",
        *("probe", "on relevant inputs, %", "best head, %", "on the first token, %", "entropy, nats"),
        "sum of a row",
    )
    for means in card.shares:
        shares.add_row(
            means.probe,
            *(
                "not known" if pair is None else f"{points(pair[0])} | {points(pair[1])}"
                for pair in (means.relevant, means.best, means.first)
            ),
            *(f"{pair[0]:.2f} | {pair[1]:.2f}" for pair in (means.entropy, means.total)),
        )
    cost = card.cost
    sentence = (
        f"Cost of a training step (text, one thread): {cost.ratio:.2f} times the time of softmax "
        f"({cost.milliseconds:.1f} ms and {cost.softmax_milliseconds:.1f} ms), "
        f"{cost.memory / cost.softmax_memory:.2f} times its memory for the backward pass "
        f"({cost.memory / 1e6:.1f} MB), {cost.parameters:,} parameters (softmax {cost.softmax_parameters:,})."
    )
    parts: list[RenderableType] = [scores, "", shares, "", sentence]
    if claims and card.claims:
        parts += ["", claim_table([card])]
    return Group(*parts)


def claim_table(cards: Sequence[Card]) -> Table:
    """Return the claims about the mechanisms of cards, with their verdicts."""
    table = _table("Claims of papers", "claim", "source", "expected", "difference", "smallest to see", "verdict")
    for result in all_claims(cards):
        claim = result.claim
        numbers = interval_text(result.interval, signed), smallest_text(result)
        table.add_row(f"{claim.name}: {claim.measured}", claim.source, claim.expected, *numbers, result.verdict)
    return table


def all_claims(cards: Sequence[Card]) -> list[ClaimResult]:
    return list({result.claim.name: result for card in cards for result in card.claims}.values())


def smallest_text(result: ClaimResult) -> str:
    return "" if result.smallest is None else f"{result.smallest:.3f}"


def overview_table(cards: Sequence[Card]) -> Table:
    """Return one row for each mechanism: the difference to softmax in each test."""
    table = _table(
        "Correct outputs minus softmax, in percentage points; *: the interval excludes zero",
        "mechanism",
        *(row.test for row in cards[0].rows),
    )
    for card in without_baseline(cards):
        table.add_row(card.mechanism, *(signed_points(row.difference.value) + "*" * row.shown for row in card.rows))
    return table


def without_baseline(cards: Sequence[Card]) -> Sequence[Card]:
    """Return the cards of other mechanisms than softmax, which are compared with softmax; all cards if there is
    no other."""
    return [card for card in cards if card.mechanism != BASELINE] or cards


def card_json(card: Card) -> dict[str, Any]:
    """Return all numbers of a card as plain values."""
    plain: dict[str, Any] = to_plain({name: value for name, value in vars(card).items() if name != "claims"})
    plain["claims"] = [
        {
            "claim": result.claim.name,
            "source": result.claim.source,
            "measured": result.claim.measured,
            "expected": result.claim.expected,
            "difference": to_plain(result.interval),
            "smallest": result.smallest,
            "seeds": result.seeds,
            "verdict": result.verdict,
        }
        for result in card.claims
    ]
    return plain


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")


# The overview picture: mechanisms x tests, the difference to softmax as a color.

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
    from regard.viz.figure import figure_bytes, new_figure  # matplotlib is slow to import

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
            value = row.difference.value
            text, weight = f"{round(100 * value):+d}" + "*" * row.shown, "bold" if row.shown else "normal"
            style: dict[str, Any] = {"ha": "center", "color": "white" if abs(value) > DARK_FROM else "black"}
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


METHOD = (
    "Each mechanism is trained beside softmax with the same data, the same initial values where parameters have "
    "the same shape, and the same training steps. Models have 2 layers, width 32 and 4 heads; a mechanism "
    "without positions has learned positions. Differences are paired by seed. "
    "Scores are fractions of correct outputs; for regression, the explained fraction of the "
    "variance. Results of models of this size "
    "need not hold for large models."
)


def write_page(cards: Sequence[Card], path: str | Path) -> Path:
    """Write a page with the picture and all tables, and return its path.

    Raises `MachineError` if the file cannot be written.
    """
    path, title = Path(path), f"Attention mechanism: {cards[0].mechanism}"
    parts: list[Part] = [
        METHOD,
        Plot(lambda: draw_overview(cards, "svg"), "Differences to softmax: rows are mechanisms, columns tests"),
        steps_note(cards[0]),
    ]
    if len(cards) == 1:
        parts.append(card_tables(cards[0]))
    else:
        title = f"{len(cards)} attention mechanisms"
        parts += [overview_table(cards), claim_table(cards)]
        parts += [card_tables(card, claims=False) for card in cards]
    parts += [f"{name}: {PROBES[name].summary}." for name in card_probes()]
    write_file(path, render_page(title, parts).encode())
    return path


def steps_note(card: Card) -> str:
    """Return a warning if the number of training steps is not that of the probes."""
    return "" if card.steps is None else f"All probes were trained for {plural(card.steps, 'step')} only."
