"""Measure the speed and memory of attention layers of several libraries.

    python benchmarks/attention.py [--times 64 512 2048] [--repeats 5] [--batch 32]

All layers have width 256 and 8 heads, and read batches of 32. The group "multi-head" contains the layers of
Regard, PyTorch, x-transformers and Hugging Face, and PyTorch's fused kernel with the same projections. "With
weights" compares Regard's layer during recording with PyTorch's layer that returns its weights. "Additive"
compares Regard's additive score, which has the matrices W and U, with the additive score of Keras, which has no
matrices. The layers of a group run alternately. The table shows medians, and the ratio to the first layer of
each group. Peak memory is measured in a separate process. The program needs the extra `peers`.
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
from regard.attention.layer import Attention  # noqa: E402
from regard.attention.multihead import MultiHeadAttention  # noqa: E402
from regard.attention.scores import Additive  # noqa: E402

WIDTH, HEADS = 256, 8
Layer = Callable[[Tensor], Tensor]
RECORDING = ExitStack()
"""Recordings that remain active until the process ends."""


class RawKernel(nn.Module):
    """Minimal multi-head attention: four projections and the fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, states: Tensor) -> Tensor:
        """Apply self-attention to states (B, T, D)."""
        heads = [part(states).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.parts[:3]]
        return self.parts[3](F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


def raw_kernel() -> Layer:
    """Build the baseline."""
    return RawKernel()


def regard_layer() -> Layer:
    """Build Regard's layer, without recording."""
    return MultiHeadAttention(WIDTH, HEADS)


def torch_layer() -> Layer:
    """Build PyTorch's layer, which does not return weights."""
    layer = nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=True)
    return lambda states: layer(states, states, states, need_weights=False)[0]


def x_transformers() -> Layer:
    """Build the layer of x-transformers with its fused kernel."""
    from x_transformers.x_transformers import Attention as Peer

    return Peer(WIDTH, heads=HEADS, dim_head=WIDTH // HEADS, flash=True)


def hugging_face() -> Layer:
    """Build the attention layer of Bart with its default implementation."""
    from transformers import BartConfig
    from transformers.models.bart.modeling_bart import BartAttention

    config = BartConfig(d_model=WIDTH)
    config._attn_implementation = "sdpa"
    layer = BartAttention(WIDTH, HEADS, config=config)
    return lambda states: layer(states)[0]


def torch_weights() -> Layer:
    """Build PyTorch's layer, which returns the weights of each head."""
    layer = nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=True)
    return lambda states: layer(states, states, states, average_attn_weights=False)[0]


def regard_recorded() -> Layer:
    """Build Regard's layer, recorded during all calls."""
    layer = MultiHeadAttention(WIDTH, HEADS)
    RECORDING.enter_context(record(layer))
    return layer


def regard_rows() -> Layer:
    """Build Regard's layer, with eight rows recorded during all calls."""
    layer = MultiHeadAttention(WIDTH, HEADS)
    RECORDING.enter_context(record(layer, rows=range(8)))
    return layer


def keras_additive() -> Layer:
    """Build Keras' additive attention, without W and U."""
    import keras

    layer = keras.layers.AdditiveAttention()
    return lambda states: layer([states, states])


def regard_additive() -> Layer:
    """Build Regard's additive attention, with W and U."""
    layer = Attention(Additive(WIDTH))
    return lambda states: layer(states, states, states)


GROUPS: dict[str, list[Callable[[], Layer]]] = {
    "multi-head": [raw_kernel, regard_layer, torch_layer, x_transformers, hugging_face],
    "with weights": [torch_weights, regard_recorded, regard_rows],
    "additive": [keras_additive, regard_additive],
}


def timed(call: Callable[[], Any]) -> float:
    """Return the time of a call in seconds."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def compare(group: str, batch: int, length: int, repeats: int) -> None:
    """Measure a group of layers at one size, and print its rows."""
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
    timings: dict[str, list[list[float]]] = {name: [[], []] for name in layers}
    for repeat in range(repeats + 1):
        for name, layer in layers.items():
            for way, run in enumerate((forward, both)):
                seconds = timed(lambda run=run, layer=layer: run(layer))  # type: ignore[misc]
                if repeat:  # the first warms up
                    timings[name][way].append(seconds)
    first: list[float] = []
    for name, ways in timings.items():
        medians = [statistics.median(way) for way in ways]
        first = first or medians
        cells = [f"{m * 1e3:9.1f} ms ({b / m:4.2f}x)" for m, b in zip(medians, first, strict=True)]
        print(f"  {name:16} forward {cells[0]}   forward + backward {cells[1]}", flush=True)


def peak(name: str, batch: int, length: int) -> None:
    """Run the forward pass of a layer in this process, and print the increase in peak memory."""
    layer = next(make for group in GROUPS.values() for make in group if make.__name__ == name)()
    with torch.no_grad():
        layer(torch.randn(1, 64, WIDTH))
        states = torch.randn(batch, length, WIDTH)
        before = peak_memory()
        layer(states)
    print(f"{peak_memory() - before:.0f}")


def peak_memory() -> float:
    """Return the peak memory of this process in MiB (Linux; `getrusage` includes the parent's peak)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Run all measurements."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, nargs="+", default=[64, 512, 2048], help="lengths T (default: all)")
    parser.add_argument("--repeats", type=int, default=5, help="timed repetitions, fewer for long T (default: 5)")
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
        # Keras' additive score stores three tensors of all pairs, which must fit into memory.
        compare("additive", max(1, min(args.batch, 32 * 64 * 64 * 8 // length**2)), length, repeats)
    for name, batch, length in (
        ("raw_kernel", 1, 8192),
        ("regard_layer", 1, 8192),
        ("torch_weights", 1, 8192),
        ("regard_recorded", 1, 8192),
        ("regard_rows", 1, 8192),
        ("keras_additive", 1, 1024),
        ("regard_additive", 1, 1024),
    ):
        command = [sys.executable, __file__, "--peak", name, str(batch), str(length)]
        done = subprocess.run(command, capture_output=True, text=True)
        growth = done.stdout.strip().splitlines()[-1] if done.returncode == 0 else "failed"
        print(f"peak memory, forward, B {batch}, T {length}: {name:16} {growth:>6} MiB", flush=True)


if __name__ == "__main__":
    main()
