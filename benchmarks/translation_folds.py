"""Compare settings of the translation task on several folds of the training text.

    python benchmarks/translation_folds.py DATA [--folds 3] [--held 1000] [--runs comparisons/folds]

DATA is the folder of Multi30k's files. The training pairs are shuffled once. Each fold holds out other pairs, and
trains every setting on the remaining pairs (German to English, lower case; the seed is the fold). The held-out
pairs are used once, after the last step. The table shows BLEU of the held-out pairs for each fold, and the
difference from the first setting with a 95 % bootstrap interval over the pooled sentences of all folds. A second
table shows searches with the models of the first setting. Stored translations are not made again, and interrupted
training runs continue.
"""

import argparse
import gzip
import json
import random
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
from markdown_tables import markdown
from multi30k import files, texts, train

Search = dict[str, Any]

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"steps": 1500},
    "dropout 0.1": {"steps": 1500, "dropout": 0.1},
    "R-Drop": {"steps": 1500, "r_drop": 3.0},
    "dropout 0.3": {"steps": 1500, "dropout": 0.3},
    "R-Drop, half of the steps": {"steps": 750, "r_drop": 3.0},
    "default, 4,000 steps": {"steps": 4000},
    "dropout 0.1, 4,000 steps": {"steps": 4000, "dropout": 0.1},
}
"""Changes of the defaults. R-Drop computes every batch twice: with half of the steps, it takes as long."""
SEARCHES: dict[str, Search] = {
    "beam of 5": {"beam": 5},
    "greedy": {"beam": 1},
    "beam of 5, length penalty 0": {"beam": 5, "length_penalty": 0.0},
    "beam of 5, length penalty 0.6": {"beam": 5, "length_penalty": 0.6},
    "beam of 5, length penalty 1.4": {"beam": 5, "length_penalty": 1.4},
    "beam of 8": {"beam": 8},
}
"""Searches; the first one compares the settings, all of them use the models of the first setting."""


def split(data: Path, fold: int, held: int, folder: Path) -> list[tuple[str, str]]:
    """Write the files of Multi30k for a fold, with the held-out pairs as val; return these pairs."""
    pairs = texts(data, "train")
    random.Random(0).shuffle(pairs)
    test = pairs[fold * held : (fold + 1) * held]
    rest = pairs[: fold * held] + pairs[(fold + 1) * held :]
    folder.mkdir(parents=True, exist_ok=True)
    for part, of_part in {"train": rest, "valid": test}.items():
        for side, name in enumerate(files(folder)[part]):
            if not Path(name).exists():
                with gzip.open(name, "wt", encoding="utf-8") as file:
                    file.writelines(f"{pair[side]}\n" for pair in of_part)
    return test


def translations(data: Path, runs: Path, held: int, name: str, fold: int) -> dict[str, Any]:
    """Train a setting on a fold, and return its translations of the held-out pairs for each search."""
    folder = runs / f"fold-{fold}"
    stored = folder / f"{name}.json"
    if stored.exists():
        return dict(json.loads(stored.read_text()))
    test = split(data, fold, held, folder)
    steps = SETTINGS[name]["steps"]
    flags = {**SETTINGS[name], "seed": fold, "precision": "float32", "validate_every": steps}
    run = train(folder, folder, ("de", "en"), flags)
    searches = SEARCHES if name == next(iter(SETTINGS)) else dict([next(iter(SEARCHES.items()))])
    sources = [source for source, _ in test]
    found = {search: run.translate(sources, **options) for search, options in searches.items()}
    found["references"] = [target.lower() for _, target in test]
    stored.write_text(json.dumps(found))
    return found


def statistics_of(found: list[str], references: list[str]) -> np.ndarray[Any, Any]:
    """Return matches and lengths of each sentence, from which BLEU is computed: (sentences, numbers)."""
    metric = sacrebleu.BLEU(lowercase=True)
    return np.array(metric._extract_corpus_statistics(found, [references]))


def bleu_of(counts: np.ndarray[Any, Any]) -> float:
    """Return BLEU of sentences."""
    metric = sacrebleu.BLEU(lowercase=True)
    return float(metric._compute_score_from_stats(counts.sum(axis=0).tolist()).score)


def row(
    label: str, of_folds: list[dict[str, list[str]]], base: list[dict[str, list[str]]], key: str, first: str
) -> list[str]:
    """Return BLEU of each fold, and the difference of the pooled BLEU with its bootstrap interval."""
    ours = [statistics_of(found[key], found["references"]) for found in of_folds]
    others = [statistics_of(found[first], found["references"]) for found in base[: len(of_folds)]]
    pooled, before = np.concatenate(ours), np.concatenate(others)
    draw = np.random.default_rng(0)
    samples = (draw.integers(0, len(pooled), len(pooled)) for _ in range(1000))
    gains = [bleu_of(pooled[sample]) - bleu_of(before[sample]) for sample in samples]
    low, high = np.percentile(gains, [2.5, 97.5])
    gain = bleu_of(pooled) - bleu_of(before)
    each = ", ".join(f"{bleu_of(counts):.1f}" for counts in ours)
    return [label, each, f"{bleu_of(pooled):.1f}", f"{gain:+.1f} ({low:+.1f} to {high:+.1f})"]


def main() -> None:
    """Train what is missing, fold by fold, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--folds", type=int, default=3, help="number of folds (default: 3)")
    parser.add_argument("--held", type=int, default=1000, help="held-out pairs of each fold (default: 1000)")
    parser.add_argument("--runs", type=Path, default=Path("comparisons/folds"), help="folder of runs")
    parser.add_argument(
        "--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS, help="settings (default: all)"
    )
    args = parser.parse_args()
    work = partial(translations, args.data, args.runs, args.held)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in args.settings}
    for fold, name in product(range(args.folds), args.settings):
        found[name].append(work(name, fold))
        print(f"fold {fold}, {name}: done", flush=True)
    base, first = found[args.settings[0]], next(iter(SEARCHES))
    head = ["setting", "BLEU of each fold", "all folds", "difference (95 % interval)"]
    print(markdown(head, [row(name, of_folds, base, first, first) for name, of_folds in found.items()]))
    if args.settings[0] == next(iter(SETTINGS)):
        print(markdown(["search", *head[1:]], [row(search, base, base, search, first) for search in SEARCHES]))


if __name__ == "__main__":
    main()
