"""Resampling of components by plain hooks, to check what is said about compiled models."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from regard.attention.blocks import FeedForward
from regard.attention.layer import attention_layers
from regard.attention.multihead import MultiHeadAttention
from regard.attention.names import short_name
from regard.models.query import QueryModel
from regard.tasks.pairs import Pair
from regard_lab.programs.compiler import Compiled, compile_program
from regard_lab.programs.library import PROGRAMS
from regard_lab.programs.planner import INPUTS


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
    return make_inputs(compiled, ["".join(draw.choices(program.alphabet, k=program.longest)) for _ in range(samples)])


def resample(contexts: Tensor) -> Tensor:
    """Return the contexts of other rows of the batch."""
    return contexts[torch.randperm(len(contexts), generator=torch.Generator().manual_seed(0))]


@contextmanager
def replaced_contexts(model: Any, heads: Mapping[str, list[int]], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
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
    compiled: Compiled, inputs: Inputs, heads: Mapping[str, list[int]], change: Callable[[Tensor], Tensor] = resample
) -> float:
    """Return the share of inputs whose answers change when contexts of heads are replaced together."""
    arguments, answers, is_answer = inputs
    with replaced_contexts(compiled.model, heads, change):
        wrong = (compiled.model(*arguments).argmax(-1) != answers) & is_answer
    return float(wrong.any(1).double().mean())


class EdgePatching:
    """Resampling of edges by plain hooks, in a model without normalization.

    A receiver reads the sum of what its senders write. For each patched edge, the receiver reads what the sender
    writes for another input; all other receivers read what it writes for this input.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.written: dict[str, dict[str, Tensor]] = {}
        """By stack and node: what each head and feed-forward layer writes in the current run, (B, T, D)."""
        self.other: dict[str, dict[str, Tensor]] = {}
        """The same, and the inputs, for the other input."""
        self.edges: set[tuple[str, str]] = set()
        """Edges to patch."""
        self.receivers: dict[str, set[str]] = {}
        """All senders of each receiver."""

    def run(self, arguments: tuple[Tensor, ...], edges: set[tuple[str, str]], order: Tensor) -> Tensor:
        """Return the logits with patched edges, for which the rows `order` are the other inputs."""
        with self._hooks():
            self.edges, self.written, self.other = set(), {}, {}
            self.model(*arguments)
            rows = {
                stack: {node: states[order] for node, states in nodes.items()} for stack, nodes in self.written.items()
            }
            self.edges, self.written, self.other = edges, {}, rows
            logits: Tensor = self.model(*arguments)
        return logits

    def _read(self, stack: str, receiver: str, states: Tensor) -> Tensor:
        """Return what a receiver reads in place of `states` (B, T, D)."""
        nodes = self.written.setdefault(stack, {})
        before = {node: states for node, states in nodes.items() if node != INPUTS}
        nodes[INPUTS] = states - sum(before.values())
        self.receivers[receiver] = set(nodes)
        for sender in sorted(nodes):
            if (sender, receiver) in self.edges:
                states = states - nodes[sender] + self.other[stack][sender]
        return states

    @contextmanager
    def _hooks(self) -> Iterator[None]:
        with ExitStack() as stack:

            def add(handle: Any) -> None:
                stack.callback(handle.remove)

            for name, module in self.model.named_modules():
                short = short_name(name)
                own = "decoder" if short.startswith(("decoder", "cross")) else "encoder"
                if isinstance(module, MultiHeadAttention):
                    memory = "encoder" if short.endswith("cross") else own
                    for part, read in (("query", own), ("key", memory), ("value", memory)):
                        project = partial(self._project, short, part, read, module.heads)
                        add(getattr(module, part).register_forward_hook(project))
                    add(module.output.register_forward_pre_hook(partial(self._write_heads, short, own, module.heads)))
                elif isinstance(module, FeedForward):
                    add(module.register_forward_pre_hook(partial(self._feed, short, own)))
                    add(module.register_forward_hook(partial(self._write, short, own)))
            last = self.model.output if isinstance(self.model, QueryModel) else self.model.decoder.norm
            add(last.register_forward_pre_hook(partial(self._feed, "logits", "decoder")))
            yield

    def _project(self, layer: str, part: str, stack: str, heads: int, module: Any, args: Any, output: Tensor) -> Tensor:
        weights = module.weight.unflatten(0, (heads, -1))
        read = [self._read(stack, f"{layer}.{head}.{part}", args[0]) for head in range(heads)]
        return torch.cat([states @ weights[head].T for head, states in enumerate(read)], dim=-1)

    def _write_heads(self, layer: str, stack: str, heads: int, module: Any, args: Any) -> None:
        contexts, weights = args[0].unflatten(-1, (heads, -1)), module.weight.unflatten(1, (heads, -1))
        for head in range(heads):
            self.written.setdefault(stack, {})[f"{layer}.{head}"] = contexts[..., head, :] @ weights[:, head].T

    def _feed(self, node: str, stack: str, module: Any, args: Any) -> tuple[Tensor]:
        return (self._read(stack, node, args[0]),)

    def _write(self, node: str, stack: str, module: Any, args: Any, output: Tensor) -> None:
        self.written.setdefault(stack, {})[node] = output
