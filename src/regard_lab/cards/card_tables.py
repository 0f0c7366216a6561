"""Cards as tables for a terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from regard.attention.mechanism import Mechanism
from regard.result import percent, signed, to_plain
from regard.statistics import Interval, describe_range
from regard_lab.cards.card import Card, without_baseline
from regard_lab.cards.claims import ClaimResult


def points(value: float, *, signed: bool = False) -> str:
    """Return a share as a number of percentage points.

    >>> points(0.123, signed=True)
    '+12.3'
    """
    text = percent(value).removesuffix("%")
    return f"+{text}" if signed and not text.startswith("-") else text


def interval_text(interval: Interval, *, signed: bool = False) -> str:
    """Return a share and its interval in percentage points.

    >>> interval_text(Interval(value=0.5, low=0.4, high=0.6))
    '50.0 (40.0 to 60.0)'
    """
    value = points(interval.value, signed=signed)
    if interval.low is None or interval.high is None:
        return value
    return f"{value} ({points(interval.low, signed=signed)} to {points(interval.high, signed=signed)})"


def card_tables(card: Card, *, claims: bool = True) -> Group:
    """Return the tables of a card: scores, where weight goes, cost and, if `claims`, the claims."""
    parts: list[RenderableType] = [score_table(card), "", share_table(card), "", cost_line(card)]
    if claims and card.claims:
        parts += ["", claim_table(card.claims)]
    return Group(*parts)


def score_table(card: Card) -> Table:
    """Return the scores of a mechanism and of softmax."""
    table = _table(
        f"{card.mechanism} beside softmax: correct outputs in % (regression: explained "
        f"variance), mean (range of the seeds)",
        "probe",
        card.mechanism,
        "softmax",
        f"difference (intervals hold for all {len(card.rows)} at once)",
        "",
    )
    for row in card.rows:
        shown = ("higher" if row.difference.value > 0 else "lower") if row.shown else ""
        table.add_row(
            row.test,
            interval_text(row.score),
            interval_text(row.softmax),
            interval_text(row.difference, signed=True),
            shown,
        )
    table.caption, table.caption_justify = describe_range(card.seeds), "left"
    if position := Mechanism.parse(card.mechanism).position:
        table.caption += f"\n{position} replaces the learned positions that softmax has"
    return table


def share_table(card: Card) -> Table:
    """Return where weight goes, for the mechanism and for softmax."""
    how = "" if card.normalized else "; rows do not sum to 1, so shares are of the absolute weights"
    table = _table(
        f"Where weight goes, {card.mechanism} | softmax (mean over heads and seeds{how})",
        "probe",
        "on relevant inputs, %",
        "best head, %",
        "on the first token, %",
        "entropy, nats",
        "sum of a row",
    )
    for shares in card.shares:
        table.add_row(
            shares.probe,
            *(
                "not known" if pair is None else f"{points(pair[0])} | {points(pair[1])}"
                for pair in (shares.relevant, shares.best, shares.first)
            ),
            *(f"{pair[0]:.2f} | {pair[1]:.2f}" for pair in (shares.entropy, shares.total)),
        )
    return table


def cost_line(card: Card) -> str:
    """Return the cost in one sentence."""
    cost = card.cost
    return (
        f"Cost of a training step (text, one thread): {cost.ratio:.2f} times the time of softmax "
        f"({cost.milliseconds:.1f} ms and {cost.softmax_milliseconds:.1f} ms), "
        f"{cost.memory / cost.softmax_memory:.2f} times its memory for the backward pass "
        f"({cost.memory / 1e6:.1f} MB), {cost.parameters:,} parameters (softmax {cost.softmax_parameters:,})."
    )


def claim_table(claims: Sequence[ClaimResult]) -> Table:
    """Return the claims with their verdicts."""
    table = _table("Claims of papers", "claim", "source", "expected", "difference", "smallest to see", "verdict")
    for result in claims:
        table.add_row(
            f"{result.claim.name}: {result.claim.measured}",
            result.claim.source,
            result.claim.expected,
            number_text(result.interval),
            "" if result.smallest is None else f"{result.smallest:.3f}",
            result.verdict,
        )
    return table


def overview_table(cards: Sequence[Card]) -> Table:
    """Return one row for each mechanism: the difference to softmax in each test."""
    table = _table(
        "Correct outputs minus softmax, in percentage points; *: the interval excludes zero",
        "mechanism",
        *(row.test for row in cards[0].rows),
    )
    for card in without_baseline(cards):
        table.add_row(
            card.mechanism,
            *(points(row.difference.value, signed=True) + "*" * row.shown for row in card.rows),
        )
    return table


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


def number_text(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return signed(interval.value)
    return f"{signed(interval.value)} ({signed(interval.low)} to {signed(interval.high)})"


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
