"""Batches of a search that decode together: waiting sources refill the places of finished sources.

The search of a batch is a generator. It yields the tokens of a step and the decoder's state before the step,
and receives the logits and the state after the step. Batches that decode together share the products with the
model's matrices, but each batch keeps its own step number, prefixes and constraints. Therefore, the answers are
those of separate batches, except for rounding errors.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard.decoding.incremental import IncrementalDecoder
from regard.fast.fast_transformer import FastTransformer

Output = TypeVar("Output")
Steps = Generator[tuple[Tensor, Any], tuple[Tensor, Any], Output]
"""The search of a batch: yields tokens (B, K) and a state, and receives logits (B, K, V) and the next state."""
MIN_FREE = 0.75
"""Smallest share of free places that is refilled. With smaller shares, more batches decode together, which need
more operations per step: greedy search and a beam of 5 are fastest from 0.75 to 0.9."""


@torch.inference_mode()
def run_batch(decoder: IncrementalDecoder, batch: Steps[Output]) -> Output:
    """Return the result of the search of a batch."""
    results: list[Output] = []

    def collect() -> Steps[None]:
        results.append((yield from batch))

    waiting = iter([collect()])
    run_batches(decoder, lambda _: next(waiting, None), 1)
    return results[0]


@torch.inference_mode()
def run_batches(
    decoder: IncrementalDecoder, next_batch: Callable[[int], Steps[None] | None], places: int
) -> None:
    """Run the searches of batches until `next_batch` returns None.

    `next_batch`: function from the number of free places to the search of at most as many sources. `places`:
    number of sources that are decoded at a time.
    """
    live: list[tuple[Steps[None], Tensor, Any]] = []
    while True:
        free = places - sum(len(tokens) for _, tokens, _ in live)
        if not live or (free >= MIN_FREE * places and isinstance(decoder, FastTransformer)):
            batch = next_batch(free)
            if batch is not None:
                live.append((batch, *next(batch)))
        if not live:
            return
        after = []
        for (batch, _, _), output in zip(live, _step(decoder, live), strict=True):
            try:
                after.append((batch, *batch.send(output)))
            except StopIteration:
                continue
        live = after


def _step(decoder: IncrementalDecoder, live: list[tuple[Steps[None], Tensor, Any]]) -> list[tuple[Tensor, Any]]:
    """Return logits (B, K, V) and the next state of each batch."""
    if not isinstance(decoder, FastTransformer):
        [(_, tokens, state)] = live
        states, state = decoder.step(tokens, state)
        return [(decoder.logits(states), state)]
    logits = decoder.logits(decoder.step_together([(tokens, state) for _, tokens, state in live]))
    rows = logits.split([tokens.numel() for _, tokens, _ in live])
    return [(part.view(*tokens.shape, -1), state) for part, (_, tokens, state) in zip(rows, live, strict=True)]
