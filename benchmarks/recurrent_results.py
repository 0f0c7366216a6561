"""Train the models of docs/dev/results/recurrent.md over several seeds, and write its tables.

    python benchmarks/recurrent_results.py [--runs comparisons]

`regard.sweep` stores runs and measurements under --runs. Measured runs are not trained again, so an interrupted
program can be continued. Results are stored in docs/dev/results/recurrent-results.json.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markdown_tables import RESULTS, markdown, spread, write_tables

from regard.runs.loading import load
from regard.runs.sequence_run import PairRun
from regard.sweep.comparison import Comparison, Variant, compare
from regard.sweep.job import Measured

LENGTHS = [20, 50, 100, 200]
POOLINGS = ["last", "max", "mean", "attention"]
SCORES = ["dot", "scaled_dot", "general", "concat", "additive"]
PLACES: dict[str, dict[str, Any]] = {
    "to the output layer, current state (Luong)": {"context": "output", "query": "current"},
    "the same with input feeding": {"context": "output", "query": "current", "input_feeding": True},
    "to the output layer, previous state": {"context": "output", "query": "previous"},
    "into the cell, previous state (Bahdanau)": {"context": "cell", "query": "previous"},
    "both, previous state": {"context": "both", "query": "previous"},
}
"""Flags for the use of the context and for the state of the query, by variant."""
RECALL_SEEDS, SEEDS = 3, 5
LONGEST = 20
SAMPLES = 2000

Lines = list[dict[str, Any]]


def percent(share: float) -> str:
    """Format a fraction as a percentage with one decimal, or with two if one decimal would round to 100 %."""
    return f"{share:.2%}" if 0.995 < share < 1 else f"{share:.1%}"


def lines_of(comparison: Comparison, extra: Callable[[Variant, int, Measured], Mapping[str, Any]]) -> Lines:
    """Return all measurements as values that JSON can store."""
    return [
        {"task": comparison.task, **variant.varied, "seed": seed, **vars(measured), **extra(variant, seed, measured)}
        for variant in comparison.variants
        for seed, measured in enumerate(comparison.measured[variant.name])
    ]


def recall(runs: Path) -> Lines:
    """Train the pooling classifiers."""
    vary: dict[str, Sequence[Any]] = {"pooling": POOLINGS, "max_len": LENGTHS}
    return lines_of(compare("recall", vary, seeds=RECALL_SEEDS, savepath=runs), lambda *_: {})


def reverse(runs: Path) -> Lines:
    """Train on Reverse with each score and without attention; test on sequences of length 20."""
    comparison = compare("reverse", {"score": ["none", *SCORES]}, seeds=SEEDS, savepath=runs)

    def longest(variant: Variant, seed: int, measured: Measured) -> dict[str, float]:
        del measured
        run = load(comparison.folder / variant.name / f"seed-{seed}" / "reverse")
        assert isinstance(run, PairRun)
        return {"longest": run.test(samples=SAMPLES, sample_len=LONGEST, seed=seed).exact_match}

    return lines_of(comparison, longest)


def dates(runs: Path) -> Lines:
    """Train on Dates: all scores in the variants of both papers, two scores in all variants, and no attention."""
    lines: Lines = []
    for name, flags in PLACES.items():
        papers = name.endswith(("(Luong)", "(Bahdanau)"))
        scores = SCORES if papers else ["general", "additive"]
        vary = {"score": scores, **{flag: [value] for flag, value in flags.items()}}
        lines += lines_of(compare("dates", vary, seeds=SEEDS, savepath=runs), lambda *_, name=name: {"place": name})
    none = compare("dates", {"score": ["none"]}, seeds=SEEDS, savepath=runs)
    return lines + lines_of(none, lambda *_: {"place": "none"})


def select(lines: Lines, **wanted: Any) -> Lines:
    """Return the measurements whose fields have these values."""
    return [line for line in lines if all(line.get(name) == value for name, value in wanted.items())]


def recall_table(lines: Lines) -> str:
    """Table of exact match by length; one row for each kind of pooling."""
    body = []
    for pooling in POOLINGS:
        rows = [select(lines, task="recall", pooling=pooling, max_len=length) for length in LENGTHS]
        body.append([pooling, *(spread([row["exact_match"] for row in lines], percent) for lines in rows)])
    return markdown(["summary", *(f"length {length}" for length in LENGTHS)], body)


def recall_relevance_table(lines: Lines) -> str:
    """Table of the fraction of attention on the queried pair."""
    body = []
    for length in LENGTHS:
        rows = select(lines, task="recall", pooling="attention", max_len=length)
        body.append([str(length), percent(rows[0]["uniform"]), spread([row["relevance"] for row in rows], percent)])
    return markdown(["length", "uniform attention", "learned attention"], body)


def reverse_table(lines: Lines) -> str:
    """Table of exact match at length 20 and over all lengths, and alignment error; a row for each score."""
    body = []
    for score in ["none", *SCORES]:
        rows = select(lines, task="reverse", score=score)
        error = "" if score == "none" else spread([row["alignment_error"] for row in rows], percent)
        body.append(
            [score, *(spread([row[what] for row in rows], percent) for what in ("longest", "exact_match")), error]
        )
    return markdown(["score", f"length {LONGEST}", f"lengths 1 to {LONGEST}", "alignment error rate"], body)


def dates_table(lines: Lines) -> str:
    """Table of exact match on unseen dates; a row for each variant, a column for each score."""
    return _by_place(lines, "exact_match")


def alignment_table(lines: Lines) -> str:
    """Table of alignment error rates; a row for each variant, a column for each score."""
    return _by_place(lines, "alignment_error")


def _by_place(lines: Lines, quantity: str) -> str:
    body = []
    for place in [*PLACES, *(["none"] if quantity == "exact_match" else [])]:
        cells = []
        for score in SCORES:
            rows = select(lines, task="dates", place=place, score="none" if place == "none" else score)
            cells.append(spread([row[quantity] for row in rows], percent) if rows else "")
        body.append(["no attention", cells[0], *[""] * (len(SCORES) - 1)] if place == "none" else [place, *cells])
    return markdown(["context", *SCORES], body)


TABLES: dict[str, Callable[[Lines], str]] = {
    "recall": recall_table,
    "recall relevance": recall_relevance_table,
    "reverse": reverse_table,
    "dates": dates_table,
    "alignment": alignment_table,
}


def main() -> None:
    """Train the missing runs, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("comparisons"), help="folder of runs")
    args = parser.parse_args()
    lines = [line for measure in (dates, reverse, recall) for line in measure(args.runs)]
    (RESULTS / "recurrent-results.json").write_text(json.dumps(lines, indent=0) + "\n")
    write_tables({name: table(lines) for name, table in TABLES.items()})


if __name__ == "__main__":
    main()
