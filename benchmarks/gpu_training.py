"""Measure training steps on a GPU, for gpu.py: Regard beside the plain loops of strong_loop.py.

Each program trains on the same text with batches of the same number of tokens. A measurement is the time of
several steps, with a synchronization at its end.
"""

import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from learner import with_learner
from markdown_tables import markdown
from strong_loop import PlainDecoderOnly, PlainTransformer, Sizes, StrongTraining
from torch.utils.flop_counter import FlopCounterMode

WARM_UP, CHUNKS, CHUNK = 12, 6, 10
"""Steps before the measurement, number of measurements, and steps of one measurement."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model and its training."""

    name: str
    task: str
    sizes: Sizes
    flags: dict[str, Any]

    @property
    def tokens(self) -> int:
        """Largest number of tokens in a batch, including padding."""
        size: int = self.flags.get("tokens") or self.flags["batchsize"] * self.sizes.longest
        return size


def workloads(*, small: bool) -> list[Workload]:
    """Return the models. `small`: sizes for a test on a CPU."""
    tiny = Sizes(symbols=8000, width=128, heads=4, inner=512, layers=4, longest=128, dropout=0.3)
    base = Sizes(symbols=8000, width=512, heads=8, inner=2048, layers=6, longest=128, dropout=0.1)
    decoder = Sizes(symbols=8000, width=512, heads=8, inner=2048, layers=8, longest=512)
    if small:
        tiny, base, decoder = (replace(sizes, layers=1, width=32, inner=64) for sizes in (tiny, base, decoder))
    few, many = (256, 512) if small else (4096, 16_384)
    windows = {"batchsize": 1 if small else 32}
    plan = [
        ("tiny Transformer", "translation", tiny, {"tokens": few}),
        ("base Transformer", "translation", base, {"tokens": many}),
        ("decoder-only, 30 M", "text", decoder, windows),
    ]
    return [
        Workload(name=name, task=task, sizes=sizes, flags={**_flags(task, sizes), **flags})
        for name, task, sizes, flags in plan
    ]


def _flags(task: str, sizes: Sizes) -> dict[str, Any]:
    flags = {"hidden": sizes.width, "heads": sizes.heads, "inner": sizes.inner, "dropout": sizes.dropout}
    flags |= {"steps": 1000, "vocab_size": sizes.symbols, "snapshots": 0}
    if task == "translation":
        return {**flags, "tokenizer": "words", "enc_layers": sizes.layers, "dec_layers": sizes.layers}
    return {**flags, "tokenizer": "bpe", "layers": sizes.layers, "max_len": sizes.longest, "validate_every": 0}


def write_text(folder: Path, *, pairs: int) -> dict[str, dict[str, Any]]:
    """Write generated text, and return the flags that name it by task.

    Word frequencies follow Zipf's law, and sentences have 3 to 40 words, 13 on average, as in Multi30k. The
    target has one word for each word of the source, in the same order.
    """
    draw = random.Random(0)
    words = [f"{first}{second}{number}" for number in range(20) for first in "bdfgklmnprst" for second in "aeiou"]
    weights = [1 / (rank + 2) for rank in range(len(words))]
    lines = []
    for _ in range(pairs):
        length = min(max(round(draw.gauss(13, 4)), 3), 40)
        lines.append(draw.choices(words, weights, k=length))
    source, target, text = folder / "source.txt", folder / "target.txt", folder / "text.txt"
    source.write_text("".join(f"{' '.join(line)}\n" for line in lines))
    target.write_text("".join(f"{' '.join(word[::-1] for word in line)}\n" for line in lines))
    text.write_text("".join(f"{' '.join(line)}.\n" for line in lines))
    return {"translation": {"train": (str(source), str(target))}, "text": {"text": str(text)}}


def measure(
    step: Callable[[], Any], drawn: list[Any], device: torch.device, chunk: int, chunks: int, others: int
) -> dict[str, float]:
    """Return the median milliseconds of a step, target tokens per second, and peak memory in MiB. `drawn`: list
    to which each step appends its batch. `others`: bytes on the device that belong to other programs."""
    for _ in range(WARM_UP if chunk == CHUNK else 1):
        step()
    synchronize(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds, speeds = [], []
    for _ in range(chunks):
        began = time.perf_counter()
        for _ in range(chunk):
            step()
        synchronize(device)
        elapsed = time.perf_counter() - began
        tokens = sum(batch.tokens for batch in drawn[-chunk:])
        seconds.append(elapsed / chunk)
        speeds.append(tokens / elapsed)
    peak = (torch.cuda.max_memory_allocated() - others) / 2**20 if device.type == "cuda" else float("nan")
    return {"ms": 1e3 * statistics.median(seconds), "tokens": statistics.median(speeds), "MiB": peak}


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all operations."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def mean_flops(workload: Workload, batches: list[Any], device: torch.device) -> float:
    """Return the mean FLOPs of the matrix products of a step over batches, forward and backward, counted with
    the plain model."""
    remaining = iter(batches)
    training = StrongTraining(plain_model(workload), lambda: next(remaining), device, torch.bfloat16, compiled=False)
    with FlopCounterMode(display=False) as counter:
        for _ in batches:
            training.step()
    return counter.get_total_flops() / len(batches)


def plain_model(workload: Workload) -> Any:
    """Return the plain model of a workload, with random parameters."""
    torch.manual_seed(0)
    return (PlainTransformer if workload.task == "translation" else PlainDecoderOnly)(workload.sizes)


def compare(
    workload: Workload, text: dict[str, Any], device: torch.device, peak: float, *, small: bool
) -> list[dict[str, Any]]:
    """Measure all programs on one workload. `peak`: FLOP/s of the device in bfloat16."""
    chunk, chunks = (1, 2) if small else (CHUNK, CHUNKS)
    results: list[dict[str, Any]] = []
    model = {"model": workload.name, "batch": workload.tokens}
    flags = {**text, **workload.flags, "precision": "bfloat16"}

    def note(program: str, step: Callable[[], Any], drawn: list[Any], others: int) -> None:
        began = time.perf_counter()
        figures = measure(step, drawn, device, chunk, chunks, others)
        flops = mean_flops(workload, drawn[-chunk * chunks :], device)  # of the batches that were timed
        share = flops / (figures["ms"] / 1e3) / peak
        results.append({**model, "program": program, **figures, "share": share})
        print(f"{workload.name} {program}: {figures} {time.perf_counter() - began:.0f} s", flush=True)

    def all_programs(learner: Any, settings: Any) -> None:
        drawn: list[Any] = []
        draw = learner.batches.draw

        def draw_and_note(step: int = 0) -> Any:
            drawn.append(draw(step))
            return drawn[-1]

        learner.batches.draw = draw_and_note
        name = "Regard, `--compile`" if settings.compile else "Regard"
        note(name, lambda: learner.learn(settings.schedule_at(learner.step)), drawn, 0)
        drawn.clear()
        others = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        training = StrongTraining(
            plain_model(workload), draw_and_note, device, torch.bfloat16, compiled=settings.compile
        )
        note("plain loop, `torch.compile`" if settings.compile else "plain loop", training.step, drawn, others)

    for compiled in (False,) if small else (False, True):  # on a CPU, compiling takes minutes
        with tempfile.TemporaryDirectory() as folder:
            try:
                with_learner(all_programs, workload.task, folder, {**flags, "compile": compiled})
            except Exception as error:  # a failure of one program must not lose the other measurements
                print(f"{workload.name}, compile={compiled}: {type(error).__name__}: {error}", flush=True)
                reason = f"{type(error).__name__}: {error}".splitlines()[0][:100]
                results.append({**model, "program": f"failed: {reason}"})
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return results


def table(results: list[dict[str, Any]]) -> str:
    """Return the measurements as a Markdown table."""
    head = ["model", "tokens per batch", "program", "ms per step", "target tokens/s", "share of the peak", "MiB"]
    body = []
    for row in results:
        if "ms" not in row:
            body.append([row["model"], f"{row['batch']:,}", row["program"], "", "", "", ""])
            continue
        figures = [f"{row['ms']:.1f}", f"{row['tokens']:,.0f}", f"{row['share']:.1%}", f"{row['MiB']:,.0f}"]
        body.append([row["model"], f"{row['batch']:,}", row["program"], *figures])
    return markdown(head, body)
