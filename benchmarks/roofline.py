"""How near each kind of step comes to what this machine can do.

    python benchmarks/roofline.py DATA [--steps 8] [--model RUN] [--only tiny]

DATA: the folder of `regard data multi30k`; --model: a trained Transformer, without which no search is measured.
One thread. Of each kind of step: the arithmetic of its products of matrices, the bytes that all its operations
read and write, how long either would take at the speed of a large product or copy, and how long the step takes,
by the processor's time, which other programs disturb least. The share is that of the products in the step: the
rest goes to everything else. Bytes are no limit where tensors stay in the cache, as those of small models do;
they say how much is gone through.
"""

import argparse
import importlib
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from markdown_tables import markdown
from multi30k import BATCH, SYMBOLS, TOKENS, files, multi30k_parser, texts
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

import regard
from regard.fast.onednn import onednn_matmul

WARM = 3
"""Steps before any is counted."""
LARGE, LONG = 2048, 1 << 26
"""Rows of a large matrix, and numbers of a long vector."""
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
    "the same with R-Drop": ("translation", {**TEXT, "precision": "bfloat16", "r_drop": 3.0}),
    "base Transformer, bfloat16": ("translation", {**TEXT, "precision": "bfloat16", "preset": "base"}),
}
"""Task and flags of each; a preset's own where none are given."""


class Counted(TorchDispatchMode):
    """Adds up what the operations of this thread do: FLOPs of products by their dtype, and bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = dict.fromkeys((torch.float32, torch.bfloat16), 0)
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and count it unless it is only another view of the same numbers."""
        found = func(*args, **(kwargs or {}))
        if func.is_view:
            return found
        tensors = [each for each in tree_leaves((args, kwargs, found)) if isinstance(each, Tensor)]
        self.bytes += sum(each.numel() * each.element_size() for each in tensors)
        count = flops_of(func._overloadpacket)
        if count is not None:
            self.flops[tensors[0].dtype] += count(*args, **(kwargs or {}), out_val=found)
        return found


def flops_of(operation: Any) -> Callable[..., int] | None:
    """Return what counts the FLOPs of an operation; PyTorch has nothing for its kernels for a CPU."""
    aten = torch.ops.aten
    if operation in (torch.ops.mkldnn._linear_pointwise, aten.matmul, aten.linear):  # two only without autograd
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
    found: Callable[..., int] | None = flop_registry.get(operation)
    return found


class Speeds(NamedTuple):
    """What the machine does of one thing alone, in one thread."""

    flops: dict[torch.dtype, float]
    """A second, of a large product."""
    bytes: float
    """A second, read and written by a copy."""


class Step(NamedTuple):
    """What a step does, and how long it takes."""

    flops: dict[torch.dtype, int]
    bytes: int
    seconds: float

    def row(self, name: str, speeds: Speeds) -> list[str]:
        """Write a row of the table."""
        products = sum(count / speeds.flops[dtype] for dtype, count in self.flops.items())
        figures = [sum(self.flops.values()) / 1e9, self.bytes / 1e9]
        times = [products * 1e3, self.bytes / speeds.bytes * 1e3, self.seconds * 1e3]
        return [name, *(f"{each:.3g}" for each in (*figures, *times)), f"{products / self.seconds:.0%}"]


@torch.inference_mode()
def speeds() -> Speeds:
    """Measure the machine; the best of several tries, as others can only disturb."""
    square, vector = torch.randn(LARGE, LARGE), torch.zeros(LONG)
    flops = {}
    for dtype in (torch.float32, torch.bfloat16):
        one, into = square.to(dtype), torch.empty(LARGE, LARGE, dtype=dtype)
        ways = (
            partial(torch.mm, one, one, out=into),
            partial(onednn_matmul, one, one),
        )  # MKL or oneDNN, and oneDNN
        flops[dtype] = 2 * LARGE**3 / min(min(seconds(way, 8)) for way in ways)
    other = torch.empty_like(vector)
    return Speeds(flops, 2 * vector.nbytes / min(seconds(lambda: other.copy_(vector), 8)))


def seconds(work: Callable[[], Any], times: int) -> list[float]:
    """Return the processor's time that some work takes, each time."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return found


def measured(work: Callable[[], Any], steps: int) -> Step:
    """Count and time some work, a mean over `steps` of it for what differs from batch to batch."""
    for _ in range(WARM):
        work()
    took = seconds(work, steps)
    with Counted() as counted:
        for _ in range(steps):
            work()
    flops = {dtype: count // steps for dtype, count in counted.flops.items()}
    return Step(flops, counted.bytes // steps, statistics.median(took))


def training_step(task: str, flags: dict[str, Any], steps: int, folder: str) -> Step:
    """Return what a training step of a task does."""
    training: Any = importlib.import_module("regard.runs.training")
    found: list[Step] = []

    def only_measure(learner: Any, settings: Any, *_: Any, **__: Any) -> None:
        found.append(measured(lambda: learner.learn(settings.schedule_at(learner.step)), steps))

    usual, training.train_steps = training.train_steps, only_measure
    try:
        regard.train(task, **flags, savepath=folder, overwrite=True, progress=False)
    finally:
        training.train_steps = usual
    return found[0]


def search_step(run: Any, sources: list[str], beam: int, steps: int) -> Step:
    """Return what a search of a batch does."""
    return measured(lambda: run.translate(sources, beam=beam, batchsize=BATCH), steps)


def rows(args: argparse.Namespace, folder: str) -> list[list[str]]:
    """Measure each kind of step that is asked for."""
    found, fast = [], speeds()
    products = ", ".join(f"{str(dtype)[6:]} {each / 1e9:.0f} GFLOP/s" for dtype, each in fast.flops.items())
    print(f"{products}, copies {fast.bytes / 1e9:.1f} GB/s")
    for name, (task, flags) in TRAININGS.items():
        if args.only in name:
            text = {"train": files(args.data)["train"]} if task == "translation" else {}
            found.append(training_step(task, {**text, **flags}, args.steps, folder).row(name, fast))
            print(*found[-1], flush=True)
    if args.model is not None:
        run = regard.load(args.model)
        sources = [source for source, _ in texts(args.data, "test")][:BATCH]
        for name, beam in SEARCHES.items():
            if args.only in name:
                found.append(search_step(run, sources, beam, args.steps).row(name, fast))
                print(*found[-1], flush=True)
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = multi30k_parser(__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8, help="steps that are timed and counted (default: 8)")
    parser.add_argument("--model", type=Path, help="run to search with (default: no search)")
    parser.add_argument("--only", default="", help="measure only rows with this in their name")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        head = ["step", "GFLOP", "GB", "products alone, ms", "bytes alone, ms", "step, ms", "share"]
        print(markdown(head, rows(args, folder)))


if __name__ == "__main__":
    main()
