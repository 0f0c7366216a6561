"""BLEU for time on Multi30k, German to English in lower case, beside JoeyNMT 2.3 with its own recipe.

    python benchmarks/translation_quality.py DATA [--steps 3000] [--folder comparisons/joeynmt] [--threads 2]

DATA: the folder of `regard data multi30k`. The same 8000 subwords and sizes for both. Regard trains for
`--steps`; JoeyNMT, as its configurations for IWSLT say (Adam, rate 0.0003, multiplied by 0.7 when BLEU has not
risen for 5 validations, dropout 0.3), for eight times as long, or `--minutes`. Validations, by greedy search, are
not counted as time. What is in `--folder` already is not trained again, and JoeyNMT goes on from its latest
checkpoint where it was interrupted. JoeyNMT is set up as in peers.py.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from markdown_tables import markdown
from multi30k import SIZES, best_validation, files, joeynmt_files, joined, multi30k_parser, texts
from peers import joeynmt_python, run, run_joeynmt

SUBWORDS = 8000
"""Of the vocabulary, at most."""
EVERY = 250
"""Updates of JoeyNMT between two validations."""


def train_ours(data: Path, steps: int, folder: Path) -> None:
    """Train with Regard, validating at the end only; to be run in a process of its own."""
    import regard

    text: dict[str, Any] = dict(files(data))
    begun, used = time.perf_counter(), time.process_time()
    trained = regard.train(
        "translation",
        **text,
        **SIZES,
        vocab_size=SUBWORDS,
        lowercase=True,
        steps=steps,
        validate_every=steps,
        savepath=folder,
        overwrite=True,
        progress=False,
    )
    line = {
        "updates": steps,
        "seconds": time.perf_counter() - begun,
        "processor_seconds": time.process_time() - used,
    }
    line["bleu"] = best_validation(trained)
    (folder / "ours.json").write_text(json.dumps(line) + "\n")


def train_joeynmt(python: Path, data: Path, folder: Path, minutes: float, threads: int) -> None:
    """Train with JoeyNMT, or go on, with the subwords of Regard's run in `folder`."""
    from regard.runs import SequenceRun, load

    trained = load("translation", savepath=folder)
    assert isinstance(trained, SequenceRun)
    here = folder / "joeynmt"
    here.mkdir(exist_ok=True)
    config = joeynmt_files(here, data, trained.task.source_vocabulary, threads)
    config["minutes"] = minutes
    config["testing"] |= {"eval_metrics": ["bleu"], "beam_size": 1}
    config["training"] |= {
        "optimizer": "adam",
        "adam_betas": [0.9, 0.999],
        "scheduling": "plateau",
        "patience": 5,
        "decrease_factor": 0.7,
        "learning_rate": 0.0003,
        "learning_rate_min": 1e-8,
        "validation_freq": EVERY,
        "logging_freq": EVERY,
        "early_stopping_metric": "bleu",
    }
    for side in ("encoder", "decoder"):
        config["model"][side]["dropout"] = 0.3
    run_joeynmt(python, here, config)


def validations(folder: Path) -> list[dict[str, Any]]:
    """Return JoeyNMT's validations so far."""
    file = folder / "joeynmt" / "validations.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def rows(data: Path, folder: Path) -> list[list[str]]:
    """Return Regard's line, and one for each of JoeyNMT's validations."""
    from regard.evaluation import bleu

    mine = json.loads((folder / "ours.json").read_text())
    lines = [("Regard", mine)]
    references = [target.lower() for _, target in texts(data, "valid")]
    for line in validations(folder):
        found = joined(folder / "joeynmt" / "model" / f"{line['updates']}.hyps")
        lines.append(("JoeyNMT", {**line, "bleu": bleu(found, references)}))
    return [
        [
            name,
            f"{line['updates']:,}",
            f"{line['seconds'] / 60:.1f}",
            f"{line['processor_seconds'] / 60:.1f}",
            f"{line['seconds'] / mine['seconds']:.2f}",
            f"{line['bleu']:.1f}",
        ]
        for name, line in lines
    ]


def main() -> None:
    """Train what is missing, and print a table."""
    parser = multi30k_parser(__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000, help="training steps of Regard (default: 3000)")
    parser.add_argument("--minutes", type=float, help="of JoeyNMT's training (default: 8 times Regard's)")
    parser.add_argument("--folder", type=Path, default=Path("comparisons/joeynmt"), help="where runs are kept")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        train_ours(args.data, args.steps, args.folder)
        print("{}")
        return
    if not (args.folder / "ours.json").exists():
        args.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, str(args.data), "--steps", str(args.steps)]
        run([*command, "--folder", str(args.folder), "--worker"], args.threads)
    mine = json.loads((args.folder / "ours.json").read_text())
    minutes = args.minutes or 8 * mine["seconds"] / 60
    if all(line["seconds"] < 60 * minutes for line in validations(args.folder)):
        train_joeynmt(joeynmt_python(args.joeynmt), args.data, args.folder, minutes, args.threads)
    head = ["program", "updates", "minutes", "processor's", "Regard's times", "val BLEU, greedy"]
    print(markdown(head, rows(args.data, args.folder)))


if __name__ == "__main__":
    main()
