"""Compare each kind of step with the peak speed of this machine.

    python benchmarks/roofline.py DATA [--steps 8] [--model RUN] [--only tiny]

DATA is the folder that `regard data multi30k` creates. Searches are measured only with --model, a trained
Transformer. The program uses one thread. The program counts the FLOPs of the matrix products in a step, and the
bytes that all operations of the step read and write. The program prints the time of these FLOPs at the speed of
a large product, the time of these bytes at the speed of a large copy, and the measured processor time of the
step. Processor time is measured because other programs affect it less than wall-clock time. The fraction is the
time of the products divided by the time of the step. Bytes are not a limit if the tensors stay in the cache, as
in small models.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import torch
from flags import count, existing, multi30k
from learner import with_learner
from markdown_tables import markdown
from multi30k import BATCH, SYMBOLS, TOKENS, files, texts
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

import regard
from regard.fast.onednn import onednn_matmul

WARM_UP = 3
"""Warm-up steps, which are not counted."""
LARGE, LONG = 2048, 1 << 26
"""Number of rows of a large matrix, and length of a long vector."""
SEARCHES = {"search, greedy": 1, "search, 5 beams": 5}
TEXT = {"vocab_size": SYMBOLS, "tokens": TOKENS, "lowercase": True}
RECURRENT = {"embedding": 64, "hidden": 128, "batchsize": 64}
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "Counting": ("counting", {}),
    "Difference `--self_att`": ("difference", {"self_att": True}),
    "Signal `--pos_enc`": ("signal", {"pos_enc": True}),
    "Signal 2": ("signal2", {}),
    "Dates, Bahdanau": ("dates", {**RECURRENT, "score": "additive", "context": "cell"}),
    "Dates, Luong": ("dates", {**RECURRENT, "score": "general", "context": "output"}),
    "tiny Transformer, float32": ("translation", {**TEXT, "precision": "float32"}),
    "tiny Transformer, bfloat16": ("translation", {**TEXT, "precision": "bfloat16"}),
    "tiny Transformer with R-Drop, bfloat16": ("translation", {**TEXT, "precision": "bfloat16", "r_drop": 3.0}),
    "base Transformer, bfloat16": ("translation", {**TEXT, "precision": "bfloat16", "preset": "base"}),
}
"""Task and flags of each training run; other flags are the defaults of the preset."""


class OperationCounter(TorchDispatchMode):
    """Count the operations of this thread: the FLOPs of matrix products by dtype, and the bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = dict.fromkeys((torch.float32, torch.bfloat16), 0)
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count it unless it returns a view."""
        result = func(*args, **(kwargs or {}))
        if func.is_view:
            return result
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        count = flops_of(func._overloadpacket)
        if count is not None:
            self.flops[tensors[0].dtype] += count(*args, **(kwargs or {}), out_val=result)
        return result


def flops_of(operation: Any) -> Callable[..., int] | None:
    """Return a function that counts the FLOPs of an operation; PyTorch has no counter for its CPU kernels."""
    aten = torch.ops.aten
    if operation in (
        torch.ops.mkldnn._linear_pointwise,
        aten.matmul,
        aten.linear,
    ):  # the last two only without autograd
        return lambda states, *_, out_val, **__: 2 * out_val.numel() * states.shape[-1]
    operation = {aten.addmm_: aten.addmm, aten.baddbmm_: aten.baddbmm}.get(operation, operation)
    if operation is aten.mkldnn_rnn_layer:
        return lambda states, *weights, **_: 2 * states.shape[:2].numel() * sum(w.numel() for w in weights[:2])
    if operation is aten.mkldnn_rnn_layer_backward:
        return lambda states, *weights, **_: 4 * states.shape[:2].numel() * sum(w.numel() for w in weights[:2])
    if operation is aten._scaled_dot_product_flash_attention_for_cpu:
        return lambda q, k, v, *_, **__: sdpa_flop_count(q.shape, k.shape, v.shape)
    if operation is aten._scaled_dot_product_flash_attention_for_cpu_backward:
        return lambda g, q, k, v, *_, **__: sdpa_backward_flop_count(g.shape, q.shape, k.shape, v.shape)
    count: Callable[..., int] | None = flop_registry.get(operation)
    return count


class Speeds(NamedTuple):
    """Peak speeds of this machine in one thread."""

    flops: dict[torch.dtype, float]
    """FLOP/s of a large matrix product."""
    bytes: float
    """Bytes per second, read and written by a copy."""


class Step(NamedTuple):
    """Operations and time of a training step."""

    flops: dict[torch.dtype, int]
    bytes: int
    seconds: float

    def row(self, name: str, speeds: Speeds) -> list[str]:
        """Return a row of the table."""
        products = sum(count / speeds.flops[dtype] for dtype, count in self.flops.items())
        figures = [sum(self.flops.values()) / 1e9, self.bytes / 1e9]
        times = [products * 1e3, self.bytes / speeds.bytes * 1e3, self.seconds * 1e3]
        return [name, *(f"{figure:.3g}" for figure in (*figures, *times)), f"{products / self.seconds:.0%}"]


@torch.inference_mode()
def speeds() -> Speeds:
    """Measure the peak speeds as the best of several tries, because other programs can only reduce the speed."""
    square, vector = torch.randn(LARGE, LARGE), torch.zeros(LONG)
    flops = {}
    for dtype in (torch.float32, torch.bfloat16):
        matrix, result = square.to(dtype), torch.empty(LARGE, LARGE, dtype=dtype)
        ways = (
            partial(torch.mm, matrix, matrix, out=result),
            partial(onednn_matmul, matrix, matrix),
        )  # MKL or oneDNN, and oneDNN
        flops[dtype] = 2 * LARGE**3 / min(min(seconds(way, 8)) for way in ways)
    copy = torch.empty_like(vector)
    return Speeds(flops, 2 * vector.nbytes / min(seconds(lambda: copy.copy_(vector), 8)))


def seconds(work: Callable[[], Any], calls: int) -> list[float]:
    """Return the processor time of each call."""
    times = []
    for _ in range(calls):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return times


def count_and_time(work: Callable[[], Any], steps: int) -> Step:
    """Return the mean operation counts and the mean time of `steps` calls.

    `work` repeats after `steps` calls, so that the counted calls are those that were timed.
    """
    for _ in range(WARM_UP):
        work()
    times = seconds(work, steps)
    with OperationCounter() as counter:
        for _ in range(steps):
            work()
    flops = {dtype: count // steps for dtype, count in counter.flops.items()}
    return Step(flops, counter.bytes // steps, statistics.mean(times))


def training_step(task: str, flags: dict[str, Any], steps: int, folder: str) -> Step:
    """Return the operations and time of a training step of a task."""

    def work(learner: Any, settings: Any) -> Step:
        batches = cycle([learner.batches.draw(step) for step in range(steps)])
        learner.batches.draw = lambda step: next(batches)
        return count_and_time(lambda: learner.learn(settings.schedule_at(learner.step)), steps)

    return with_learner(work, task, folder, flags)


def search_step(run: Any, sources: list[str], beam: int, steps: int) -> Step:
    """Return the operations and time of a search of one batch."""
    return count_and_time(lambda: run.translate(sources, beam=beam, batchsize=BATCH), steps)


def rows(args: argparse.Namespace, folder: str) -> list[list[str]]:
    """Measure all selected kinds of steps."""
    table, peak = [], speeds()
    products = ", ".join(f"{str(dtype)[6:]} {flops / 1e9:.0f} GFLOP/s" for dtype, flops in peak.flops.items())
    print(f"{products}, copies {peak.bytes / 1e9:.1f} GB/s")
    for name, (task, flags) in TRAININGS.items():
        if args.only in name:
            text = {"train": files(args.data)["train"]} if task == "translation" else {}
            table.append(training_step(task, {**text, **flags}, args.steps, folder).row(name, peak))
            print(*table[-1], flush=True)
    if args.model is not None:
        run = regard.load(args.model)
        sources = [source for source, _ in texts(args.data, "test")][:BATCH]
        for name, beam in SEARCHES.items():
            if args.only in name:
                table.append(search_step(run, sources, beam, args.steps).row(name, peak))
                print(*table[-1], flush=True)
    return table


def main() -> None:
    """Run all measurements, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=multi30k, help="folder of Multi30k's files")
    parser.add_argument("--steps", type=count, default=8, help="number of timed and counted steps (default: 8)")
    parser.add_argument("--model", type=existing, help="run for the searches (default: no searches)")
    parser.add_argument("--only", default="", help="measure only rows whose name contains this text (default: all)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        head = ["step", "GFLOP", "GB", "products alone, ms", "bytes alone, ms", "step, ms", "fraction"]
        print(markdown(head, rows(args, folder)))


if __name__ == "__main__":
    main()
