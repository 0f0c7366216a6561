"""What helps a translator on a small corpus: train with one thing changed at a time, and write the table of
docs/results.md.

    python benchmarks/translation_trials.py DATA [--runs comparisons/trials] [--steps 3000]

DATA: the folder of `regard data multi30k`. English to German in lower case, one seed, a core for each training.
BLEU is that of val by greedy search, the best of a training's validations. What is trained already is not trained
again, and what was interrupted goes on.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from multi30k import best_validation, files
from tables import DOCS, markdown, write_tables

import regard
from regard.comparison.processes import side_by_side
from regard.training import RunFolder

TRIALS: dict[str, dict[str, Any]] = {
    "**the default**": {},
    "8000 subwords": {"vocab_size": 8000},
    "16,000 subwords": {"vocab_size": 16_000},
    "a vocabulary for each language, 12,000 subwords each": {"joint": False},
    "unigram subwords": {"tokenizer": "unigram"},
    "merges dropped (0.1)": {"merge_dropout": 0.1},
    "dropout 0.2": {"dropout": 0.2},
    "label smoothing 0": {"label_smoothing": 0.0},
    "label smoothing 0.2": {"label_smoothing": 0.2},
    "no average of the parameters": {"average": 0.0},
    "inverse square root of the step": {"schedule": "inverse_sqrt"},
    "rate 0.005": {"lr": 0.005},
    "encoder of 6 layers, decoder of 2": {"enc_layers": 6, "dec_layers": 2},
    "post-norm": {"pre_norm": False},
    "rotary positions": {"positions": "rotary"},
    "float32": {"precision": "float32"},
}


def train(data: Path, runs: Path, steps: int, what: str) -> float:
    """Train a trial, or go on, and return the best BLEU on val."""
    flags = {**TRIALS[what], "steps": steps}
    folder = runs / ",".join(f"{name}={value}" for name, value in flags.items())
    if RunFolder(folder / "translation").exists():
        run = regard.train("translation", resume=True, savepath=folder, progress=False)
    else:
        text: dict[str, Any] = dict(files(data, ("en", "de")))
        run = regard.train("translation", **text, **flags, lowercase=True, savepath=folder, progress=False)
    return best_validation(run)


def main() -> None:
    """Train what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--runs", type=Path, default=Path("comparisons/trials"), help="folder of runs")
    parser.add_argument("--steps", type=int, default=3000, help="training steps (default: 3000)")
    args = parser.parse_args()
    scores = dict(side_by_side(partial(train, args.data, args.runs, args.steps), list(TRIALS)))
    base = scores[next(iter(TRIALS))]
    body = [[what, f"{scores[what]:.1f}", f"{scores[what] - base:+.1f}"] for what in TRIALS]
    write_tables(DOCS / "results.md", {"translation trials": markdown(["what", "BLEU", "change"], body)})


if __name__ == "__main__":
    main()
