"""What happens in a model while it answers: all that one of its layers works out, and what becomes of it."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention import AttentionLayer, Inside, find_layer, temper, watching
from regard.attention import layers_of as attention_layers
from regard.errors import check_range
from regard.viz.attention_map import AttentionMap
from regard.viz.intervened import answered_once
from regard.viz.subject import Input, Subject


class LayerRow(NamedTuple):
    """All that a layer worked out for one query, in float64 on the CPU."""

    query: Tensor
    """(H, D)."""
    key: Tensor
    """(H, Tk, any)."""
    value: Tensor
    """(H, Tk, Dv)."""
    scores: Tensor
    """(H, Tk)."""
    mask: Tensor | None
    """(H, Tk) bool."""
    weights: Tensor
    """(H, Tk)."""
    context: Tensor
    """(H, Dv)."""


class AnswerTrace(TorchFunctionMode):
    """What happens in a model from the last time on that a layer began with the first query."""

    def __init__(self) -> None:
        super().__init__()
        self.insides: list[Inside] = []
        self.added: Tensor | None = None
        """What the first matrix product after the layer made, (B, Tq, D): of several heads, their output."""
        self.norm: tuple[Tensor, Tensor] | None = None
        """The first normalisation after the layer: what came and what went."""
        self.state: Tensor | None = None
        """What the last matrix product of all multiplied."""
        self.logits: Tensor | None = None

    def looked(self, inside: Inside) -> None:
        """Take note of a call of the layer."""
        if inside.step in (None, 0):
            self.insides, self.added, self.norm = [], None, None
        self.insides.append(inside)

    def answered(self, model: nn.Module, inputs: object, logits: Tensor) -> None:
        """Take note of what the model returned: a forward hook."""
        del model, inputs
        self.logits = logits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of PyTorch's, and take note of those that matter."""
        result = func(*args, **(kwargs or {}))
        if func is F.linear:
            self.state = args[0]
            if self.insides and self.added is None:
                self.added = result
        elif func is F.layer_norm and self.insides and self.norm is None:
            self.norm = (args[0], result)
        return result


def read_layer_row(insides: Sequence[Inside], output: int) -> LayerRow:
    """Return what a layer worked out for one query, whether it took them all at once or one by one."""
    at_once = insides[0].step is None
    check_range("output", output, 0, (insides[0].query.shape[2] if at_once else len(insides)) - 1)
    found, row = (insides[0], output) if at_once else (insides[output], 0)
    mask = None if found.mask is None else found.mask.expand_as(found.scores)[0, :, row].cpu()
    query, scores, weights, context = (
        each[0, :, row].double().cpu() for each in (found.query, found.scores, found.weights, found.context)
    )
    return LayerRow(
        query, found.key[0].double().cpu(), found.value[0].double().cpu(), scores, mask, weights, context
    )


class TracedAnswer(NamedTuple):
    """An answer, and what happened in some layers on the way."""

    shown: AttentionMap
    layers: list[tuple[AttentionLayer, AnswerTrace]]
    """In the order asked for."""


def trace_answer(
    subject: Subject[Input],
    input: str | None,
    layers: Sequence[str],
    *,
    seed: int = 0,
    temperature: float = 1.0,
    head: int = 0,
) -> TracedAnswer:
    """Answer an input, or one drawn by `seed`, and keep what some layers worked out meanwhile.

    `temperature`: what the scores of `head` are divided by in these layers. Raises `InputError` for a layer or
    head that is not there.
    """
    found = [find_layer(subject.model, layer) for layer in layers]
    followed = [(layer, AnswerTrace()) for layer in found]
    names = {id(one): name for name, one in attention_layers(subject.model).items()}
    with answered_once(), ExitStack() as stack:
        for layer, events in followed:
            check_range("head", head, 0, layer.heads - 1)
            stack.callback(subject.model.register_forward_hook(events.answered).remove)
            if temperature != 1:
                stack.enter_context(temper(subject.model, names[id(layer)], temperature, heads=[head]))
            stack.enter_context(watching(layer, events.looked))
            stack.enter_context(events)
        shown = subject.attend(input, seed=seed)
    return TracedAnswer(shown, followed)
