"""What helps a translator on a small corpus: train with one thing changed at a time, and write the table of
docs/dev/results/translation.md.

    python benchmarks/translation_trials.py DATA [--runs comparisons/trials] [--steps 3000]

DATA: the folder of `regard data multi30k`. English to German in lower case, one seed, a core for each training.
BLEU is that of val by greedy search, the best of a training's validations. What is in
docs/dev/results/translation-trials.json is not measured again, and what was interrupted goes on.
"""

import argparse
from functools import partial
from pathlib import Path

from markdown_tables import RESULTS, markdown, write_tables
from multi30k import best_validation, train
from stored_measurements import Flags, Results, key_of, measure_missing

BASE: Flags = {"positions": "sinusoidal", "dropout": 0.3}
"""What was the default when the trials began."""
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
"""Each with what it changes of `BASE`, in the order in which they are trained; another seed shows how much is
chance."""


def measure(data: Path, runs: Path, flags: Flags) -> dict[str, float]:
    """Train a trial, or go on, and return the best BLEU on val."""
    return {"bleu": best_validation(train(data, runs, ("en", "de"), BASE | flags))}


def main() -> None:
    """Train what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--runs", type=Path, default=Path("comparisons/trials"), help="folder of runs")
    parser.add_argument("--steps", type=int, default=3000, help="training steps (default: 3000)")
    args = parser.parse_args()
    trials = {what: {**flags, "steps": args.steps} for what, flags in TRIALS.items()}
    work = partial(measure, args.data, args.runs)
    results = measure_missing(RESULTS / "translation-trials.json", work, list(trials.values()))
    write_tables({"translation trials": table(results, trials)})


def table(results: Results, trials: dict[str, Flags]) -> str:
    """Return a row for each trial that was measured, beside the first one."""
    keys = {what: key_of(flags) for what, flags in trials.items()}
    scores = {what: results[key]["bleu"] for what, key in keys.items() if key in results}
    base = next(iter(scores.values()))
    body = [[what, f"{score:.1f}", f"{score - base:+z.1f}"] for what, score in scores.items()]
    return markdown(["what", "BLEU", "change"], body)


if __name__ == "__main__":
    main()
