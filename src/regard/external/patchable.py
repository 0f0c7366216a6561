"""Forward passes of an external model on one input, with an embedding that can be replaced.

The embedding of an input is the output of the first module that reads the input, and on which the outputs depend
by gradient: an embedding of tokens, a linear layer of one-hot vectors, or a convolution of pixels. Any other
floating-point input is its own embedding.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.activations.weights import recorded_path
from regard.errors import InputError, unknown_choice
from regard.external.adapters import (
    Adapter,
    CustomModel,
    PreparedInput,
    Seq2SeqAdapter,
    call_model,
    find_states,
    prepare_once,
)
from regard.external.model_input import ModelInput, find_input
from regard.viz.maps import CROSS
from regard.viz.subject import Layer, Patchable, ProbeInput

Embeddings = dict[tuple[Any, ...], nn.Module]
"""By names of the arguments: the embedding."""


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

    def answer_class(text: str, classes: int, argument: str = "answer") -> int:
        texts = getattr(adapter, "texts", None)
        if texts is None:
            names = adapter.names(model, range(classes))
            if text not in names:
                raise unknown_choice(argument, text, names)
            return names.index(text)
        ids = texts.target_ids(text)
        if not ids or not 0 <= ids[0] < classes:
            raise InputError(f"{argument} {text!r} has no token: give another text")
        return int(ids[0])

    return Patchable(prepare, outputs, answer_class, partial(recorded_path, model), logits)


def make_trial(
    model: nn.Module, adapter: Adapter, layers: Sequence[Layer], prepared: PreparedInput, known: Embeddings
) -> ProbeInput:
    """Return an input that accepts a changed embedding; `known`: embeddings that were found before.

    Raises `InputError` for a model without logits, or without an embedding of its inputs.
    """
    passes = _Passes(model, adapter, prepared)
    embedding = known[names] if (names := tuple(passes.arguments)) in known else passes.find_embedding()
    known[names] = embedding
    passes.gate = embedding if isinstance(embedding, _Gate) else None
    is_tokens = passes.input.dim() == 2 and not passes.input.is_floating_point()
    # A tokenizer may have more tokens than the model has embeddings.
    size, alphabet = getattr(embedding, "num_embeddings", None), adapter.alphabet
    if size is not None and alphabet and alphabet[-1] >= size:
        alphabet = [token for token in alphabet if token < size]

    def probe(loss: bool) -> ProbeInput:
        return ProbeInput(
            run=partial(passes.run, loss=loss),
            embedding=embedding,
            layers=[layer.name for layer in layers if layer.kind == CROSS] or [layer.name for layer in layers],
            relevant=None,
            causal=adapter.causal,
            tokens=passes.input[0] if is_tokens else None,
            run_tokens=(lambda rows: passes.run(len(rows), rows, loss=loss)) if is_tokens else None,
            alphabet=alphabet,
            steps=adapter.answer_steps(passes.input[0]) if is_tokens and not loss else None,
            keys_before=not is_tokens,
        )

    has_loss = isinstance(adapter, CustomModel) and adapter.own_loss is not None
    return probe(loss=False)._replace(loss=probe(loss=True) if has_loss else None)


class _Gate(nn.Identity):
    """Module through which a floating-point input passes, so that a hook can replace it."""


class _Passes:
    """Runs of a model on copies of one input."""

    gate: nn.Module | None = None

    def __init__(self, model: nn.Module, adapter: Adapter, prepared: PreparedInput) -> None:
        """Find the argument that is the input; raises `InputError` unless it has one row."""
        self.model, self.adapter, self.prepared = model, adapter, prepared
        arguments = prepared.arguments
        self.arguments = dict(arguments if isinstance(arguments, dict) else enumerate(arguments))
        inputs = {
            name: value
            for name, value in self.arguments.items()
            if isinstance(value, Tensor) and value.dim() > 1 and value.dtype != torch.bool and "mask" not in str(name)
        }
        main = getattr(model, "main_input_name", None)
        self.name: Any = main if main in inputs else next(iter(inputs), None)
        if self.name is None or len(inputs[self.name]) != 1:
            shapes = ", ".join(str(tuple(value.shape)) for value in inputs.values()) or "no tensor"
            raise InputError(
                f"{type(model).__name__} gets {shapes}: give one input in a batch of 1, such as tokens (1, T) or "
                "states (1, T, D)"
            )
        self.input = inputs[self.name]

    def run(self, count: int, rows: Tensor | None = None, *, loss: bool = False) -> Tensor:
        """Return the outputs (N, T, C) of N copies; `rows`: what the copies read instead of the input."""
        copies = {
            name: value.expand(count, *value.shape[1:])
            if isinstance(value, Tensor) and value.dim() and len(value) == 1
            else value
            for name, value in self.arguments.items()
        }
        if rows is not None:
            copies[self.name] = rows
        if self.gate is not None:
            copies[self.name] = self.gate(copies[self.name])
        arguments = copies if isinstance(self.prepared.arguments, dict) else tuple(copies.values())
        return self.adapter.outputs(self.model, self.prepared, arguments, count, loss)

    def find_embedding(self) -> nn.Module:
        """Return the embedding; raises `InputError` if no output depends on one.

        The model runs on the input and on the same input with its steps shifted. What differs reads the input: an
        embedding of positions does not.
        """
        embedding = self._first([module for module in self.model.modules() if not list(module.children())])
        if self.input.is_floating_point() and not isinstance(embedding, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            self.gate = _Gate()
            embedding = self._first([self.gate])
        if embedding is None:
            raise InputError(
                f"the outputs of {type(self.model).__name__} have no gradient to an embedding of the input: "
                "embed tokens with a module such as nn.Embedding, and run without torch.no_grad"
            )
        return embedding

    @torch.enable_grad()
    def _first(self, modules: Sequence[nn.Module]) -> nn.Module | None:
        other = self.input.roll(1, 1 if self.input.dim() < 4 else -1)
        if torch.equal(other, self.input):
            other = torch.where(self.input > 0, self.input - 1, self.input + 1)
        leaves: list[tuple[nn.Module, Tensor]] = []

        def add_leaf(module: nn.Module, args: Any, options: Any, output: Any) -> Tensor | None:
            reads = [part for part in (*args, *options.values()) if isinstance(part, Tensor)]
            if not isinstance(output, Tensor) or not output.is_floating_point() or len(output) != 2:
                return None
            has_steps = output.dim() > 2 or isinstance(module, _Gate)
            if not has_steps or any(part.requires_grad for part in reads) or torch.equal(*output):
                return None
            leaves.append((module, output.detach().clone().requires_grad_()))
            return leaves[-1][1].clone()  # a model may add to it in place

        with ExitStack() as stack:
            for module in modules:
                stack.callback(module.register_forward_hook(add_leaf, with_kwargs=True).remove)
            total = self.run(2, torch.cat([self.input, other])).sum()
        if not leaves or not total.requires_grad:
            return None
        gradients = torch.autograd.grad(total, [leaf for _, leaf in leaves], allow_unused=True)
        found = zip(leaves, gradients, strict=True)
        return next((module for (module, _), gradient in found if gradient is not None), None)
