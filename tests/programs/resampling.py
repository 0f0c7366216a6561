"""Resampling of components by plain hooks, to check what is said about compiled models."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
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


def draw_inputs(compiled: Compiled, samples: int = 100) -> Inputs:
    """Return inputs of the largest length."""
    program, draw = compiled.program, random.Random(0)
    return make_inputs(
        compiled, ["".join(draw.choices(program.alphabet, k=program.longest)) for _ in range(samples)]
    )


def resample(contexts: Tensor) -> Tensor:
    """Return the contexts of other rows of the batch."""
    return contexts[torch.randperm(len(contexts), generator=torch.Generator().manual_seed(0))]


@contextmanager
def replaced_contexts(
    model: Any, heads: Mapping[str, list[int]], change: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """Replace the contexts of heads, by layer, with the result of `change` for all contexts (B, T, H, Dv)."""
    with ExitStack() as stack:
        for name, layer in attention_layers(model).items():

            def replace(module: Any, args: Any, chosen: list[int], count: int) -> tuple[Tensor]:
                contexts = args[0].unflatten(-1, (count, -1))
                is_chosen = torch.zeros(count, dtype=torch.bool).index_fill(0, torch.tensor(chosen), True)
                return (torch.where(is_chosen[:, None], change(contexts), contexts).flatten(-2),)

            if chosen := heads.get(short_name(name)):
                hook = partial(replace, chosen=chosen, count=layer.heads)
                stack.callback(layer.output.register_forward_pre_hook(hook).remove)  # type: ignore[union-attr]
        yield


@torch.inference_mode()
def changed_answers(
    compiled: Compiled,
    inputs: Inputs,
    heads: Mapping[str, list[int]],
    change: Callable[[Tensor], Tensor] = resample,
) -> float:
    """Return the share of inputs whose answers change when contexts of heads are replaced together."""
    arguments, answers, is_answer = inputs
    with replaced_contexts(compiled.model, heads, change):
        wrong = (compiled.model(*arguments).argmax(-1) != answers) & is_answer
    return float(wrong.any(1).double().mean())
