"""What a training step of the Transformer is made of, beside PyTorch's own: loss, attention, positions, dropout.

    python benchmarks/kernels.py [--rounds 15]

Forwards and backwards on a CPU, with the shapes of a batch of 4,000 tokens of the tiny Transformer; each
contestant in turn, medians, milliseconds.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention import Dropout, MultiHeadAttention, Rotary, attention_weights
from regard.attention import attend as layer_call
from regard.training.cross_entropy import cross_entropy

WIDTH, HEADS, SYMBOLS, TOKENS, RATE, SMOOTHING = 128, 4, 12_000, 4000, 0.2, 0.1
AGREEMENT = 3.0
"""Alpha of R-Drop."""
LENGTHS = (13, 27, 64, 128)

Work = Callable[[], Tensor]


def in_bfloat16(work: Work) -> Work:
    """Return the work with matrix products in bfloat16."""

    def run() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return work()

    return run


def losses() -> tuple[Work, Work]:
    """PyTorch's cross-entropy over all logits, and ours in chunks."""
    states = torch.randn(TOKENS, WIDTH, requires_grad=True)
    weight = torch.nn.Parameter(torch.randn(SYMBOLS, WIDTH) * 0.1)
    target = torch.randint(4, SYMBOLS, (TOKENS,))
    return (
        lambda: F.cross_entropy(states @ weight.T, target, label_smoothing=SMOOTHING, reduction="sum"),
        lambda: cross_entropy(states.unsqueeze(0), (weight, None), target, SMOOTHING)[0],
    )


def disagreements() -> tuple[Work, Work]:
    """R-Drop's loss over all logits of two passes, and ours in chunks."""
    states = torch.randn(2, TOKENS // 2, WIDTH, requires_grad=True)
    weight = torch.nn.Parameter(torch.randn(SYMBOLS, WIDTH) * 0.1)
    target = torch.randint(4, SYMBOLS, (TOKENS // 2,))

    def plain() -> Tensor:
        logits = states @ weight.T
        loss = F.cross_entropy(logits.flatten(0, 1), target.repeat(2), label_smoothing=SMOOTHING, reduction="sum")
        one, two = logits.log_softmax(-1)
        there = F.kl_div(two, one, log_target=True, reduction="sum")
        back = F.kl_div(one, two, log_target=True, reduction="sum")
        return loss + AGREEMENT / 2 * (there + back)

    return plain, lambda: cross_entropy(states, (weight, None), target, SMOOTHING, AGREEMENT)[0]


def softmaxes(length: int) -> tuple[Work, Work]:
    """The weights of all heads from their scores."""
    scores = torch.randn(TOKENS // length, HEADS, length, length, requires_grad=True)
    return lambda: scores.softmax(-1).sum(), lambda: attention_weights(scores).sum()


def attentions(length: int) -> tuple[Work, Work]:
    """A layer through PyTorch's fused kernel, and with weights worked out one after the other."""
    batch = TOKENS // length
    layer = MultiHeadAttention(WIDTH, HEADS)
    states = torch.randn(batch, length, WIDTH, requires_grad=True)
    mask = (torch.arange(length) < torch.randint(length - 2, length + 1, (batch, 1))).unsqueeze(1)

    def attend(short: int) -> Work:
        def run() -> Tensor:
            layer_call.SHORT = short
            found: Tensor = layer(states, mask=mask).float().sum()
            return found

        return run

    return attend(0), attend(length)


def rotations(length: int) -> tuple[Work, Work]:
    """Heads turned by rotary positions: as one writes it out, and by a product of complex numbers."""
    states = torch.randn(TOKENS // length, length, WIDTH, requires_grad=True)
    beyond = torch.randn(TOKENS // length, HEADS, length, WIDTH // HEADS)
    rotary = Rotary(WIDTH // HEADS)

    def heads() -> Tensor:
        found: Tensor = states.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return found

    def plain() -> Tensor:
        sin, cos = rotary.waves.vectors(0, length, states.device).unflatten(-1, (-1, 2)).unbind(-1)
        even, odd = heads().unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)

    # A sum's gradient is one number for all values, so a product stands for what is done with the heads.
    return lambda: (plain() * beyond).sum(), lambda: (rotary.rotate(heads()) * beyond).sum()


def dropouts() -> tuple[Work, Work]:
    """A random number for each value, and a byte."""
    states = torch.randn(TOKENS, WIDTH, requires_grad=True)
    ours = Dropout(RATE)
    return lambda: F.dropout(states, RATE).sum(), lambda: ours(states).sum()


def compare(name: str, contestants: tuple[Work, Work], rounds: int) -> None:
    """Print a line: PyTorch's time, ours, and the ratio."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 2):
        for work, found in zip(contestants, times, strict=True):
            began = time.perf_counter()
            work().backward()
            found.append(time.perf_counter() - began)
    theirs, mine = (statistics.median(found[2:]) * 1e3 for found in times)
    print(f"| {name} | {theirs:.2f} | {mine:.2f} | {theirs / mine:.1f} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="times each is run (default: 15)")
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    print("| what | PyTorch, ms | Regard, ms | ratio |\n| --- | ---: | ---: | ---: |")
    theirs, mine = losses()
    compare(f"cross-entropy over {SYMBOLS:,} symbols, float32", (theirs, mine), rounds)
    compare("the same, bfloat16", (in_bfloat16(theirs), in_bfloat16(mine)), rounds)
    theirs, mine = disagreements()
    compare("cross-entropy of two passes with R-Drop, bfloat16", (in_bfloat16(theirs), in_bfloat16(mine)), rounds)
    compare(f"softmax over {LENGTHS[0]} steps", softmaxes(LENGTHS[0]), rounds)
    for length in LENGTHS:
        theirs, mine = attentions(length)
        compare(f"attention layer, {length} steps, float32", (theirs, mine), rounds)
        compare("the same, bfloat16", (in_bfloat16(theirs), in_bfloat16(mine)), rounds)
    for length in LENGTHS[:2]:
        compare(f"heads turned by rotary positions, {length} steps", rotations(length), rounds)
    compare("dropout", dropouts(), rounds)


if __name__ == "__main__":
    main()
