"""Compare implementations of the parts of a training step: loss, attention, positions, dropout.

    python benchmarks/kernels.py [--rounds 15]

The program times forward and backward passes on a CPU, with the shapes of a batch of 4,000 tokens of the tiny
Transformer. The two implementations of a part alternate. The program prints medians in milliseconds.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from flags import count
from torch import Tensor

from regard.attention import layer as layer_call
from regard.attention.blocks import Dropout
from regard.attention.functional import attention_weights
from regard.attention.multihead import MultiHeadAttention
from regard.attention.positions import Rotary
from regard.training.objective import cross_entropy

WIDTH, HEADS, SYMBOLS, TOKENS, RATE, SMOOTHING = 128, 4, 12_000, 4000, 0.2, 0.1
AGREEMENT = 3.0
"""Alpha of R-Drop."""
LENGTHS = (13, 27, 64, 128)

Work = Callable[[], Tensor]


def in_bfloat16(work: Work) -> Work:
    """Wrap a function to use matrix products in bfloat16."""

    def run() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return work()

    return run


def losses() -> tuple[Work, Work]:
    """Return PyTorch's cross-entropy over all logits, and Regard's in chunks."""
    states = torch.randn(TOKENS, WIDTH, requires_grad=True)
    weight = torch.nn.Parameter(torch.randn(SYMBOLS, WIDTH) * 0.1)
    target = torch.randint(4, SYMBOLS, (TOKENS,))
    return (
        lambda: F.cross_entropy(states @ weight.T, target, label_smoothing=SMOOTHING, reduction="sum"),
        lambda: cross_entropy(states.unsqueeze(0), (weight, None), target, SMOOTHING)[0],
    )


def disagreements() -> tuple[Work, Work]:
    """Return R-Drop's loss over all logits of two passes, and Regard's in chunks."""
    states = torch.randn(2, TOKENS // 2, WIDTH, requires_grad=True)
    weight = torch.nn.Parameter(torch.randn(SYMBOLS, WIDTH) * 0.1)
    target = torch.randint(4, SYMBOLS, (TOKENS // 2,))

    def plain() -> Tensor:
        logits = states @ weight.T
        loss = F.cross_entropy(logits.flatten(0, 1), target.repeat(2), label_smoothing=SMOOTHING, reduction="sum")
        first, second = logits.log_softmax(-1)
        forward = F.kl_div(second, first, log_target=True, reduction="sum")
        backward = F.kl_div(first, second, log_target=True, reduction="sum")
        return loss + AGREEMENT / 2 * (forward + backward)

    return plain, lambda: cross_entropy(states, (weight, None), target, SMOOTHING, AGREEMENT)[0]


def softmaxes(length: int) -> tuple[Work, Work]:
    """Return PyTorch's and Regard's softmax of the scores of all heads."""
    scores = torch.randn(TOKENS // length, HEADS, length, length, requires_grad=True)
    return lambda: scores.softmax(-1).sum(), lambda: attention_weights(scores).sum()


def attentions(length: int) -> tuple[Work, Work]:
    """Return an attention layer with PyTorch's fused kernel, and with explicit weights."""
    batch = TOKENS // length
    layer = MultiHeadAttention(WIDTH, HEADS)
    states = torch.randn(batch, length, WIDTH, requires_grad=True)
    mask = (torch.arange(length) < torch.randint(length - 2, length + 1, (batch, 1))).unsqueeze(1)

    def attend(short: int) -> Work:
        def run() -> Tensor:
            layer_call.SHORT = short
            total: Tensor = layer(states, mask=mask).float().sum()
            return total

        return run

    return attend(0), attend(length)


def rotations(length: int) -> tuple[Work, Work]:
    """Return rotary positions computed with sines and cosines, and as a product of complex numbers."""
    states = torch.randn(TOKENS // length, length, WIDTH, requires_grad=True)
    gradient = torch.randn(TOKENS // length, HEADS, length, WIDTH // HEADS)
    rotary = Rotary(WIDTH // HEADS)

    def split_heads() -> Tensor:
        heads: Tensor = states.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return heads

    def plain() -> Tensor:
        sin, cos = rotary.waves.vectors(0, length, states.device).unflatten(-1, (-1, 2)).unbind(-1)
        even, odd = split_heads().unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)

    # The heads are multiplied by random numbers, because the gradient of a plain sum is constant.
    return lambda: (plain() * gradient).sum(), lambda: (rotary.rotate(split_heads()) * gradient).sum()


def dropouts() -> tuple[Work, Work]:
    """Return dropout with a random float per value, and with a random byte per value."""
    states = torch.randn(TOKENS, WIDTH, requires_grad=True)
    ours = Dropout(RATE)
    return lambda: F.dropout(states, RATE).sum(), lambda: ours(states).sum()


def compare(name: str, implementations: tuple[Work, Work], rounds: int) -> None:
    """Print a line: PyTorch's time, Regard's time, and the ratio."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 2):
        for work, seconds in zip(implementations, times, strict=True):
            began = time.perf_counter()
            work().backward()
            seconds.append(time.perf_counter() - began)
    theirs, ours = (statistics.median(seconds[2:]) * 1e3 for seconds in times)
    print(f"| {name} | {theirs:.2f} | {ours:.2f} | {theirs / ours:.1f} |", flush=True)


def main() -> None:
    """Run all measurements, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=count, default=15, help="number of calls of each part (default: 15)")
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    print("| part | PyTorch, ms | Regard, ms | ratio |\n| --- | ---: | ---: | ---: |")
    theirs, ours = losses()
    compare(f"cross-entropy over {SYMBOLS:,} symbols, float32", (theirs, ours), rounds)
    compare(f"cross-entropy over {SYMBOLS:,} symbols, bfloat16", (in_bfloat16(theirs), in_bfloat16(ours)), rounds)
    theirs, ours = disagreements()
    compare("cross-entropy of two passes with R-Drop, bfloat16", (in_bfloat16(theirs), in_bfloat16(ours)), rounds)
    compare(f"softmax over {LENGTHS[0]} positions", softmaxes(LENGTHS[0]), rounds)
    for length in LENGTHS:
        theirs, ours = attentions(length)
        compare(f"attention layer, {length} positions, float32", (theirs, ours), rounds)
        compare(f"attention layer, {length} positions, bfloat16", (in_bfloat16(theirs), in_bfloat16(ours)), rounds)
    for length in LENGTHS[:2]:
        compare(f"rotary positions of all heads, {length} positions", rotations(length), rounds)
    compare("dropout", dropouts(), rounds)


if __name__ == "__main__":
    main()
