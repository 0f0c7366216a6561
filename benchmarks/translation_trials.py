"""Measure the effect of single settings on translation with a small corpus, and write the table.

    python benchmarks/translation_trials.py DATA [--runs comparisons/trials] [--steps 3000]

DATA is the folder that `regard data multi30k` creates. The models translate English to German in lower case,
with one seed and one core per training run. BLEU is measured on val with greedy search; the table in
docs/dev/results/translation.md shows the best validation of each training run. Results in
docs/dev/results/translation-trials.json are not measured again, and interrupted training runs continue.
"""

import argparse
from functools import partial
from pathlib import Path

from markdown_tables import RESULTS, markdown, write_tables
from multi30k import best_validation, train
from stored_measurements import Flags, Results, key_of, measure_missing

BASE: Flags = {"positions": "sinusoidal", "dropout": 0.3}
"""The defaults at the time of the first trial."""
TRIALS: dict[str, Flags] = {
    "**sinusoidal positions, dropout 0.3**": {},
    "another seed": {"seed": 1},
    "encoder of 6 layers, decoder of 2": {"enc_layers": 6, "dec_layers": 2},
    "float32": {"precision": "float32"},
    "no average of the parameters": {"average": 0.0},
    "label smoothing 0": {"label_smoothing": 0.0},
    "dropout 0.2": {"dropout": 0.2},
    "8000 subwords": {"vocab_size": 8000},
    "unigram subwords": {"tokenizer": "unigram"},
    "merges dropped (0.1)": {"merge_dropout": 0.1},
    "post-norm": {"pre_norm": False},
    "inverse square root of the step": {"schedule": "inverse_sqrt"},
    "rotary positions": {"positions": "rotary"},
    "rotary positions and dropout 0.2": {"positions": "rotary", "dropout": 0.2},
    "the same, another seed": {"positions": "rotary", "dropout": 0.2, "seed": 1},
    "16,000 subwords": {"vocab_size": 16_000},
    "a vocabulary for each language, 12,000 subwords each": {"joint": False},
    "label smoothing 0.2": {"label_smoothing": 0.2},
    "rate 0.005": {"lr": 0.005},
}
"""The changes of `BASE` by trial, in the order of training; "another seed" shows the random variation."""


def measure(data: Path, runs: Path, flags: Flags) -> dict[str, float]:
    """Train or continue a trial, and return the best BLEU on val."""
    return {"bleu": best_validation(train(data, runs, ("en", "de"), BASE | flags))}


def main() -> None:
    """Train the missing runs, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--runs", type=Path, default=Path("comparisons/trials"), help="folder of runs")
    parser.add_argument("--steps", type=int, default=3000, help="training steps (default: 3000)")
    args = parser.parse_args()
    trials = {name: {**flags, "steps": args.steps} for name, flags in TRIALS.items()}
    work = partial(measure, args.data, args.runs)
    results = measure_missing(RESULTS / "translation-trials.json", work, list(trials.values()))
    write_tables({"translation trials": table(results, trials)})


def table(results: Results, trials: dict[str, Flags]) -> str:
    """Return a row for each measured trial, with the difference from the first row."""
    keys = {name: key_of(flags) for name, flags in trials.items()}
    scores = {name: results[key]["bleu"] for name, key in keys.items() if key in results}
    base = next(iter(scores.values()))
    body = [[name, f"{score:.1f}", f"{score - base:+z.1f}"] for name, score in scores.items()]
    return markdown(["trial", "BLEU", "change"], body)


if __name__ == "__main__":
    main()
