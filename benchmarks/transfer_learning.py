"""Measure the gain from pretraining with few pairs: German to English with 2,000 pairs of Multi30k.

    python benchmarks/transfer_learning.py DATA [--folder comparisons/transfer]
    python benchmarks/transfer_learning.py DATA --text

DATA is the folder that `regard data multi30k` creates. The program compares training from scratch with training
that starts from another run, and writes the table of docs/dev/results/translation.md. All runs are trained one
after the other, which takes about an hour on one core (OMP_NUM_THREADS=1). `--text` only writes the text files:

    few.tsv    the first 2,000 pairs
    apart.tsv  the other 27,000 captions of each language, not paired; the model restores each caption from a
               copy in which one word in ten is missing and the other words are moved by up to three
               positions (Lample et al. 2018, section 2.3)

Results in docs/dev/results/transfer-results.json are not measured again, and interrupted training runs continue.
"""

import argparse
import json
import random
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from markdown_tables import RESULTS, markdown, write_tables
from multi30k import best_validation, files, texts
from stored_measurements import Flags, Results, key_of

FEW = 2000
"""Training pairs."""
DROPPED, MOVED = 0.1, 3
SIZES: Flags = {"positions": "rotary", "dropout": 0.3, "vocab_size": 4000, "tokens": 1024, "lowercase": True}
BEFORE: Flags = {"steps": 2000, "seed": 0}
"""Flags of the initial run. This run has no validation text, so the last model is stored."""
SEEDS = (0, 1, 2)
ROWS: dict[str, Flags] = {
    "the 2,000 pairs alone": {"steps": 1000},
    "the 2,000 pairs, starting from a run that restored captions": {"start_from": "apart", "steps": 1000},
    "the 2,000 pairs alone, 2,000 steps": {"steps": 2000},
}


def add_noise(sentence: str, generator: random.Random) -> str:
    """Remove some words from a sentence, and move the other words."""
    words = [word for word in sentence.split() if generator.random() >= DROPPED]
    positions = [index + generator.uniform(0, MOVED) for index in range(len(words))]
    moved = [word for _, word in sorted(zip(positions, words, strict=True))]
    return " ".join(moved) or sentence


def write_texts(data: Path, folder: Path) -> None:
    """Write the training texts in lower case, each as a file of tab-separated pairs."""
    pairs = [(source.lower(), target.lower()) for source, target in texts(data, "train")]
    generator = random.Random(0)
    others = [side for pair in pairs[FEW:] for side in pair]
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "few.tsv", pairs[:FEW])
    _write(folder / "apart.tsv", ((add_noise(sentence, generator), sentence) for sentence in others))


def _write(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


def train(folder: Path, name: str, flags: Flags) -> Any:
    """Train a model or continue an interrupted training run; return the run."""
    import regard
    from regard.training.run_folder import RunFolder

    if RunFolder(folder / name / "translation").exists():
        return regard.train("translation", resume=True, savepath=folder / name, progress=False)
    return regard.train("translation", **flags, savepath=folder / name, progress=False)


def measure(data: Path, folder: Path, flags: Flags) -> dict[str, float]:
    """Train on the 2,000 pairs, and return BLEU.

    `val` is the best validation BLEU with greedy search; `test` uses a beam of 5.
    """
    parts, before = files(data), flags.get("start_from")
    options: Flags = {"train": folder / "few.tsv", "valid": parts["valid"], "test": parts["test"], **flags}
    if before is None:
        options |= SIZES
    else:
        train(folder, before, {"train": folder / f"{before}.tsv", **SIZES, **BEFORE})
        options["start_from"] = folder / before / "translation"
    run = train(folder, f"{before or 'alone'}-{flags['steps']}-{flags['seed']}", options)
    quality = run.test().quality
    return {"val": best_validation(run), "test": quality.main, "chrf": quality.chrf, "step": run.step}


def jobs() -> list[Flags]:
    """Return the flags of each training run on the 2,000 pairs."""
    return [{**flags, "seed": seed} for flags in ROWS.values() for seed in SEEDS]


def table(results: Results) -> str:
    """Return a row for each starting point, with the mean, minimum and maximum over the seeds."""
    head = ["trained", "seeds", "val, greedy", "test", "test chrF"]
    body = []
    for name, flags in ROWS.items():
        keys = [key_of({**flags, "seed": seed}) for seed in SEEDS]
        measured = [results[key] for key in keys if key in results]
        if measured:
            body.append([name, str(len(measured)), *(_over([row[key] for row in measured]) for key in MEASURED)])
    return markdown(head, body)


MEASURED = ("val", "test", "chrf")


def _over(values: list[float]) -> str:
    return f"{sum(values) / len(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Train the missing runs one after the other, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--folder", type=Path, default=Path("comparisons/transfer"), help="folder for texts and runs")
    parser.add_argument("--text", action="store_true", help="only write the texts")
    args = parser.parse_args()
    if args.text or not (args.folder / "few.tsv").exists():
        write_texts(args.data, args.folder)
    if args.text:
        return
    cache = RESULTS / "transfer-results.json"
    results: Results = json.loads(cache.read_text()) if cache.exists() else {}
    work = partial(measure, args.data, args.folder)
    for flags in jobs():
        if key_of(flags) not in results:
            results[key_of(flags)] = work(flags)
            print(flags, results[key_of(flags)], flush=True)
            cache.write_text(json.dumps(results, indent=0, sort_keys=True) + "\n")
    write_tables({"from another run": table(results)})


if __name__ == "__main__":
    main()
