"""Forward passes of an external model on one input, with an embedding that can be replaced.

The embedding of an input is the output of the first module that reads the input, and on which the outputs depend
by gradient: an embedding of tokens, a linear layer of one-hot vectors, or a convolution of pixels. Other
floating-point arguments are embeddings themselves.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError, unknown_choice
from regard.external.adapters import (
    Adapter,
    CustomModel,
    PreparedInput,
    call_model,
    find_states,
    prepare_once,
)
from regard.external.language_models import Seq2SeqAdapter
from regard.external.model_input import ModelInput, find_input
from regard.external.recording import recorded_path
from regard.viz import Layer, ProbeInput
from regard.viz.maps import CROSS
from regard.viz.subject import Patchable

Embeddings = dict[tuple[Any, ...], tuple[Any, nn.Module]]
"""By names of the arguments: the name of the argument that is the input, and the embedding."""


def patchable_model(model: nn.Module, adapter: Adapter, inputs: Sequence[ModelInput]) -> Patchable:
    """Return the forward passes of a model; `inputs`: known inputs, which a label may name."""

    def prepare(value: Any, clean: PreparedInput | None = None) -> PreparedInput:
        model_input = find_input(inputs, value)
        if clean is None or not isinstance(adapter, Seq2SeqAdapter) or model_input.target is not None:
            return prepare_once(model, adapter, inputs, value)
        arguments = dict(clean.arguments) | adapter.texts.tensors(model, model_input.value)
        return PreparedInput(input=model_input, arguments=arguments, truth=clean.truth)

    def outputs(prepared: PreparedInput) -> Tensor:
        output = call_model(model, prepared.arguments)
        logits = None if isinstance(adapter, CustomModel) else adapter.logits(output)
        return (find_states(output) if logits is None else logits)[0].float()

    def logits(prepared: PreparedInput, loss: bool) -> Tensor:
        return adapter.outputs(model, prepared, prepared.arguments, 1, loss)[0].float()

    return Patchable(
        prepare,
        outputs,
        partial(_answer_class, adapter, model),
        partial(recorded_path, model),
        logits,
    )


def _answer_class(adapter: Adapter, model: nn.Module, text: str, classes: int) -> int:
    """Return the class with a name, or the first token of a text that is not a special token."""
    texts = getattr(adapter, "texts", None)
    if texts is None:
        names = adapter.names(model, range(classes))
        if text not in names:
            raise unknown_choice("answer", text, names)
        return names.index(text)
    ids = texts.target_ids(text)
    if not ids or not 0 <= ids[0] < classes:
        raise InputError(f"answer {text!r} has no token: give another answer")
    return int(ids[0])


def make_trial(
    model: nn.Module, adapter: Adapter, layers: Sequence[Layer], prepared: PreparedInput, known: Embeddings
) -> ProbeInput:
    """Return an input that accepts a changed embedding; `known`: embeddings that were found before.

    Raises `InputError` for a model without logits, or without an embedding of its inputs.
    """
    arguments = prepared.arguments
    named = dict(arguments) if isinstance(arguments, dict) else dict(enumerate(arguments))
    if tuple(named) not in known:
        known[tuple(named)] = _find_embedding(model, adapter, prepared, named)
    name, embedding = known[tuple(named)]
    passes = _Passes(model, adapter, prepared, named, name, embedding if isinstance(embedding, _Gate) else None)
    tokens = None if named[name].is_floating_point() or named[name].dim() != 2 else named[name]
    cross = [layer.name for layer in layers if layer.kind == CROSS]
    probe = ProbeInput(
        run=passes.run,
        embedding=embedding,
        layers=cross or [layer.name for layer in layers],
        relevant=None,
        causal=adapter.causal,
        tokens=None if tokens is None else tokens[0],
        run_tokens=None if tokens is None else lambda rows: passes.run(len(rows), rows),
        alphabet=_up_to(adapter.alphabet, getattr(embedding, "num_embeddings", None)),
        steps=None if tokens is None else adapter.answer_steps(tokens[0]),
        keys_before=tokens is None,
    )
    if not isinstance(adapter, CustomModel) or adapter.own_loss is None:
        return probe
    return probe._replace(
        loss=probe._replace(
            run=partial(passes.run, loss=True),
            run_tokens=None if tokens is None else lambda rows: passes.run(len(rows), rows, loss=True),
        )
    )


class _Gate(nn.Identity):
    """Module through which a floating-point argument passes, so that a hook can replace it."""


@dataclass(frozen=True)
class _Passes:
    """Runs of a model on copies of one input."""

    model: nn.Module
    adapter: Adapter
    prepared: PreparedInput
    arguments: dict[Any, Any]
    input: Any
    """Name or index of the argument that is the input."""
    gate: nn.Module | None

    def run(self, count: int, rows: Tensor | None = None, *, loss: bool = False) -> Tensor:
        """Return the outputs (N, T, C) of N copies; `rows`: what the copies read instead of the input."""
        copies = {
            name: value.expand(count, *value.shape[1:]) if isinstance(value, Tensor) and len(value) == 1 else value
            for name, value in self.arguments.items()
            if not isinstance(value, Tensor) or value.dim()
        }
        if rows is not None:
            copies[self.input] = rows
        if self.gate is not None:
            copies[self.input] = self.gate(copies[self.input])
        arguments = copies if isinstance(self.prepared.arguments, dict) else tuple(copies.values())
        return self.adapter.outputs(self.model, self.prepared, arguments, count, loss)


def _find_embedding(
    model: nn.Module, adapter: Adapter, prepared: PreparedInput, arguments: dict[Any, Any]
) -> tuple[Any, nn.Module]:
    """Return the name of the argument that is the input, and the module that embeds it.

    The model runs on the input and on the same input with its steps shifted. What differs reads the input; an
    embedding of positions does not differ.
    """
    kind = type(model).__name__
    inputs = {
        name: value
        for name, value in arguments.items()
        if isinstance(value, Tensor) and value.dim() > 1 and value.dtype != torch.bool and "mask" not in str(name)
    }
    main = getattr(model, "main_input_name", None)
    name = main if main in inputs else next(iter(inputs), None)
    if name is None or len(inputs[name]) != 1:
        shapes = ", ".join(str(tuple(value.shape)) for value in inputs.values()) or "no tensor"
        raise InputError(
            f"{kind} reads {shapes}: give one input at a time, with a first dimension of 1 for the batch, such as "
            "tokens (1, T) or states (1, T, D)"
        )
    value = inputs[name]
    other = value.roll(1, 1 if value.dim() < 4 else -1)
    if torch.equal(other, value):
        other = torch.where(value > 0, value - 1, value + 1)
    rows = torch.cat([value, other])

    def first(gate: nn.Module | None, modules: Sequence[nn.Module]) -> nn.Module | None:
        leaves: list[tuple[nn.Module, Tensor]] = []

        def add_leaf(module: nn.Module, args: Any, options: Any, output: Any) -> Tensor | None:
            tensors = [part for part in (*args, *options.values()) if isinstance(part, Tensor)]
            if not isinstance(output, Tensor) or not output.is_floating_point() or len(output) != 2:
                return None
            has_steps = output.dim() > 2 or module is gate
            if not has_steps or any(part.requires_grad for part in tensors) or torch.equal(*output):
                return None
            leaf = output.detach().clone().requires_grad_()
            leaves.append((module, leaf))
            return leaf.clone()  # a model may add to it in place

        with torch.enable_grad(), ExitStack() as stack:
            for module in modules:
                stack.callback(module.register_forward_hook(add_leaf, with_kwargs=True).remove)
            total = _Passes(model, adapter, prepared, arguments, name, gate).run(2, rows).sum()
        if not leaves or not total.requires_grad:
            return None
        gradients = torch.autograd.grad(total, [leaf for _, leaf in leaves], allow_unused=True)
        found = zip(leaves, gradients, strict=True)
        return next((module for (module, _), gradient in found if gradient is not None), None)

    embedding = first(None, [module for module in model.modules() if not list(module.children())])
    if value.is_floating_point() and not isinstance(embedding, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        gate = _Gate()
        embedding = first(gate, [gate])
    if embedding is None:
        raise InputError(
            f"the outputs of {kind} have no gradient to an embedding of its input: its forward must run with "
            "gradients, and embed tokens with a module such as nn.Embedding"
        )
    return name, embedding


def _up_to(tokens: Sequence[int], size: int | None) -> Sequence[int]:
    """Return the tokens, in ascending order, that have an embedding; a tokenizer may have more tokens."""
    if size is None or not tokens or tokens[-1] < size:
        return tokens
    return [token for token in tokens if token < size]
