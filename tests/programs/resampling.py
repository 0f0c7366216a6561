"""Resampling of components by plain hooks, to check what is said about compiled models."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.attention import attention_layers, short_name
from regard.programs import PROGRAMS, Compiled, compile_program
from regard.tasks import Pair


@cache
def compiled_program(name: str) -> Compiled:
    """Return a compiled program of the library, compiled once for all tests."""
    return compile_program(PROGRAMS[name])


Inputs = tuple[tuple[Tensor, ...], Tensor, Tensor]
"""Arguments of the model, true answers (B, Tq), and where there is an answer (B, Tq)."""


def make_inputs(compiled: Compiled, texts: list[str]) -> Inputs:
    """Return the inputs for texts of one length."""
    task: Any = compiled.task
    if compiled.program.family == "encoder-decoder":
        batch = task.batch([Pair(text, compiled.program.write(text), ()) for text in texts])
        return (batch.source, batch.source_mask, batch.target_in), batch.target, batch.target != 0
    inputs = torch.cat([task.parse(text) for text in texts])
    answers = task.answer(inputs)
    return (inputs,), answers, answers >= 0


@contextmanager
def resampled_heads(model: Any, heads: Mapping[str, list[int]], order: Tensor) -> Iterator[None]:
    """Replace the contexts of heads, by layer, with those of the rows `order` of the batch."""
    with ExitStack() as stack:
        for name, layer in attention_layers(model).items():
            chosen = heads.get(short_name(name), [])

            def change(module: Any, args: Any, chosen: list[int] = chosen, layer: Any = layer) -> Tensor:
                contexts = args[0].unflatten(-1, (layer.heads, -1)).clone()
                contexts[..., chosen, :] = contexts[order][..., chosen, :]
                return contexts.flatten(-2)

            if chosen:
                stack.callback(layer.output.register_forward_pre_hook(change).remove)
        yield
