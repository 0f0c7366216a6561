"""Training speed of the Transformer on Multi30k, beside JoeyNMT 2.3 and Hugging Face's MarianMT.

    python benchmarks/translation_training.py DATA [--steps 100] [--rounds 3] [--joeynmt FOLDER]

DATA: the folder of `regard data multi30k`. The same subwords, sizes, tokens in a batch and threads for all; each
contestant in processes of its own, turn by turn; medians over the first steps. JoeyNMT is set up as in
peers.py. Needs the extra peers.
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from multi30k import SIZES, SMOOTHING, SYMBOLS, TOKENS, files, joeynmt_files, load_run, marian, multi30k_parser
from peers import joeynmt_python, run, run_joeynmt
from tables import markdown

RATE = 0.004
EVERY = 10
"""Steps of one measurement."""


def ours(data: Path, steps: int, folder: Path) -> dict[str, Any]:
    """Train with Regard; to be run in a process of its own."""
    import regard
    from regard.text.buckets import Buckets

    drawn: list[tuple[float, int]] = []
    draw = Buckets.draw

    def counted(self: Buckets, step: int = 0) -> Any:
        batch = draw(self, step)
        drawn.append((time.perf_counter(), batch.tokens))
        return batch

    Buckets.draw = counted  # type: ignore[method-assign]
    sizes: dict[str, Any] = {**SIZES, "vocab_size": SYMBOLS, "tokens": TOKENS, "steps": steps, "lr": RATE}
    regard.train(
        "translation", train=files(data)["train"], **sizes, savepath=folder, overwrite=True, progress=False
    )
    return {"train": _speeds(drawn)}


def hugging_face(data: Path, steps: int, folder: Path) -> dict[str, Any]:
    """Train Hugging Face's MarianMT, on Regard's own batches."""
    import torch
    import torch.nn.functional as F

    from regard.text import PAD
    from regard.text.buckets import Buckets
    from regard.text.corpus import open_corpus

    [corpus] = (folder / "prepared").glob("corpus-*")
    batches = Buckets(open_corpus(corpus), TOKENS, seed=0)
    torch.manual_seed(0)
    model = marian(len(load_run(folder / "translation").task.source_vocabulary))
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), fused=True)
    warm = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=RATE / 4, total_steps=steps, pct_start=0.1)
    drawn: list[tuple[float, int]] = []
    for _ in range(steps):
        batch = batches.draw()
        drawn.append((time.perf_counter(), batch.tokens))
        logits = model(
            input_ids=batch.source, attention_mask=batch.source_mask.long(), decoder_input_ids=batch.target_in
        ).logits
        loss = F.cross_entropy(
            logits.flatten(0, 1), batch.target.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
        )
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        warm.step()
    return {"train": _speeds(drawn)}


def joeynmt(python: Path, data: Path, steps: int, folder: Path, threads: int) -> dict[str, Any]:
    """Train with JoeyNMT, on Regard's own subwords."""
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        vocabulary = load_run(folder / "translation").task.source_vocabulary
        config = joeynmt_files(here, data, vocabulary, threads, validated=64)
        config["training"] |= {
            "learning_rate": RATE / 4,
            "scheduling": "exponential",
            "clip_grad_norm": 1.0,
            "updates": steps,
            "logging_freq": EVERY,
            "validation_freq": steps,
            "early_stopping_metric": "loss",
        }
        return run_joeynmt(python, here, {**config, "search": False})


def _speeds(drawn: list[tuple[float, int]]) -> list[float]:
    """Return tokens a second of every few steps, from when each batch was drawn and how many tokens it has."""
    marks = range(0, len(drawn) - EVERY, EVERY)
    return [
        sum(tokens for _, tokens in drawn[begin : begin + EVERY]) / (drawn[begin + EVERY][0] - drawn[begin][0])
        for begin in marks
    ]


CONTESTANTS = {"Regard": ours, "Hugging Face MarianMT": hugging_face}


def main() -> None:
    """Let each contestant run in turn, and print a table of medians."""
    parser = multi30k_parser(__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="training steps that are timed (default: 100)")
    parser.add_argument("--rounds", type=int, default=3, help="times each contestant runs (default: 3)")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, folder = args.worker
        print(json.dumps(CONTESTANTS[name](args.data, args.steps, Path(folder))))
        return
    python = joeynmt_python(args.joeynmt)
    print(f"{platform.machine()}, {args.threads} threads, medians of {args.rounds} rounds\n")
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for name in CONTESTANTS:
                command = [sys.executable, __file__, str(args.data), "--steps", str(args.steps)]
                speeds = run([*command, "--worker", name, folder], args.threads)["train"]
                found.setdefault(name, []).extend(speeds[1:])
            speeds = joeynmt(python, args.data, args.steps, Path(folder), args.threads)["train"]
            found.setdefault("JoeyNMT", []).extend(speeds[1:])
    medians = {name: statistics.median(speeds) for name, speeds in found.items()}
    body = [[name, f"{speed:,.0f}", f"{medians['Regard'] / speed:.2f}"] for name, speed in medians.items()]
    print(markdown(["program", "training, target tokens/s", "Regard's ratio"], body))


if __name__ == "__main__":
    main()
