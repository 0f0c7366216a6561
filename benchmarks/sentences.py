"""Measure how often sentences about heads are wrong, on models whose circuit is known, and store the rates.

    python benchmarks/sentences.py --write

The models are the compiled programs, the traps and random programs, each once. Every second name in alphabetical
order sets the thresholds: the smallest one of a grid at which at most 2 % of the sentences are wrong. Rates are
those of the other half. For each family of models, a threshold is also set on all other families, and tested
on this family. Untrained models of the same sizes show how often nothing is claimed about a model that has
learned nothing. A run takes about ten minutes on one core, and gives the same numbers each time."""

import argparse
import itertools
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drawn_programs import drawn_model
from sentence_claims import MeasuredSentences, measure, measure_reading, untrained_claims

import regard.interpret
from regard.interpret.estimates import ERROR_FILE
from regard.interpret.examination import RAISES
from regard.interpret.roles import ROLE_KINDS
from regard.statistics import count_interval, ratio_interval
from regard_lab.bench.known_models import KnownModel, compiled_model, trap_model
from regard_lab.programs.library import PROGRAMS
from regard_lab.programs.traps import TRAPS

DRAWN, INDUCTION, PAIRS = 60, 90, 130
"""Numbers of random programs, of random programs with induction heads of which only attention is measured, and of
random encoder-decoders of which only sentences on relevant inputs and alignment are measured."""
FIRST_INDUCTION = 301
"""Number of the first of these programs; odd numbers have induction heads."""
UNTRAINED_EVERY = 3
"""Of every third model, an untrained model of the same size is examined."""
MOST = 0.02
"""Largest share of wrong sentences in the half that sets a threshold. The other half may have 5 %."""
GRID: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(ROLE_KINDS, (0.5, 0.6, 0.7, 0.8)),
    "relevant inputs": (0.0, 0.01, 0.02, 0.05, 0.1, 0.2),
    "explains the answer": (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4),
    "fixed positions": (0.9, 0.95, 0.99),
    RAISES: (0.0, 1e-4, 1e-3, 1e-2),
}
"""Thresholds by kind of sentence. All other kinds have none."""
KINDS = (*("needed", "not needed", "replace each other", "cancel each other", "alignment"), *GRID)


def known_models() -> Iterator[tuple[KnownModel, bool]]:
    """Yield all models, and whether only sentences on attention are measured."""
    for name in sorted(PROGRAMS):
        yield compiled_model(name, 0), False
    for name in sorted(TRAPS):
        yield trap_model(name, 0), False
    for number in range(DRAWN):
        yield drawn_model(number), number % 2 == 1
    for number in range(INDUCTION):
        yield drawn_model(FIRST_INDUCTION + 2 * number, "decoder-only"), True


def measure_all() -> list[MeasuredSentences]:
    """Return the sentences about all models."""
    results = []
    for number, (known, attention_only) in enumerate(known_models()):
        results.append(measure(known, attention_only=attention_only))
        sys.stderr.write(f"{number}: {known.name}, {results[-1].heads} heads\n")
    for number in range(DRAWN, DRAWN + PAIRS):
        results.append(measure_reading(drawn_model(number, "encoder-decoder")))
    return results


def halves(results: Sequence[MeasuredSentences]) -> tuple[list[MeasuredSentences], list[MeasuredSentences]]:
    """Return the models that set thresholds, and those that are tested: every second one by name."""
    ordered = sorted(results, key=lambda result: (result.program, result.family))
    return ordered[::2], ordered[1::2]


def set_thresholds(results: Iterable[MeasuredSentences]) -> dict[str, float]:
    """Return for each kind the smallest threshold at which at most 2 % of the sentences are wrong; infinity if
    there is none, and minus infinity for kinds without thresholds."""
    results = list(results)
    thresholds = dict.fromkeys(KINDS, -np.inf) | dict.fromkeys(GRID, np.inf)
    for step in reversed(range(max(map(len, GRID.values())))):
        tried = thresholds | {kind: grid[step] for kind, grid in GRID.items() if step < len(grid)}
        said, wrong = Counter[str](), Counter[str]()
        for result in results:
            for claim in result.outcomes(tried):
                said[claim.kind] += 1
                wrong[claim.kind] += not claim.right
        for kind in GRID:
            if said[kind] and wrong[kind] <= MOST * said[kind]:
                thresholds[kind] = tried[kind]
    return thresholds


def count_wrong(results: Iterable[MeasuredSentences], thresholds: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Return by kind, for each program, the numbers of sentences that are said and wrong, (programs, 2)."""
    counts: dict[str, dict[str, np.ndarray]] = defaultdict(lambda: defaultdict(lambda: np.zeros(2, dtype=int)))
    for result in results:
        for claim in result.outcomes(thresholds):
            counts[claim.kind][result.program] += (1, not claim.right)
    return {kind: np.stack([*programs.values()]) for kind, programs in counts.items()}


def error_interval(counts: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of an error rate, from the counts (programs, 2) of `count_wrong`.

    Wrong sentences of one program depend on each other, so the interval is that of counts by program. Without
    wrong sentences, their dependence is unknown, and all sentences count.
    """
    said, wrong = counts.sum(0).tolist()
    interval = ratio_interval(counts[:, 1], counts[:, 0]) if 0 < wrong < said else None
    interval = interval or count_interval(wrong, said)
    assert interval.low is not None and interval.high is not None
    return round(interval.low, 4), round(interval.high, 4)


def tally(results: Sequence[MeasuredSentences]) -> dict[str, dict[str, Any]]:
    """Return the content of the file by kind: rates on the tested half, and on each family left out."""
    setting, tested = halves(results)
    thresholds = set_thresholds(setting)
    counts, facts, told = count_wrong(tested, thresholds), Counter[str](), Counter[str]()
    for result in tested:
        for kind, is_told in result.told(thresholds):
            facts[kind] += 1
            told[kind] += is_told
    families: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for family in sorted({result.family for result in results}):
        others = set_thresholds(result for result in results if result.family != family)
        left_out = count_wrong((result for result in results if result.family == family), others)
        for kind, programs in left_out.items():
            families[kind][family] = programs.sum(0).tolist()
    rows: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        said, wrong = counts[kind].sum(0).tolist() if kind in counts else (0, 0)
        low, high = error_interval(counts[kind]) if said else (0.0, 1.0)
        rows[kind] = {
            "tested": said,
            "wrong": wrong,
            "low": low,
            "high": high,
            "programs": len(counts.get(kind, ())),
            "true": facts[kind],
            "told": told[kind],
            "threshold": thresholds[kind] if np.isfinite(thresholds[kind]) else None,
            "families": families[kind],
        }
    return rows


def report(results: Sequence[MeasuredSentences], untrained: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the content of the file. `untrained`: for each untrained model, the number of heads, and of those of
    which anything is said."""
    kinds, (_, tested) = tally(results), halves(results)
    programs: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for result in tested:
        for kind, rows in count_wrong([result], thresholds_of(kinds)).items():
            before = programs[result.program].get(kind, [0, 0])
            programs[result.program][kind] = (rows.sum(0) + before).tolist()
    return {
        "models": "compiled programs, traps and random programs; thresholds from one half, rates from the other",
        "heads": {
            "known": sum(result.heads for result in results),
            "tested": sum(result.heads for result in tested),
            "untrained": sum(heads for heads, _ in untrained),
            "untrained without a claim": sum(heads - claimed for heads, claimed in untrained),
        },
        "kinds": kinds,
        "programs": programs,
    }


def thresholds_of(kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the threshold of each kind from the content of the file."""
    return {
        kind: row["threshold"] if row["threshold"] is not None else math.inf if kind in GRID else -math.inf
        for kind, row in kinds.items()
    }


def main() -> None:
    """Measure the rates, print them, and with `--write` store them in the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="store the rates in the package")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = measure_all()
    thresholds = thresholds_of(tally(results))
    models = itertools.islice(known_models(), None, None, UNTRAINED_EVERY)
    content = report(results, [untrained_claims(known, thresholds) for known, _ in models])
    text = write_text(content)
    sys.stdout.write(text)
    if arguments.write:
        path = Path(regard.interpret.__file__).parent / ERROR_FILE
        path.write_text(text, encoding="utf-8")


def write_text(content: dict[str, Any]) -> str:
    """Return the content as JSON, with pairs of numbers in one line."""
    return re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", json.dumps(content, indent=1)) + "\n"


if __name__ == "__main__":
    main()
