"""Train the models with guided heads of docs/explanation/results.md over several seeds, and write the table.

    python benchmarks/alignment_results.py DATA [--runs comparisons/alignment] [--seeds 3]

DATA is the folder that `regard data multi30k` creates. The models translate German to English in lower case.
All runs use the defaults of `regard train translation`, with and without guided alignment. The guide is
eflomal's alignment of the training text (extra align). Half of the validation text, except its first hundred
pairs, selects the heads. Error rates are measured on the other half against eflomal's links. The first hundred
pairs are reported separately, against the manual links of alignment.links. BLEU is measured on test_2016_flickr
with a beam of 5. Results are stored in docs/dev/results/alignment-results.json, and stored runs are not trained
again.

The manual links connect words. Spaces separate the words. Sure links connect words that translate each other in
their sentence, and each part of a compound with the whole. Possible links connect free translations. Possible
links also connect a word without a counterpart with the translation of its phrase (the `are` of `are loading`).
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
from regard.interpret.alignment import agreement
from regard.runs.sequence_run import TranslationRun

LANGUAGES = ("de", "en")
MANUAL_LINKS = Path(__file__).with_name("alignment.links")
MANUAL_PAIRS = 100
"""The first pairs of the validation text."""
GUIDED = ("decoder.layers.2.cross", 0)


def prepare(data: Path, runs: Path) -> tuple[Path, Path]:
    """Return the files with eflomal's links for the training and validation text; create missing files."""
    text = files(data, LANGUAGES)
    paths = runs / "train.links", runs / "valid.links"
    if not all(map(Path.exists, paths)):
        pairs, valid = list(ParallelText(text["train"])), list(ParallelText(text["valid"]))
        runs.mkdir(parents=True, exist_ok=True)
        for path, aligned, others in ((paths[1], valid, pairs), (paths[0], pairs, valid)):
            path.write_text(
                "".join(f"{format_moses(alignment)}\n" for alignment in align_with_eflomal(aligned, others))
            )
    return paths


def measure(data: Path, runs: Path, job: Flags) -> dict[str, Any]:
    """Train a model, or continue its training, and measure alignment error and BLEU."""
    flags = {**job, "guide": str(runs / "train.links")} if job["guide"] else {"seed": job["seed"]}
    return measure_run(train(data, runs, LANGUAGES, flags), data, runs / "valid.links")


def measure_run(run: TranslationRun, data: Path, links: Path) -> dict[str, Any]:
    """Return the alignment error rates (0 to 1) and BLEU of a run."""
    text = files(data, LANGUAGES)
    pairs = list(ParallelText(text["valid"]))
    reference = read_links(links, len(pairs))
    choice = run.choose_alignment(pairs[MANUAL_PAIRS:], reference[MANUAL_PAIRS:])
    rates = {name: result.error_rate.mean for name, result in choice.found.items() if result.error_rate is not None}
    manual = read_links(MANUAL_LINKS, MANUAL_PAIRS)
    manual_rates = {way: _error(run, pairs[:MANUAL_PAIRS], manual, way) for way in ("head", "set", "all")}
    report = run.test(text["test"])
    return {
        "head": rates["best head"],
        "set": rates["set of heads"],
        "last layer": rates["last layer"],
        "guided": float(choice.error_rates[0, choice.heads.index(GUIDED)]),
        **{f"{way} by hand": error for way, error in manual_rates.items()},
        "val_greedy": best_validation(run),
        "bleu_lowercase": report.quality.bleu_lowercase,
    }


def _error(run: TranslationRun, pairs: list[tuple[str, str]], reference: list[WordAlignment], way: Any) -> float:
    rate = agreement([frozenset(alignment.links) for alignment in run.align(pairs, by=way)], reference).error_rate
    assert rate is not None
    return rate.mean


COLUMNS = {
    "last layer": "last layer's mean",
    "guided": "guided head",
    "head": "best head",
    "set": "set of heads",
    "head by hand": "best head, by hand",
    "set by hand": "set, by hand",
}


def table(results: Results, seeds: int) -> str:
    """Return a row with guided alignment and a row without, with mean, minimum and maximum over the seeds."""
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
    """Train the missing runs, and write the table."""
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
