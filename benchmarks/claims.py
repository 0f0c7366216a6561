"""Test the claims of cards with seeds 0 to 9 and again with seeds 10 to 19, and print the tables of docs/dev/claims.md.

    python benchmarks/claims.py [--measure]

Without --measure, only stored results of `regard card` (runs/cards) are used, and claims without them are named. With
it, missing results are trained: an estimated 50 minutes of CPU time for each ten seeds.
"""

import sys
from pathlib import Path

from markdown_tables import markdown_table

from regard.result import signed
from regard_lab.cards.card import CLAIMS, SAVEPATH, SEEDS, Claim, ClaimResult, evaluate_claims, interval_text
from regard_lab.cards.cells import CardCell, ProbeResult, measure_cell


def test_claim(claim: Claim, first: int, folder: Path, *, measure: bool) -> ClaimResult | None:
    """Return the outcome over `SEEDS` seeds from `first` on; None if results are missing."""
    results: dict[tuple[str, str], list[ProbeResult]] = {}
    for pair in claim.measurements:
        cells = [CardCell(*pair, seed, folder) for seed in range(first, first + SEEDS)]
        known = [cell.read() or (measure_cell(cell) if measure else None) for cell in cells]
        results[pair] = [result for result in known if result is not None]
        if len(results[pair]) < SEEDS:
            return None
    return evaluate_claims(results, [claim], of=len(CLAIMS))[0]


def tables(folder: Path, *, measure: bool) -> str:
    lines, again, missing, equal = [], [], [], 0
    for claim in CLAIMS:
        first, second = (test_claim(claim, begin, folder, measure=measure) for begin in (0, SEEDS))
        conditions = "; ".join(condition.text for condition in claim.conditions)
        if first is None:
            missing.append(f"- {claim.name}. Condition: {conditions}.")
            continue
        lines.append([claim.name, conditions, interval_text(first.interval, signed), first.describe()])
        if second is not None:
            again.append([claim.name, first.verdict, interval_text(second.interval, signed), second.verdict])
            equal += first.verdict == second.verdict
    parts = [
        markdown_table(["claim", "condition", "median difference (interval)", "verdict"], lines),
        f"{equal} of {len(again)} verdicts are the same with seeds {SEEDS} to {2 * SEEDS - 1}.",
        markdown_table(["claim", f"seeds 0 to {SEEDS - 1}", "median difference of the others", "their verdict"], again),
        "Not measured yet:",
        "\n".join(missing),
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(tables(Path(SAVEPATH), measure="--measure" in sys.argv))
