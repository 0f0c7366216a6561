"""Speed and memory of attention layers, side by side in one run.

    python benchmarks/attention.py [--times 64 512 2048] [--repeats 5] [--batch 32]

Layers of width 256 with 8 heads over batches of 32: Regard's, PyTorch's raw fused kernel between the same
projections, and those of PyTorch, x-transformers and Hugging Face. With weights: Regard's, recorded, and
PyTorch's asked for its weights. Additive: Regard's, with W and U, and Keras', which has neither. Contestants
take turns; medians and the ratio to the first of each group. Memory is the peak of a process of its own.
Needs the extra `peers`.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from regard import record  # noqa: E402
from regard.attention import Additive, Attention, MultiHeadAttention  # noqa: E402

WIDTH, HEADS = 256, 8
Layer = Callable[[Tensor], Tensor]
RECORDING = ExitStack()
"""Recordings that last as long as the process."""


class RawKernel(nn.Module):
    """The least that multi-head attention can be: four projections and the fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, states: Tensor) -> Tensor:
        """Self-attention of states (B, T, D)."""
        heads = [part(states).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.parts[:3]]
        return self.parts[3](F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


def raw_kernel() -> Layer:
    """The baseline."""
    return RawKernel()


def ours() -> Layer:
    """Regard's, unrecorded."""
    return MultiHeadAttention(WIDTH, HEADS)


def torch_layer() -> Layer:
    """PyTorch's, not asked for weights."""
    layer = nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=True)
    return lambda states: layer(states, states, states, need_weights=False)[0]


def x_transformers() -> Layer:
    """x-transformers', with its fused option."""
    from x_transformers.x_transformers import Attention as Peer

    return Peer(WIDTH, heads=HEADS, dim_head=WIDTH // HEADS, flash=True)


def hugging_face() -> Layer:
    """The layer of Bart, in its default implementation."""
    from transformers import BartConfig
    from transformers.models.bart.modeling_bart import BartAttention

    config = BartConfig(d_model=WIDTH)
    config._attn_implementation = "sdpa"
    layer = BartAttention(WIDTH, HEADS, config=config)
    return lambda states: layer(states)[0]


def torch_weights() -> Layer:
    """PyTorch's, asked for the weights of each head."""
    layer = nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=True)
    return lambda states: layer(states, states, states, average_attn_weights=False)[0]


def ours_recorded() -> Layer:
    """Regard's, recorded all the while."""
    layer = MultiHeadAttention(WIDTH, HEADS)
    RECORDING.enter_context(record(layer))
    return layer


def ours_rows() -> Layer:
    """Regard's, eight rows recorded all the while."""
    layer = MultiHeadAttention(WIDTH, HEADS)
    RECORDING.enter_context(record(layer, rows=range(8)))
    return layer


def keras_additive() -> Layer:
    """Keras' additive attention: no W, no U."""
    import keras

    layer = keras.layers.AdditiveAttention()
    return lambda states: layer([states, states])


def ours_additive() -> Layer:
    """Regard's, with W and U."""
    layer = Attention(Additive(WIDTH))
    return lambda states: layer(states, states, states)


GROUPS: dict[str, list[Callable[[], Layer]]] = {
    "multi-head": [raw_kernel, ours, torch_layer, x_transformers, hugging_face],
    "with weights": [torch_weights, ours_recorded, ours_rows],
    "additive": [keras_additive, ours_additive],
}


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def compare(group: str, batch: int, length: int, repeats: int) -> None:
    """Measure one group at one size and print its rows."""
    states = torch.randn(batch, length, WIDTH, requires_grad=True)
    layers: dict[str, Layer] = {}
    for make in GROUPS[group]:
        try:
            layers[make.__name__] = make()
        except ImportError as error:
            print(f"  {make.__name__}: left out, {error}")

    def forward(layer: Layer) -> None:
        with torch.no_grad():
            layer(states)

    def both(layer: Layer) -> None:
        layer(states).sum().backward()
        states.grad = None

    print(f"{group}, B {batch}, T {length}")
    found: dict[str, list[list[float]]] = {name: [[], []] for name in layers}
    for repeat in range(repeats + 1):
        for name, layer in layers.items():
            for way, run in enumerate((forward, both)):
                seconds = timed(lambda run=run, layer=layer: run(layer))  # type: ignore[misc]
                if repeat:  # the first warms up
                    found[name][way].append(seconds)
    first: list[float] = []
    for name, ways in found.items():
        medians = [statistics.median(way) for way in ways]
        first = first or medians
        cells = [f"{m * 1e3:9.1f} ms ({b / m:4.2f}x)" for m, b in zip(medians, first, strict=True)]
        print(f"  {name:16} forward {cells[0]}   forward + backward {cells[1]}", flush=True)


def peak(name: str, batch: int, length: int) -> None:
    """Run one contestant forward once in this process, and print how much its peak memory grew."""
    layer = next(make for group in GROUPS.values() for make in group if make.__name__ == name)()
    with torch.no_grad():
        layer(torch.randn(1, 64, WIDTH))
        states = torch.randn(batch, length, WIDTH)
        before = peak_memory()
        layer(states)
    print(f"{peak_memory() - before:.0f}")


def peak_memory() -> float:
    """Return the peak of this process so far, MiB (Linux; `getrusage` would begin with the parent's)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Measure everything."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, nargs="+", default=[64, 512, 2048], help="lengths T (default: all)")
    parser.add_argument("--repeats", type=int, default=5, help="timed repeats, fewer for long T (default: 5)")
    parser.add_argument("--batch", type=int, default=32, help="batch size (default: 32)")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak:
        peak(args.peak[0], int(args.peak[1]), int(args.peak[2]))
        return
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    print(f"{machine}, width {WIDTH}, {HEADS} heads")
    for length in args.times:
        repeats = args.repeats if length < 1024 else max(1, args.repeats // 2)
        compare("multi-head", args.batch, length, repeats)
        compare("with weights", args.batch, length, repeats)
        # All pairs of an additive score written out, 3 times over, have to fit the memory of the peer.
        compare("additive", max(1, min(args.batch, 32 * 64 * 64 * 8 // length**2)), length, repeats)
    for name, batch, length in (
        ("raw_kernel", 1, 8192),
        ("ours", 1, 8192),
        ("torch_weights", 1, 8192),
        ("ours_recorded", 1, 8192),
        ("ours_rows", 1, 8192),
        ("keras_additive", 1, 1024),
        ("ours_additive", 1, 1024),
    ):
        command = [sys.executable, __file__, "--peak", name, str(batch), str(length)]
        done = subprocess.run(command, capture_output=True, text=True)
        grown = done.stdout.strip().splitlines()[-1] if done.returncode == 0 else "failed"
        print(f"peak memory, forward, B {batch}, T {length}: {name:16} {grown:>6} MiB", flush=True)


if __name__ == "__main__":
    main()
