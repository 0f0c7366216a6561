"""How fast Regard, JoeyNMT 2.3 and Hugging Face's MarianMT train: for translation.py.

The same subwords, sizes and tokens in a batch for all.
"""

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from batch_timing import on_batch
from markdown_tables import markdown
from multi30k import SIZES, SMOOTHING, SYMBOLS, TOKENS, Setting, files, joeynmt_files, load_run, marian
from peers import run_joeynmt

RATE = 0.004
EVERY = 10
"""Steps of one measurement."""


def ours(setting: Setting, **flags: Any) -> dict[str, Any]:
    """Train with Regard; to be run in a process of its own."""
    import regard

    drawn: list[tuple[float, int]] = []
    on_batch(lambda tokens: drawn.append((time.perf_counter(), tokens)))
    sizes: dict[str, Any] = {**SIZES, "vocab_size": SYMBOLS, "tokens": TOKENS, "lr": RATE}
    regard.train(
        "translation",
        train=files(setting.data)["train"],
        **sizes,
        **flags,
        steps=setting.steps,
        savepath=setting.folder,
        overwrite=True,
        progress=False,
    )
    return {"train": _speeds(drawn)}


def hugging_face(setting: Setting) -> dict[str, Any]:
    """Train Hugging Face's MarianMT, on Regard's own batches."""
    import torch
    import torch.nn.functional as F

    from regard.data import PAD
    from regard.data.buckets import Buckets
    from regard.data.corpus import open_corpus

    [corpus] = (setting.folder / "prepared").glob("corpus-*")
    batches = Buckets(open_corpus(corpus), TOKENS, seed=0)
    torch.manual_seed(0)
    model = marian(len(load_run(setting.folder / "translation").task.source_vocabulary))
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), fused=True)
    warm = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=RATE / 4, total_steps=setting.steps, pct_start=0.1)
    drawn: list[tuple[float, int]] = []
    for _ in range(setting.steps):
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


def joeynmt(python: Path, setting: Setting) -> dict[str, Any]:
    """Train with JoeyNMT, on Regard's own subwords."""
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        vocabulary = load_run(setting.folder / "translation").task.source_vocabulary
        config = joeynmt_files(here, setting.data, vocabulary, setting.threads, validated=64)
        config["training"] |= {
            "learning_rate": RATE / 4,
            "scheduling": "exponential",
            "clip_grad_norm": 1.0,
            "updates": setting.steps,
            "logging_freq": EVERY,
            "validation_freq": setting.steps,
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


CONTESTANTS = {
    "Regard": ours,
    "Regard, --compile": partial(ours, compile=True),
    "Hugging Face MarianMT": hugging_face,
}


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the medians of all rounds, but for the first steps of each, in which programs warm up."""
    medians = {
        name: statistics.median(speed for each in rounds for speed in each["train"][1:])
        for name, rounds in found.items()
    }
    body = [[name, f"{speed:,.0f}", f"{medians['Regard'] / speed:.2f}"] for name, speed in medians.items()]
    return markdown(["program", "training, target tokens/s", "Regard's ratio"], body)
