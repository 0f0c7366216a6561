"""Measure how often sentences about heads are wrong, on models whose circuit is known, and store the rates.

    python benchmarks/sentences.py --write
    python benchmarks/sentences.py --planted      # the planted models only, by kind

The models are the compiled programs, the traps, random programs, and planted models, each once. Programs that read the
same pieces are one family. One half of the families sets the thresholds: the smallest one of a grid at which at most
2 % of the sentences are wrong. Rates are those of the other half, as runs and as external models; kinds without a
threshold are tested on all models. Each family is also left out: the thresholds that are set on all others are tested
on it. Untrained models of the same sizes show how often nothing is claimed about a model that has learned nothing.
`--processes 2` halves the time; the numbers are the same each time."""

import argparse
import itertools
import json
import math
import multiprocessing
import pickle
import re
import sys
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from drawn_programs import EACH, MORE, PLANTED, drawn_model, planted_model
from known_modules import as_external
from sentence_claims import (
    MeasuredSentences,
    measure,
    measure_external,
    measure_planted,
    measure_reading,
    untrained_claims,
)

import regard.interpret
from regard.interpret.estimates import ERROR_FILE, EXTERNAL, TOGETHER
from regard.interpret.examination import RAISES
from regard.interpret.needs import Need
from regard.interpret.roles import ROLE_KINDS
from regard.statistics import count_interval, ratio_interval
from regard_lab.bench.known_models import KnownModel, compiled_model, trap_model
from regard_lab.programs.library import PROGRAMS
from regard_lab.programs.traps import TRAPS

DRAWN, LOSSES, PAIRS = 300, 30, 100
"""Numbers of random programs, of those of which losses are measured as well, and of more random encoder-decoders, of
which only sentences on relevant inputs and alignment are measured."""
FIRST_PAIR = 1000  # Number of the first of these
UNTRAINED_EVERY = 3
"""All tested models are also external models. Of every third model, an untrained model of the same size is examined."""
FOLDER = Path(tempfile.gettempdir()) / "regard-known-models"
"""Folder of trained models, which are trained once."""
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
VERDICTS = (*(verdict for verdict in get_args(Need) if verdict != "cannot be told"), TOGETHER)
"""Verdicts on heads; the last kind stands for all that name other heads."""
KINDS = (*VERDICTS, "alignment", *GRID)
BY_PLANTED = (*VERDICTS, *(f"{EXTERNAL}: {kind}" for kind in (*VERDICTS, RAISES)))
"""Kinds whose rates are those of planted models."""


def measure_planted_models(kind: str, folder: Path) -> list[MeasuredSentences]:
    """Return the sentences about the planted models of a kind, as runs and as external models."""
    results = []
    for number in range(MORE.get(kind, EACH)):
        known = planted_model(kind, number, folder)
        for subject in (None, as_external):
            result = replace(measure_planted(known, subject), program=f"{kind}-{number}", family=f"planted: {kind}")
            results.append(result)
        sys.stderr.write(f"{kind}-{number}: same {results[-1].verdicts == results[-2].verdicts}\n")
    return results


MODELS = len(PROGRAMS) + len(TRAPS) + DRAWN


def known_model(number: int) -> tuple[KnownModel, bool]:
    """Return one of `MODELS` models, and whether only sentences on attention are measured."""
    if number < len(PROGRAMS):
        return compiled_model(sorted(PROGRAMS)[number], 0), False
    if (number := number - len(PROGRAMS)) < len(TRAPS):
        return trap_model(sorted(TRAPS)[number], 0), False
    return drawn_model(number - len(TRAPS)), number - len(TRAPS) >= LOSSES


def _measure(task: tuple[str, int, str]) -> list[MeasuredSentences]:
    """Return the sentences about one model, or about the planted models of a kind."""
    torch.set_num_threads(1)
    kind, number, name = task
    if kind == "planted":
        return measure_planted_models(name, FOLDER)
    if kind == "pairs":
        return [measure_reading(drawn_model(number, "encoder-decoder"))]
    known, attention_only = known_model(number)
    measured = measure(known, attention_only=attention_only)
    return [measured, *([measure_external(known, as_external)] if is_tested(measured.family) else [])]


def measure_all(processes: int, *, planted: bool = False, keep: Path | None = None) -> list[MeasuredSentences]:
    """Return the sentences about planted models, or about all others. `keep`: file with the results of an earlier
    process that was stopped, which is continued."""
    tasks = [("planted", 0, kind) for kind in PLANTED] if planted else []
    if not planted:
        tasks += [("known", number, "") for number in range(MODELS)]
        tasks += [("pairs", number, "") for number in range(FIRST_PAIR, FIRST_PAIR + PAIRS)]
    results: dict[tuple[str, int, str], list[MeasuredSentences]] = {}
    if keep is not None and keep.exists():
        with keep.open("rb") as file, suppress(EOFError):
            while True:
                results.update([pickle.load(file)])
    waiting = [task for task in tasks if task not in results]
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for task, measured in zip(waiting, pool.map(_measure, waiting), strict=True):
            results[task] = measured
            if keep is not None:
                with keep.open("ab") as file:
                    pickle.dump((task, measured), file)
            sys.stderr.write(f"{len(results)} of {len(tasks)}: {measured[-1].program}\n")
    return [measured for task in tasks for measured in results[task]]


def is_tested(family: str) -> bool:
    """Return whether a family gives rates, not thresholds: about every second one, in an arbitrary order."""
    return zlib.crc32(family.encode()) % 2 == 1


def halves(results: Sequence[MeasuredSentences]) -> tuple[list[MeasuredSentences], list[MeasuredSentences]]:
    """Return the models that set thresholds, and those that are tested, also as external models."""
    setting = [result for result in results if not is_tested(result.family) and not result.prefix]
    return setting, [result for result in results if is_tested(result.family)]


def set_thresholds(results: Iterable[MeasuredSentences]) -> dict[str, float]:
    """Return for each kind the smallest threshold at which at most 2 % of the sentences are wrong; infinity if
    there is none, and minus infinity for kinds without thresholds."""
    results = [result for result in results if not result.prefix]
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
    kinds = [*KINDS, *(f"{EXTERNAL}: {kind}" for kind in KINDS)]
    thresholds |= {f"{EXTERNAL}: {kind}": value for kind, value in thresholds.items()}
    counts, facts, told = count_wrong(tested, thresholds), Counter[str](), Counter[str]()
    counts |= {kind: rows for kind, rows in count_wrong(results, thresholds).items() if _plain(kind) not in GRID}
    for result in results:
        for kind, is_told in result.told(thresholds):
            if _plain(kind) not in GRID or is_tested(result.family):
                facts[kind] += 1
                told[kind] += is_told
    rows: dict[str, dict[str, Any]] = {}
    for kind in kinds:
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
        }
    return rows


def leave_out(results: Sequence[MeasuredSentences]) -> dict[str, dict[str, list[int]]]:
    """Return by kind, for each family, how many sentences are said and wrong with the thresholds that are set on all
    other families."""
    families: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for family in sorted({result.family for result in results}):
        others = set_thresholds(result for result in results if result.family != family)
        others |= {f"{EXTERNAL}: {kind}": value for kind, value in others.items()}
        left_out = count_wrong((result for result in results if result.family == family), others)
        for kind, programs in left_out.items():
            families[kind][family] = programs.sum(0).tolist()
    return families


def report(
    results: Sequence[MeasuredSentences], untrained: Sequence[tuple[int, int]], stored: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of the file. `untrained`: for each untrained model, the number of heads, and of those of
    which anything is said. `stored`: the rows of kinds that are measured on planted models."""
    kinds, (_, tested) = tally(results), halves(results)
    kinds |= {kind: stored[kind] for kind in BY_PLANTED if kind in stored}
    programs: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for result in (result for result in tested if not result.prefix):
        for kind, rows in count_wrong([result], thresholds_of(kinds)).items():
            programs[result.program][kind] = rows.sum(0).tolist()
    return {
        "models": "compiled programs, traps and random programs; thresholds from one half, rates from the other",
        "compiled": len({result.program for result in results}),
        "heads": {
            "known": sum(result.heads for result in results),
            "tested": sum(result.heads for result in tested),
            "untrained": sum(heads for heads, _ in untrained),
            "untrained without a claim": sum(heads - claimed for heads, claimed in untrained),
        },
        "kinds": kinds,
        "families": leave_out(results),
        "programs": programs,
    }


def thresholds_of(kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the threshold of each kind from the content of the file."""
    return {
        kind: row["threshold"] if row["threshold"] is not None else math.inf if _plain(kind) in GRID else -math.inf
        for kind, row in kinds.items()
    }


def add_planted(content: dict[str, Any], planted: Sequence[MeasuredSentences]) -> dict[str, Any]:
    """Return the content of the file with the rates that planted models give."""
    rows, stored = tally(planted), thresholds_of(content["kinds"])
    thresholds = dict.fromkeys(rows, -math.inf) | stored
    thresholds |= {kind: thresholds[_plain(kind)] for kind in rows}
    counts, facts = count_wrong(planted, thresholds), [pair for result in planted for pair in result.told(thresholds)]
    for kind in BY_PLANTED:
        said, wrong = counts[kind].sum(0).tolist() if kind in counts else (0, 0)
        low, high = error_interval(counts[kind]) if said else (0.0, 1.0)
        told = [is_told for name, is_told in facts if name == kind]
        known: dict[str, Any] = {"tested": said, "wrong": wrong, "low": low, "high": high}
        known |= {"programs": len(counts.get(kind, ())), "true": len(told), "told": sum(told)}
        content["kinds"][kind] = known | {"threshold": content["kinds"].get(_plain(kind), rows[kind])["threshold"]}
    return content


def _plain(kind: str) -> str:
    return kind.removeprefix(f"{EXTERNAL}: ")


def print_planted(results: Sequence[MeasuredSentences], thresholds: Mapping[str, float]) -> None:
    """Print how many verdicts and other sentences are said and wrong, by kind of planted model and way to give it."""
    for family in dict.fromkeys(result.family for result in results):
        members = [result for result in results if result.family == family]
        same = sum(a.verdicts == b.verdicts for a, b in itertools.pairwise(members) if a.program == b.program)
        sys.stdout.write(f"{family}: the same verdicts for {same} of {len(members) // 2} models\n")
        for kind, rows in sorted(count_wrong(members, thresholds).items()):
            low, high = error_interval(rows)
            said, wrong = rows.sum(0).tolist()
            sys.stdout.write(f"    {kind}: {said} said, {wrong} wrong ({100 * low:.1f} to {100 * high:.1f} %)\n")


def main() -> None:
    """Measure the rates, print them, and with `--write` store them in the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="store the rates in the package")
    parser.add_argument(
        "--planted", action="store_true", help="measure the verdicts on planted models, as runs and as external models"
    )
    parser.add_argument("--keep", type=Path, help="file to keep results in; a measurement that stopped is continued")
    parser.add_argument("--processes", type=int, default=1, help="number of processes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = Path(regard.interpret.__file__).parent / ERROR_FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    results = measure_all(arguments.processes, planted=arguments.planted, keep=arguments.keep)
    if arguments.planted:
        missing = {kind: -math.inf for name in KINDS for kind in (name, f"{EXTERNAL}: {name}")}
        print_planted(results, missing | thresholds_of(content["kinds"]))
        content = add_planted(content, results)
    else:
        thresholds = thresholds_of(tally(results))
        models = (known_model(number)[0] for number in range(0, MODELS, UNTRAINED_EVERY))
        content = report(results, [untrained_claims(known, thresholds) for known in models], content["kinds"])
    sys.stdout.write(text := write_text(content))
    if arguments.write:
        path.write_text(text, encoding="utf-8")


def write_text(content: dict[str, Any]) -> str:
    """Return the content as JSON, with pairs of numbers in one line."""
    return re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", json.dumps(content, indent=1)) + "\n"


if __name__ == "__main__":
    main()
