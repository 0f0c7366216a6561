"""Measure the doubt of translations over several runs (seeds) of one direction.

    python benchmarks/doubt_quality.py RUN RUN RUN --test SOURCE TARGET [--pairs 500] [--json FILE]

Each run is calibrated on the first pairs of its validation text. The tables show: planted faults in sentences of
that text that were not used for fitting; planted faults in the test text; the share of good test translations
with a warning, beside the share for which the threshold was set; and the share of warnings if a growing share of
the source words is replaced by random words of the corpus. Values are means over the runs, with their range.
"""

import argparse
import json
import random
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from markdown_tables import markdown

import regard
from regard.data.parallel import ParallelText
from regard.data.prepare import read_pairs
from regard.doubts.faults import FAULTS, plant
from regard.doubts.sentence_doubt import Doubter
from regard.statistics import auroc

NOISE = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares of the source words that are replaced."""


def separation(faults: list[float], good: list[float]) -> float:
    """Return the probability that a fault has a larger value than a good translation."""
    area = auroc(np.array(faults + good), np.arange(len(faults) + len(good)) < len(faults))
    assert area is not None
    return area


def noisy(sources: list[str], share: float, words: list[str]) -> list[str]:
    """Replace a share of the words of each source by random words."""
    draw = random.Random(0)
    return [
        " ".join(draw.choice(words) if draw.random() < share else word for word in source.split())
        for source in sources
    ]


def examine(run: Any, pairs: list[tuple[str, str]], test: list[tuple[str, str]]) -> dict[str, Any]:
    """Calibrate a run, and return all figures."""
    report = regard.calibrate_doubt(run, pairs, show=True)
    doubter = Doubter(run)
    sources = [source for source, _ in test]
    texts = {"translations": run.translate(sources), "references": [target for _, target in test]}
    figures: dict[str, Any] = {"validation": {}, "test": {}, "alarms": {}, "noise": {}}
    for fault in report.faults:
        key = f"{fault.kind}, {fault.origin}"
        gain = [fault.gain.value, fault.gain.low, fault.gain.high]
        figures["validation"][key] = [fault.auroc, fault.log_probability_auroc, fault.found, *gain]
    for origin, good in texts.items():
        judged = doubter.measure(list(zip(sources, good, strict=True)), origin)
        usual = [doubt.log_odds for doubt in judged if doubt is not None]
        figures["alarms"][origin] = float(np.mean([doubt.warned for doubt in judged if doubt is not None]))
        for kind in FAULTS:
            faulty = plant(kind, sources, good, 1)
            found = doubter.measure([(sources[index], text) for index, text in faulty.items()], origin)
            odds = [doubt.log_odds for doubt in found if doubt is not None]
            warned = float(np.mean([doubt.warned for doubt in found if doubt is not None]))
            figures["test"][f"{kind}, {origin}"] = [separation(odds, usual), warned]
    words = [word for source, _ in pairs for word in source.split()]
    for share in NOISE:
        changed = noisy(sources, share, words)
        doubts = doubter.measure(list(zip(changed, run.translate(changed), strict=True)))
        figures["noise"][str(share)] = float(np.mean([doubt.warned for doubt in doubts if doubt is not None]))
    return figures


def tables(runs: list[dict[str, Any]]) -> str:
    """Return all figures as Markdown tables."""
    validation, test = defaultdict(list), defaultdict(list)
    for figures in runs:
        for key, values in figures["validation"].items():
            validation[key].append(values)
        for key, values in figures["test"].items():
            test[key].append(values)
    body = []
    for key, rows in validation.items():
        columns = list(zip(*rows, strict=True))
        better = sum(low > 0 for low in columns[4])
        own = list(zip(*test[key], strict=True)) if key in test else [[float("nan")]] * 2
        cells = [_spread(columns[0]), _spread(columns[1]), f"{better} of {len(rows)}", _share(columns[2])]
        body.append([key, *cells, _spread(own[0]), _share(own[1])])
    head = ["fault, planted in", "AUROC", "log-probability", "better in", "found", "AUROC, test", "found, test"]
    alarms = [[origin, _share([figures["alarms"][origin] for figures in runs])] for origin in runs[0]["alarms"]]
    noise = [[share, _share([figures["noise"][share] for figures in runs])] for share in runs[0]["noise"]]
    return "\n\n".join(
        [
            markdown(head, body),
            markdown(["good test translations", "with a warning"], alarms),
            markdown(["share of source words replaced", "with a warning"], noise),
        ]
    )


def _spread(values: Any) -> str:
    return f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def _share(values: Any) -> str:
    return f"{100 * statistics.mean(values):.1f} % ({100 * min(values):.1f} to {100 * max(values):.1f})"


def main() -> None:
    """Examine all runs, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="folders of translation runs")
    parser.add_argument("--test", nargs=2, type=Path, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--pairs", type=int, default=500, help="validation pairs for the calibration")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    flags = parser.parse_args()
    results = []
    for folder in flags.runs:
        run: Any = regard.load(folder)
        pairs = list(run.unseen(flags.pairs, 0))
        test = run.short_enough(read_pairs(ParallelText(tuple(flags.test)), "test"))
        results.append(examine(run, pairs, test))
        print(folder, json.dumps(results[-1]), flush=True)
    if flags.json:
        flags.json.write_text(json.dumps(dict(zip(flags.runs, results, strict=True)), indent=1))
    print(tables(results))


if __name__ == "__main__":
    main()
