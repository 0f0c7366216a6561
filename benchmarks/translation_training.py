"""Measure the training speed of Regard, JoeyNMT, Hugging Face's MarianMT and a strong loop, for translation.py.

All programs use the same subwords, sizes, numbers of tokens per batch, and settings of the allocator.
"""

import math
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from batch_timing import on_batch
from markdown_tables import markdown
from multi30k import POSITIONS, SIZES, SMOOTHING, SYMBOLS, TOKENS, Setting, files, joeynmt_files, load_run, marian
from peers import run_joeynmt

if TYPE_CHECKING:
    from regard.data.buckets import Buckets

RATE = 0.004
EVERY = 10
"""Steps of one measurement."""


class Drawn(NamedTuple):
    """A batch that was drawn: seconds by the clock and of processor time, and target tokens."""

    clock: float
    processor: float
    tokens: int


def train_regard(setting: Setting, **flags: Any) -> dict[str, Any]:
    """Train with Regard; runs in a separate process."""
    import regard

    batches_drawn: list[Drawn] = []
    on_batch(lambda tokens: batches_drawn.append(Drawn(time.perf_counter(), time.process_time(), tokens)))
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
    return _speeds(batches_drawn)


def _batches(setting: Setting) -> "Buckets":
    """Return Regard's batches, in a process with Regard's settings of the allocator."""
    from regard.data.buckets import Buckets
    from regard.data.corpus import open_corpus
    from regard.fast.memory import keep_memory

    keep_memory()
    [corpus] = (setting.folder / "prepared").glob("corpus-*")
    return Buckets(open_corpus(corpus), TOKENS, seed=0)


def _symbols(setting: Setting) -> int:
    return len(load_run(setting.folder / "translation").task.source_vocabulary)


def hugging_face(setting: Setting, *, autocast: bool = False) -> dict[str, Any]:
    """Train Hugging Face's MarianMT with Regard's batches, in float32 or under bfloat16 autocast."""
    import torch
    import torch.nn.functional as F

    from regard.data.vocabulary import PAD

    batches = _batches(setting)
    torch.manual_seed(0)
    model = marian(_symbols(setting))
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), fused=True)
    warm = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=RATE / 4, total_steps=setting.steps, pct_start=0.1)
    batches_drawn: list[Drawn] = []
    for _ in range(setting.steps):
        batch = batches.draw()
        batches_drawn.append(Drawn(time.perf_counter(), time.process_time(), batch.tokens))
        mask = batch.source_mask.long()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(input_ids=batch.source, attention_mask=mask, decoder_input_ids=batch.target_in).logits
            loss = F.cross_entropy(
                logits.flatten(0, 1), batch.target.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
            )
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        warm.step()
    return _speeds(batches_drawn)


def strong_loop(setting: Setting, *, precision: str, compiled: bool = False) -> dict[str, Any]:
    """Train the model of strong_loop.py with Regard's batches."""
    import torch
    from strong_loop import PlainTransformer, Sizes, StrongTraining

    batches = _batches(setting)
    batches_drawn: list[Drawn] = []

    def draw() -> Any:
        batch = batches.draw()
        batches_drawn.append(Drawn(time.perf_counter(), time.process_time(), batch.tokens))
        return batch

    torch.manual_seed(0)
    sizes = Sizes(
        symbols=_symbols(setting),
        width=SIZES["hidden"],
        heads=SIZES["heads"],
        inner=SIZES["inner"],
        layers=SIZES["enc_layers"],
        longest=POSITIONS,
        dropout=SIZES["dropout"],
    )
    dtype = getattr(torch, precision)
    training = StrongTraining(PlainTransformer(sizes), draw, torch.device("cpu"), dtype, compiled=compiled)
    for _ in range(setting.steps):
        training.step()
    return _speeds(batches_drawn)


def joeynmt(python: Path, setting: Setting) -> dict[str, Any]:
    """Train JoeyNMT with Regard's subwords."""
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


def _speeds(batches_drawn: list[Drawn]) -> dict[str, Any]:
    """Return the tokens per second, and per second of processor time, of every few training steps."""
    marks = range(0, len(batches_drawn) - EVERY, EVERY)
    parts = [(batches_drawn[begin : begin + EVERY], batches_drawn[begin + EVERY]) for begin in marks]
    tokens = [sum(batch.tokens for batch in batches) for batches, _ in parts]
    return {
        "train": [count / (end.clock - first.clock) for count, ([first, *_], end) in zip(tokens, parts, strict=True)],
        "processor": [
            count / (end.processor - first.processor) for count, ([first, *_], end) in zip(tokens, parts, strict=True)
        ],
    }


PROGRAMS = {
    "Regard": train_regard,
    "Regard, --compile": partial(train_regard, compile=True),
    "strong loop, float32": partial(strong_loop, precision="float32"),
    "strong loop, bfloat16": partial(strong_loop, precision="bfloat16"),
    "strong loop, bfloat16, torch.compile": partial(strong_loop, precision="bfloat16", compiled=True),
    "Hugging Face MarianMT": hugging_face,
    "Hugging Face MarianMT, bfloat16 autocast": partial(hugging_face, autocast=True),
}


def table(measurements: dict[str, list[dict[str, Any]]]) -> str:
    """Return the medians of all rounds, without the first steps of each round, which are a warm-up."""
    medians = {
        name: [
            statistics.median(speed for run in rounds for speed in run.get(kind, [math.nan] * 2)[1:])
            for kind in ("train", "processor")
        ]
        for name, rounds in measurements.items()
    }
    body = []
    for name, speeds in medians.items():
        pairs = zip(speeds, medians["Regard"], strict=True)
        cells = [cell for speed, own in pairs for cell in (f"{speed:,.0f}", f"{own / speed:.2f}")]
        body.append([name, *("" if cell == "nan" else cell for cell in cells)])
    relative = "speed of Regard, relative to the program"
    head = ["program", "target tokens/s", relative, "target tokens per processor second", relative]
    return markdown(head, body)
