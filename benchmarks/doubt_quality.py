"""Measure the doubt of translations over several runs (seeds) of one direction.

    python benchmarks/doubt_quality.py RUN RUN RUN --test SOURCE TARGET [--unplanted FILE ...] [--pairs 500]

Each run is calibrated on the first pairs of its validation text. The tables show: planted faults in sentences of
that text that were not used for fitting; planted faults in the test text; sources of other files (one language or
kind of noise a file), whose translations are compared with those of the test text; the share of good test
translations with a warning, beside the share for which the threshold was set; and the share of warnings if a
growing share of the source words is replaced by random words of the corpus. Values are means over the runs, with
their range if there are several. `--first` uses only the first test pairs.
"""

import argparse
import json
import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from markdown_tables import markdown

import regard
from regard.data.parallel import ParallelText
from regard.data.prepare import read_pairs
from regard.statistics import auroc
from regard_lab.doubts.calibration import Origin
from regard_lab.doubts.doubt import Doubter
from regard_lab.doubts.faults import FAULTS, SOURCE_FAULTS, Planter

Pair = tuple[str, str]
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
        " ".join(draw.choice(words) if draw.random() < share else word for word in source.split()) for source in sources
    ]


def examine(run: Any, pairs: list[Pair], test: list[Pair], unplanted: list[Path]) -> dict[str, Any]:
    """Calibrate a run, and return all figures."""
    report = regard.calibrate_doubt(run, pairs, show=True)
    doubter = Doubter(run)
    sources, references = map(list, zip(*test, strict=True))
    texts: dict[Origin, list[str]] = {"translations": run.translate(sources), "references": references}
    figures: dict[str, Any] = {"validation": {}, "test": {}, "unplanted": {}, "alarms": {}, "noise": {}}
    for fault in report.faults:
        key = f"{fault.kind}, {fault.origin}"
        figures["validation"][key] = [fault.auroc, fault.log_probability_auroc, fault.found, fault.count]

    def judge(faulty: list[Pair], origin: Origin) -> tuple[list[float], list[float], float]:
        """Return log-odds, negative log-probabilities, and the share of warnings."""
        doubts = [doubt for doubt in doubter.measure(faulty, origin) if doubt is not None]
        surprises = [-score.per_token for score in run.score(faulty)]
        return [doubt.log_odds for doubt in doubts], surprises, float(np.mean([doubt.warned for doubt in doubts]))

    def compare(faulty: list[Pair], origin: Origin) -> list[float]:
        odds, surprises, warned = judge(faulty, origin)
        return [separation(odds, usual[origin][0]), separation(surprises, usual[origin][1]), warned, len(faulty)]

    usual = {origin: judge(list(zip(sources, good, strict=True)), origin) for origin, good in texts.items()}
    figures["alarms"] = {origin: good[2] for origin, good in usual.items()}
    for kind in FAULTS:
        for origin, good in texts.items():
            if kind in SOURCE_FAULTS:
                changed = Planter(sources, references, 1).plant(kind)
                rows = [index for index, source in changed.items() if run.too_long(source) is None][:200]
                faulty = [changed[index] for index in rows]
                answers = run.translate(faulty) if origin == "translations" else [good[index] for index in rows]
                found = list(zip(faulty, answers, strict=True))
            else:
                found = [(sources[index], text) for index, text in Planter(sources, good, 1).plant(kind).items()]
            if found:
                figures["test"][f"{kind}, {origin}"] = compare(found, origin)
    for path in unplanted:
        lines = [line for line in path.read_text().splitlines() if line and run.too_long(line) is None]
        figures["unplanted"][path.stem] = compare(list(zip(lines, run.translate(lines), strict=True)), "translations")
    words = [word for source, _ in pairs for word in source.split()]
    for share in NOISE:
        changed_sources = noisy(sources, share, words)
        doubts = doubter.measure(list(zip(changed_sources, run.translate(changed_sources), strict=True)))
        figures["noise"][str(share)] = float(np.mean([doubt.warned for doubt in doubts if doubt is not None]))
    return figures


def tables(runs: list[dict[str, Any]]) -> str:
    """Return all figures as Markdown tables."""
    head = ["AUROC", "log-probability", "found", "faults"]
    parts = []
    for part, title in (
        ("validation", "fault, planted in (validation text)"),
        ("test", "fault, planted in (test text)"),
        ("unplanted", "sources that were not planted"),
    ):
        body = []
        for key in runs[0][part]:
            rows = [figures[part][key] for figures in runs if key in figures[part]]
            own, alone, found, counts = zip(*rows, strict=True)
            body.append([key, _spread(own), _spread(alone), _share(found), f"{min(counts):,}"])
        parts.append(markdown([title, *head], body))
    alarms = [[origin, _share([figures["alarms"][origin] for figures in runs])] for origin in runs[0]["alarms"]]
    noise = [[share, _share([figures["noise"][share] for figures in runs])] for share in runs[0]["noise"]]
    parts.append(markdown(["good test translations", "with a warning"], alarms))
    parts.append(markdown(["share of source words replaced", "with a warning"], noise))
    return "\n\n".join(parts)


def _spread(values: Any) -> str:
    mean = f"{statistics.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f} to {max(values):.3f})"


def _share(values: Any) -> str:
    mean = f"{100 * statistics.mean(values):.1f} %"
    return mean if len(values) == 1 else f"{mean} ({100 * min(values):.1f} to {100 * max(values):.1f})"


def main() -> None:
    """Examine all runs, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="folders of translation runs")
    parser.add_argument("--test", nargs=2, type=Path, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--unplanted", nargs="*", type=Path, default=[], help="files of faulty sources")
    parser.add_argument("--first", type=int, default=1000, help="test pairs")
    parser.add_argument("--pairs", type=int, default=500, help="validation pairs for the calibration")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    flags = parser.parse_args()
    results = []
    for folder in flags.runs:
        run: Any = regard.load(folder)
        pairs = list(run.unseen(flags.pairs, 0))
        test = [pair for pair in read_pairs(ParallelText(tuple(flags.test)), "test") if run.too_long(pair[0]) is None]
        test = test[: flags.first]
        results.append(examine(run, pairs, test, flags.unplanted))
        print(folder, json.dumps(results[-1]), flush=True)
    if flags.json:
        flags.json.write_text(json.dumps(dict(zip(flags.runs, results, strict=True)), indent=1))
    print(tables(results))


if __name__ == "__main__":
    main()
