"""Record all intermediate values of attention layers while a model answers an input."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention.hooks import (
    AttentionLayer,
    LayerCall,
    attach_hooks,
    attention_layers,
    find_layer,
    trace_layer,
    with_receiver,
)
from regard.attention.interventions import temper
from regard.errors import check_range
from regard.viz.attention_map import AttentionMap
from regard.viz.records import skip_original
from regard.viz.subject import Input, Subject


class LayerRow(NamedTuple):
    """All values that a layer computes for one query, in float64 on the CPU."""

    query: Tensor
    """(H, D)."""
    key: Tensor
    """(H, Tk, any)."""
    value: Tensor
    """(H, Tk, Dv)."""
    scores: Tensor
    """(H, Tk)."""
    mask: Tensor | None
    """(H, Tk) bool, True = may attend."""
    weights: Tensor
    """(H, Tk)."""
    context: Tensor
    """(H, Dv)."""


class AnswerTrace(TorchFunctionMode):
    """The calls of one attention layer in the last pass of a model, and the operations that follow the layer.

    A pass begins with the first query of the layer; earlier passes are discarded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.insides: list[LayerCall] = []
        """The calls of the layer, of the last pass after the block of `trace_answer`."""
        self.z: list[Tensor] = []
        """The contexts (B, Tq, H, Dv) of each call after all changes, as the output projection reads them."""
        self.out: list[Tensor] = []
        """The output (B, Tq, D) of each call."""
        self.norm: tuple[Tensor, Tensor] | None = None
        """Input and output of the first normalization after the layer."""
        self.state: Tensor | None = None
        """Input of the last matrix product of the model."""
        self.logits: Tensor | None = None

    def receive(self, kind: str, value: Tensor, step: int | None) -> Tensor:
        if kind == "z" and not step:
            self.z, self.out, self.norm = [], [], None
        (self.z if kind == "z" else self.out).append(value)
        return value

    def record_logits(self, model: nn.Module, inputs: object, logits: Tensor) -> None:
        del model, inputs
        self.logits = logits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a PyTorch function, and record matrix products and normalizations."""
        result = func(*args, **(kwargs or {}))
        if func is F.linear:
            self.state = args[0]
        elif func in (F.layer_norm, F.rms_norm) and self.out and self.norm is None:
            self.norm = (args[0], result)
        return result


def read_layer_row(insides: Sequence[LayerCall], output: int) -> LayerRow:
    """Return the values of one query of a layer that processes all queries at once or step by step."""
    # A Transformer processes all queries in one call; a recurrent decoder processes one query per call.
    at_once = insides[0].step is None
    check_range("output", output, 0, (insides[0].query.shape[2] if at_once else len(insides)) - 1)
    inside, row = (insides[0], output) if at_once else (insides[output], 0)
    mask = None if inside.mask is None else inside.mask.expand_as(inside.scores)[0, :, row].cpu()
    # The values are float64, so that displayed sums and products agree with each other to all displayed digits.
    query, scores, weights, context = (
        values[0, :, row].double().cpu()
        for values in (inside.query, inside.scores, inside.weights, inside.context)
    )
    return LayerRow(
        query, inside.key[0].double().cpu(), inside.value[0].double().cpu(), scores, mask, weights, context
    )


class TracedAnswer(NamedTuple):
    """The attention map of an answer, and the traces of some layers."""

    shown: AttentionMap
    layers: list[tuple[AttentionLayer, AnswerTrace]]
    """The layers in the requested order."""


def trace_answer(
    subject: Subject[Input],
    input: str | None,
    layers: Sequence[str],
    *,
    seed: int = 0,
    temperature: float = 1.0,
    head: int = 0,
) -> TracedAnswer:
    """Answer an input, and trace some layers.

    `input`: by default an input drawn with `seed`. `temperature`: divides the scores of `head` in these layers.
    Raises `InputError` for an unknown layer or head.
    """
    modules = [find_layer(subject.model, layer) for layer in layers]
    traced = [(layer, AnswerTrace()) for layer in modules]
    names = {id(module): name for name, module in attention_layers(subject.model).items()}
    # A second pass without the interventions would replace the trace of the first pass.
    with skip_original(), ExitStack() as stack:
        for layer, trace in traced:
            check_range("head", head, 0, layer.heads - 1)
            stack.callback(subject.model.register_forward_hook(trace.record_logits).remove)
            if temperature != 1:
                stack.enter_context(temper(subject.model, names[id(layer)], temperature, heads=[head]))
            trace.insides = stack.enter_context(trace_layer(layer))
            stack.enter_context(attach_hooks({layer: with_receiver(layer.hook, ("z", "out"), trace.receive)}))
            stack.enter_context(trace)
        shown = subject.attend(input, seed=seed)
    for _, trace in traced:
        trace.insides = last_pass(trace.insides)
    return TracedAnswer(shown, traced)


def last_pass(calls: list[LayerCall]) -> list[LayerCall]:
    """Return the calls of a layer in its last pass, which begins with the first query of the layer."""
    starts = [index for index, call in enumerate(calls) if not call.step]
    return calls[starts[-1] :] if starts else calls
