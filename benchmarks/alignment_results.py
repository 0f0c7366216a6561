"""Train what docs/explanation/results.md shows of guided heads over several seeds, and write the table.

    python benchmarks/alignment_results.py DATA [--runs comparisons/alignment] [--seeds 3]

DATA: the folder of `regard data multi30k`. German to English in lower case, the default of `regard train
translation` with and without a guide: the links that eflomal finds in the training text (extra align). Error
rates are against its links of the validation text, of which a half chooses the heads, but for the first hundred
pairs; those stand apart, against the links of alignment.links, which were drawn by hand. BLEU is that of
test_2016_flickr, with beams of 5. The figures of every training are stored in
docs/dev/results/alignment-results.json, and trainings that are there are not repeated.

Hand-drawn links are of words between blanks. Sure are words that translate each other in their sentence, each
part of a compound with the whole; possible are those that belong to what is linked and have no counterpart (the
`are` of `are loading`), and free wordings.
"""

import argparse
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from markdown_tables import RESULTS, markdown, write_tables
from multi30k import best_validation, files, train
from stored_measurements import Flags, Results, key_of, measure_missing

from regard.data.parallel import ParallelText
from regard.data.word_alignment import WordAlignment, align_with_eflomal, format_moses, read_links
from regard.interpret.agreement import agreement
from regard.runs import TranslationRun

LANGUAGES = ("de", "en")
DRAWN = Path(__file__).with_name("alignment.links")
BY_HAND = 100
"""The first pairs of the validation text."""
GUIDED = ("decoder.layers.2.cross", 0)


def prepare(data: Path, runs: Path) -> tuple[Path, Path]:
    """Return eflomal's links of the training and of the validation text, found there or made."""
    text = files(data, LANGUAGES)
    made = runs / "train.links", runs / "valid.links"
    if not all(map(Path.exists, made)):
        pairs, valid = list(ParallelText(text["train"])), list(ParallelText(text["valid"]))
        runs.mkdir(parents=True, exist_ok=True)
        for path, some, others in ((made[1], valid, pairs), (made[0], pairs, valid)):
            path.write_text("".join(f"{format_moses(each)}\n" for each in align_with_eflomal(some, others)))
    return made


def measure(data: Path, runs: Path, job: Flags) -> dict[str, Any]:
    """Train, or go on, and say how well it aligns and translates."""
    flags = {**job, "guide": str(runs / "train.links")} if job["guide"] else {"seed": job["seed"]}
    return measure_run(train(data, runs, LANGUAGES, flags), data, runs / "valid.links")


def measure_run(run: TranslationRun, data: Path, silver: Path) -> dict[str, Any]:
    """Return the error rates (0 to 1) and BLEU of a run."""
    text = files(data, LANGUAGES)
    pairs = list(ParallelText(text["valid"]))
    known = read_links(silver, len(pairs))
    choice = run.choose_alignment(pairs[BY_HAND:], known[BY_HAND:])
    rates = {name: each.error_rate.mean for name, each in choice.found.items() if each.error_rate is not None}
    drawn = read_links(DRAWN, BY_HAND)
    by_hand = {way: _error(run, pairs[:BY_HAND], drawn, way) for way in ("head", "set", "all")}
    report = run.test(text["test"])
    return {
        "head": rates["best head"],
        "set": rates["set of heads"],
        "last layer": rates["last layer"],
        "guided": float(choice.error_rates[0, choice.heads.index(GUIDED)]),
        **{f"{way} by hand": error for way, error in by_hand.items()},
        "val_greedy": best_validation(run),
        "bleu_lowercase": report.quality.bleu_lowercase,
    }


def _error(run: TranslationRun, pairs: list[tuple[str, str]], known: list[WordAlignment], way: Any) -> float:
    found = agreement([frozenset(each.links) for each in run.align(pairs, by=way)], known).error_rate
    assert found is not None
    return found.mean


COLUMNS = {
    "last layer": "last layer's mean",
    "guided": "guided head",
    "head": "best head",
    "set": "set of heads",
    "head by hand": "best head, by hand",
    "set by hand": "set, by hand",
}


def table(results: Results, seeds: int) -> str:
    """Return a line with and one without a guide: mean, least and largest over the seeds."""
    body = []
    for guide in (False, True):
        keys = [key_of({"guide": guide, "seed": seed}) for seed in range(seeds)]
        rows = [results[key] for key in keys if key in results]
        if not rows:
            continue
        cells = [_cell([100 * row[name] for row in rows], "%") for name in COLUMNS]
        bleu = [_cell([row[name] for row in rows], "") for name in ("val_greedy", "bleu_lowercase")]
        body.append(["yes" if guide else "no", str(len(rows)), *cells, *bleu])
    return markdown(["guide", "seeds", *COLUMNS.values(), "BLEU, val, greedy", "BLEU, test"], body)


def _cell(values: list[float], unit: str) -> str:
    return f"{statistics.mean(values):.1f}{unit} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Train what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--runs", type=Path, default=Path("comparisons/alignment"), help="folder of runs")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    prepare(args.data, args.runs)
    jobs = [{"guide": guide, "seed": seed} for guide in (False, True) for seed in range(args.seeds)]
    work = partial(measure, args.data, args.runs)
    results = measure_missing(RESULTS / "alignment-results.json", work, jobs)
    write_tables({"guided alignment": table(results, args.seeds)})


if __name__ == "__main__":
    main()
