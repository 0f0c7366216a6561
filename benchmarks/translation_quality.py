"""Compare BLEU by training time on Multi30k, German to English in lower case, with JoeyNMT 2.3.

    python benchmarks/translation_quality.py DATA [--steps 3000] [--folder comparisons/joeynmt] [--threads 2]

DATA is the folder that `regard data multi30k` creates. Both programs use the same 8,000 subwords and sizes.
Regard trains for `--steps`. JoeyNMT trains with its settings for IWSLT (Adam, learning rate 0.0003, multiplied
by 0.7 after 5 validations without a better BLEU, dropout 0.3) for eight times the number of steps, or for
`--minutes`. Validations use greedy search, and their time is excluded. Models in `--folder` are not trained
again, and an interrupted run of JoeyNMT continues from its latest checkpoint. peers.py installs JoeyNMT.
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
"""Maximum size of the vocabulary."""
EVERY = 250
"""Updates of JoeyNMT between two validations."""


def train_regard(data: Path, steps: int, folder: Path) -> None:
    """Train with Regard, with one validation at the end; runs in a separate process."""
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
    line = {"updates": steps, "seconds": time.perf_counter() - begun, "processor_seconds": time.process_time() - used}
    line["bleu"] = best_validation(trained)
    (folder / "ours.json").write_text(json.dumps(line) + "\n")


def train_joeynmt(python: Path, data: Path, folder: Path, minutes: float, threads: int) -> None:
    """Train or continue a model of JoeyNMT with the subwords of Regard's run in `folder`."""
    from regard.runs.loading import load
    from regard.runs.sequence_run import SequenceRun

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
    """Return the validations of JoeyNMT so far."""
    file = folder / "joeynmt" / "validations.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def rows(data: Path, folder: Path) -> list[list[str]]:
    """Return a row for Regard and a row for each validation of JoeyNMT."""
    from regard.evaluation.bleu import quality

    regard = json.loads((folder / "ours.json").read_text())
    lines = [("Regard", regard)]
    references = [target.lower() for _, target in texts(data, "valid")]
    for line in validations(folder):
        translations = joined(folder / "joeynmt" / "model" / f"{line['updates']}.hyps")
        lines.append(("JoeyNMT", {**line, "bleu": quality(translations, references).main}))
    return [
        [
            name,
            f"{line['updates']:,}",
            f"{line['seconds'] / 60:.1f}",
            f"{line['processor_seconds'] / 60:.1f}",
            f"{line['seconds'] / regard['seconds']:.2f}",
            f"{line['bleu']:.1f}",
        ]
        for name, line in lines
    ]


def main() -> None:
    """Train the missing models, and print the table."""
    parser = multi30k_parser(__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000, help="training steps of Regard (default: 3000)")
    parser.add_argument(
        "--minutes", type=float, help="minutes of JoeyNMT's training (default: 8 times the steps of Regard)"
    )
    parser.add_argument("--folder", type=Path, default=Path("comparisons/joeynmt"), help="folder of runs")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        train_regard(args.data, args.steps, args.folder)
        print("{}")
        return
    if not (args.folder / "ours.json").exists():
        args.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, str(args.data), "--steps", str(args.steps)]
        run([*command, "--folder", str(args.folder), "--worker"], args.threads)
    regard = json.loads((args.folder / "ours.json").read_text())
    minutes = args.minutes or 8 * regard["seconds"] / 60
    if all(line["seconds"] < 60 * minutes for line in validations(args.folder)):
        train_joeynmt(joeynmt_python(args.joeynmt), args.data, args.folder, minutes, args.threads)
    head = ["program", "updates", "minutes", "processor minutes", "ratio to Regard", "val BLEU, greedy"]
    print(markdown(head, rows(args.data, args.folder)))


if __name__ == "__main__":
    main()
