"""Write the tables of the bench and of the cards as Markdown, for pages of the documentation.

    python benchmarks/lab_pages.py cards [FILE]    docs/mechanisms/README.md, with overview.svg beside it
    python benchmarks/lab_pages.py bench [FILE]    tables of docs/explanation/which-explanation.md

Stored measurements of `regard card` and `regard bench` are used again. All cards take an estimated 4 to 5 hours
of CPU time, the bench about 70 minutes.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from markdown_tables import markdown_table

from regard.io import write_file
from regard.result import signed
from regard.sweep.backends import Local
from regard.viz.figure import figure_bytes
from regard_lab.bench.bench import BenchResult, bench, score_text
from regard_lab.bench.rankings import FAILURE, KNOWN_INPUTS, ORACLE, RANDOM, RIGHT
from regard_lab.cards.card import (
    MECHANISMS,
    METHOD,
    SAVEPATH,
    SEEDS,
    Card,
    all_claims,
    difference_note,
    draw_overview,
    interval_text,
    measure_cards,
    signed_points,
    steps_note,
    without_baseline,
)
from regard_lab.cards.probes import PROBES, card_probes

PICTURE = "overview.svg"
"""File name of the picture beside the page of the cards."""


def write_cards(cards: Sequence[Card], path: str | Path) -> list[Path]:
    """Write a Markdown file with the picture, scores, costs and claims, and return the paths of both files."""
    path = Path(path)
    tests = [row.test for row in cards[0].rows]
    scores = [
        ["softmax: correct, %, mean (range of the seeds)", *(interval_text(row.softmax) for row in cards[0].rows)]
    ]
    costs = []
    for card in without_baseline(cards):
        differences = [signed_points(row.difference.value) + "\\*" * row.shown for row in card.rows]
        scores.append([card.mechanism, *differences])
        memory = f"{card.cost.memory / card.cost.softmax_memory:.2f}"
        sums = "yes" if card.normalized else "no"
        costs.append([card.mechanism, f"{card.cost.ratio:.2f}", memory, f"{card.cost.parameters:,}", sums])
    claims = [
        [
            f"{result.claim.name} ({result.claim.source})",
            f"{result.claim.measured}; expected {result.claim.expected}",
            interval_text(result.interval, signed),
            "" if result.smallest is None else f"{result.smallest:.3f}",
            result.describe(),
        ]
        for result in all_claims(cards)
    ]
    parts = [
        "# Attention mechanisms beside softmax",
        "At the end, you know which mechanisms differ from softmax in small models, and on which tasks. "
        f"Written by `python benchmarks/lab_pages.py cards`, with {cards[0].seeds} seeds. {METHOD}",
        steps_note(cards[0]),
        f"![Differences to softmax]({PICTURE})",
        "## Correct outputs minus softmax, in percentage points",
        f"Median over seeds. \\*: the interval of the median difference (sign test) excludes zero, for all "
        f"{len(tests)} tests of a mechanism at once. {difference_note(cards[0])}",
        markdown_table(["mechanism", *tests], scores),
        "## Claims of papers",
        "Median differences; intervals (sign test) hold for all claims at once and for every distribution. *Smallest* "
        "is the smallest median whose interval would exclude zero. Shares of weight use absolute "
        "weights, divided by their sum.",
        markdown_table(["claim", "measured", "difference", "smallest", "verdict"], claims),
        "## Cost of a training step (text, one thread)",
        markdown_table(
            [
                *("mechanism", "time, softmax = 1", "memory for the backward pass, softmax = 1"),
                *("parameters", "rows sum to 1"),
            ],
            costs,
        ),
        "## Probes",
        "\n".join(f"- {name}: {PROBES[name].summary}" for name in card_probes()),
    ]
    picture = path.parent / PICTURE
    write_file(picture, figure_bytes(draw_overview(cards), "svg"))
    write_file(path, ("\n\n".join(filter(None, parts)) + "\n").encode())
    return [path, picture]


def write_bench(result: BenchResult, path: str | Path) -> Path:
    """Write the means over each kind of models, the best method first, and the worst and the best method on each
    trap as Markdown tables. Return the path."""
    parts = [f"{result.summary()}."]
    for level, truth in dict.fromkeys((group.level, group.truth) for group in result.groups):
        groups = [group for group in result.groups if (group.level, group.truth) == (level, truth)]
        rows = {method: [group.entries.get(method) for group in groups] for method in result.methods}
        means = {method: [entry.mean for entry in row if entry is not None] for method, row in rows.items()}
        ranked = sorted(
            (method for method in rows if means[method] and method != ORACLE), key=lambda m: -fmean(means[m])
        )
        cells = [
            [
                f"`{method}`",
                *(score_text(entry, group.models) for entry, group in zip(rows[method], groups, strict=True)),
            ]
            for method in ranked
        ]
        names = [f"{group.kind} ({group.models})" for group in groups]
        parts += [f"## {level}: {truth}", markdown_table(["method", *names], cells)]
    if traps := _trap_rows(result):
        parts += ["## traps", markdown_table(["trap", "fooled", "right"], traps)]
    write_file(Path(path), ("\n\n".join(parts) + "\n").encode())
    return Path(path)


def _trap_rows(result: BenchResult) -> list[list[str]]:
    """Return the worst and the best method for each trap and kind of truth on which a method fails."""
    rows = []
    for column in result.columns:
        scores = {name: entry.mean for name, entry in column.entries.items() if name not in (ORACLE, RANDOM)}
        if column.kind == "trap" and min(scores.values(), default=1.0) < FAILURE:
            ends = (min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__))
            right = f"`{ends[1]}` {scores[ends[1]]:.2f}" if scores[ends[1]] >= RIGHT else "no measured method"
            name = f"{column.name}, {column.level}" + ("" if column.truth == KNOWN_INPUTS else f" {column.truth}")
            rows.append([name, f"`{ends[0]}` {scores[ends[0]]:.2f}", right])
    return rows


if __name__ == "__main__":
    kind, *files = sys.argv[1:]
    path = Path(*files) if files else Path(f"{kind}.md")
    if kind == "cards":
        measured = measure_cards(MECHANISMS, seeds=SEEDS, steps=None, savepath=Path(SAVEPATH), on=Local())
        print(*write_cards(measured, path))
    else:
        print(write_bench(bench(models="all", quick=True), path))
