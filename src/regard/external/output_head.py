"""The parts of a language model around its residual stream: blocks, output head, and projections of heads."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.activations.forward_tracker import modules_by_name
from regard.activations.hooks import DetachableHook, remove_hooks
from regard.activations.layer_names import find_block
from regard.activations.modules import unwrap
from regard.errors import InputError
from regard.external.adapters import call_model
from regard.external.next_tokens import TokenInput
from regard.models.decoder_only import DecoderOnly
from regard.viz.subject import Layer

AGREEMENT = 1e-3
"""Largest accepted difference from the model's own logits, as a fraction of the largest logit (at least 1)."""


def find_blocks(model: nn.Module, layers: Sequence[Layer]) -> dict[str, nn.Module]:
    """Return the blocks of a model by name: the members of the outermost list that holds attention layers.

    Raises `InputError` if there is no such list.
    """
    modules = modules_by_name(model)
    for layer in layers:
        if (block := find_block(modules, layer.name)) is not None:
            blocks = block.rpartition(".")[0]
            return {f"{blocks}.{name}": part for name, part in modules[blocks].named_children()}
    raise InputError(
        f"{type(unwrap(model)).__name__} has no list of blocks: its layers cannot be read one by one"
    )


@dataclass
class BlockStates:
    """The states between the blocks in one pass, and the modules that run after the last block."""

    names: list[str] = field(default_factory=list)
    """`embeddings`, and the name of each block."""
    states: list[Tensor] = field(default_factory=list)
    """States (T, D) before the first block, and after each block."""
    after: list[tuple[str, Callable[[Tensor], Any]]] = field(default_factory=list)
    """Outermost modules that ran after the last block: final norm and unembedding."""

    def apply_head(self, states: Tensor) -> Tensor:
        """Return the logits (T, V) that the modules after the last block compute from states (T, D)."""
        for _, module in self.after:
            output = module(states.unsqueeze(0))
            states = (output if isinstance(output, Tensor) else output[0])[0]
        return states.float()


@torch.no_grad()
def read_blocks(tokens: TokenInput) -> BlockStates:
    """Run a language model; return the states of its blocks and its output head.

    Raises `InputError` if the modules after the last block do not compute the model's logits.
    """
    model, kind = tokens.subject.model, type(tokens.subject.model).__name__
    result = BlockStates()
    with _watch_blocks(model, find_blocks(model, tokens.subject.layers), result):
        logits = tokens.subject.adapter.logits(call_model(model, tokens.arguments))
    assert logits is not None
    expected = logits[0].float()
    try:
        actual = result.apply_head(result.states[-1])
        largest = float((actual - expected).abs().max())
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        names = ", ".join(name for name, _ in result.after) or "no module"
        raise InputError(f"{kind} runs {names} after its blocks, which is not a known output head") from error
    if not largest <= AGREEMENT * max(1.0, float(expected.abs().max())):
        raise InputError(
            f"{kind} changes its logits after final norm and unembedding (by up to {largest:.3g}): its layers"
            " cannot be read through them"
        )
    count = len(tokens.ids)
    result.states = [states[-count:] for states in result.states]
    return result


@torch.no_grad()
def read_own_blocks(model: DecoderOnly, tokens: Tensor) -> BlockStates:
    """Run one of Regard's decoder-only models on tokens (T,); return the states of its blocks and its output
    head."""
    result = BlockStates()
    blocks = {f"decoder.{number}": block for number, block in enumerate(model.decoder.layers)}
    with _watch_blocks(model, blocks, result):
        model(tokens.unsqueeze(0))
    norm = [] if isinstance(model.decoder.norm, nn.Identity) else [("decoder.norm", model.decoder.norm)]
    result.after = [*norm, ("embedding" if model.output is None else "output", model.logits)]
    return result


@contextmanager
def _watch_blocks(model: nn.Module, blocks: dict[str, nn.Module], result: BlockStates) -> Iterator[None]:
    names = {id(block): name for name, block in blocks.items()}
    after_block, level = False, 0  # level: open modules that began after the last block

    def enter(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal after_block, level
        if id(module) in names:
            after_block = False
            if not result.states:
                result.names.append("embeddings")
                result.states.append((args[0] if args else kwargs["hidden_states"])[0].clone())
        elif after_block:
            if not level:
                result.after.append((name, module))
            level += 1

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal after_block, level
        if id(module) in names:
            after_block, level, result.after = True, 0, []
            name = names[id(module)]
            calls = sum(known.split("#")[0] == name for known in result.names)
            result.names.append(f"{name}#{calls}" if calls else name)
            result.states.append((output if isinstance(output, Tensor) else output[0])[0].clone())
        elif level:
            level -= 1

    hooks: list[Any] = []
    for name, module in model.named_modules():
        before = DetachableHook(lambda module, args, kwargs, name=name: enter(name, module, args, kwargs))
        hooks += [
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(DetachableHook(leave)),
        ]
    with remove_hooks(hooks):
        yield
