"""What a run to begin from is worth where pairs are few: German to English from 2,000 pairs of Multi30k, alone
and from a run that was trained on other text; writes the table of docs/dev/results/translation.md.

    python benchmarks/transfer_learning.py DATA [--folder comparisons/transfer]
    python benchmarks/transfer_learning.py DATA --text

DATA: the folder of `regard data multi30k`. One training at a time, about an hour of one core in all
(OMP_NUM_THREADS=1). `--text` only writes the texts. Measurements in docs/dev/results/transfer-results.json are
not repeated, and interrupted trainings continue.

    few.tsv       the first 2,000 pairs
    apart.tsv     the other 27,000 captions of each language apart, each to be restored from a copy that lacks one
                  word in ten and has the others up to three places away (Lample et al. 2018, section 2.3)
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
"""Pairs to learn from."""
DROPPED, MOVED = 0.1, 3
SIZES: Flags = {"positions": "rotary", "dropout": 0.3, "vocab_size": 4000, "tokens": 1024, "lowercase": True}
BEFORE: Flags = {"steps": 2000, "seed": 0}
"""How the run to begin from is trained. It is validated on nothing: the last model is kept."""
SEEDS = (0, 1, 2)
ROWS: dict[str, Flags] = {
    "the 2,000 pairs alone": {"steps": 1000},
    "the same, from a run that restored captions of each language": {"start_from": "apart", "steps": 1000},
    "the 2,000 pairs alone, for 2,000 steps": {"steps": 2000},
}


def noised(sentence: str, generator: random.Random) -> str:
    """Return a sentence without some of its words, the others out of their places."""
    words = [word for word in sentence.split() if generator.random() >= DROPPED]
    places = [place + generator.uniform(0, MOVED) for place in range(len(words))]
    moved = [word for _, word in sorted(zip(places, words, strict=True))]
    return " ".join(moved) or sentence


def write_texts(data: Path, folder: Path) -> None:
    """Write what is trained on, in lower case, each text as a file of tab-separated pairs."""
    pairs = [(source.lower(), target.lower()) for source, target in texts(data, "train")]
    drawn = random.Random(0)
    others = [side for pair in pairs[FEW:] for side in pair]
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "few.tsv", pairs[:FEW])
    _write(folder / "apart.tsv", ((noised(each, drawn), each) for each in others))


def _write(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


def train(folder: Path, name: str, flags: Flags) -> Any:
    """Train, or go on where it stopped; returns the run."""
    import regard
    from regard.training import RunFolder

    if RunFolder(folder / name / "translation").exists():
        return regard.train("translation", resume=True, savepath=folder / name, progress=False)
    return regard.train("translation", **flags, savepath=folder / name, progress=False)


def measure(data: Path, folder: Path, flags: Flags) -> dict[str, float]:
    """Train on the few pairs, and return BLEU: the best on val by greedy search, and with beams of 5 on the test
    text."""
    parts, before = files(data), flags.get("start_from")
    asked: Flags = {"train": folder / "few.tsv", "valid": parts["valid"], "test": parts["test"], **flags}
    if before is None:
        asked |= SIZES
    else:
        train(folder, before, {"train": folder / f"{before}.tsv", **SIZES, **BEFORE})
        asked["start_from"] = folder / before / "translation"
    run = train(folder, f"{before or 'alone'}-{flags['steps']}-{flags['seed']}", asked)
    quality = run.test().quality
    return {"val": best_validation(run), "test": quality.main, "chrf": quality.chrf, "step": run.step}


def jobs() -> list[Flags]:
    """Return the flags of each training on the few pairs."""
    return [{**flags, "seed": seed} for flags in ROWS.values() for seed in SEEDS]


def table(results: Results) -> str:
    """Return a row for each start, with mean, least and largest over the seeds."""
    head = ["trained", "seeds", "val, greedy", "test", "test chrF"]
    body = []
    for what, flags in ROWS.items():
        keys = [key_of({**flags, "seed": seed}) for seed in SEEDS]
        found = [results[key] for key in keys if key in results]
        if found:
            body.append([what, str(len(found)), *(_over([each[name] for each in found]) for name in MEASURED)])
    return markdown(head, body)


MEASURED = ("val", "test", "chrf")


def _over(values: list[float]) -> str:
    return f"{sum(values) / len(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Train what is missing, one after the other, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--folder", type=Path, default=Path("comparisons/transfer"), help="of texts and runs")
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
