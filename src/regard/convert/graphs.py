"""A model as two graphs of ONNX: one that reads sources, and one that takes one step of the search.

    encoder    source (B, Ts) int64                ->  the first state, weights
    decoder    token (B, 1) int64, a state         ->  logits (B, V), the state after the step, weights

A state is whatever `Seq2Seq.start` returns. Every tensor in it is an output of the encoder and an input of the
decoder, named by where it lies (`past.0.keys`); those that a step changes are outputs of the decoder, as
`next.past.0.keys`, and the others are the memory. Weights (B, H, Tq, Tk) are named as `regard.record` names their
layer. So any model of `Seq2Seq` becomes such graphs, of which nothing is known here.
"""

import copy
import dataclasses
import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from functools import partial
from io import StringIO
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.hooks import AttentionHook, attach_hooks, attention_layers
from regard.data import PAD, UNKNOWN
from regard.errors import InputError
from regard.models import Seq2Seq
from regard.plugins import describe_error

SIZES = {"batch": (17, 19), "source": (5, 4), "steps": (3, 2)}
"""The sizes of two trials, which tell what of a tensor's shape they decide. No two of a trial are alike, and none
is 1, which PyTorch would take to be 1 for ever."""
WORDS = {sizes: word for word, sizes in SIZES.items()} | {(4, 3): "steps + 1"}
Shape = list[int | str]
"""Sizes, in words where they are any."""


class Graph(NamedTuple):
    """One part of a model, as a program of its own."""

    inputs: dict[str, Shape]
    outputs: dict[str, Shape]
    content: bytes
    """Of an ONNX file."""


def graphs_of(model: Seq2Seq) -> tuple[Graph, Graph]:
    """Return the encoder and the decoder of a model, in float32, for any batch and length.

    Raises `InputError` where PyTorch cannot trace the model, or the file would be larger than ONNX's 2 GB.
    """
    model = copy.deepcopy(model).cpu().float().eval()
    one, other = (_try(model, *sizes) for sizes in zip(*SIZES.values(), strict=True))
    return (
        _graph(_Encoder(model), one.encoder, other.encoder),
        _graph(_Decoder(model, one.state), one.decoder, other.decoder),
    )


def tensors_of(value: Any, name: str = "") -> dict[str, Tensor]:
    """Return the tensors in tuples and dataclasses, by where they lie, as in `past.0.keys`."""
    if isinstance(value, Tensor):
        return {name: value}
    return {
        place: tensor
        for part, each in _parts(value).items()
        for place, tensor in tensors_of(each, f"{name}.{part}" if name else part).items()
    }


def with_tensors(value: Any, tensors: Mapping[str, Tensor], name: str = "") -> Any:
    """Return a value with other tensors in it, by the names that `tensors_of` gives."""
    if isinstance(value, Tensor):
        return tensors[name]
    parts = {
        part: with_tensors(each, tensors, f"{name}.{part}" if name else part)
        for part, each in _parts(value).items()
    }
    if hasattr(value, "_replace"):
        return value._replace(**parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **parts)
    return type(value)(parts.values()) if parts else value


def _parts(value: Any) -> dict[str, Any]:
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return {str(place): each for place, each in enumerate(value)} if isinstance(value, tuple | list) else {}


def _encode(model: Seq2Seq, source: Tensor) -> tuple[Any, dict[str, Tensor]]:
    """Return the first state for sources (B, Ts), and what the encoder's graph gives."""
    with _weights_of(model) as weights:
        state = model.start(model.encode(source, source != PAD))
    return state, tensors_of(state) | weights


def _step(model: Seq2Seq, token: Tensor, state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return the state after a step with tokens (B, 1), and what the decoder's graph gives."""
    with _weights_of(model) as weights:
        states, after = model.step(token, state)
    before = tensors_of(state)
    changed = {f"next.{name}": tensor for name, tensor in tensors_of(after).items() if tensor is not before[name]}
    return after, {"logits": model.logits(states).squeeze(1)} | changed | weights


@contextmanager
def _weights_of(model: Seq2Seq) -> Iterator[dict[str, Tensor]]:
    """Collect the weights of each layer that runs; `record` would count their rows, which may be any number."""
    found: dict[str, Tensor] = {}

    def keep(name: str, weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        del mask, step
        found[name] = weights
        return weights

    layers = attention_layers(model).items()
    with attach_hooks({layer: AttentionHook(changes=(partial(keep, name),)) for name, layer in layers}):
        yield found


class _Encoder(nn.Module):
    """What `_encode` gives, without the names."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        return tuple(_encode(self.model, source)[1].values())


class _Decoder(nn.Module):
    """What `_step` gives, without the names, of a token and the tensors of a state in their order."""

    def __init__(self, model: Seq2Seq, state: Any) -> None:
        super().__init__()
        self.model, self.state = model, state

    def forward(self, token: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(tensors_of(self.state), tensors, strict=True))
        return tuple(_step(self.model, token, with_tensors(self.state, given))[1].values())


class _Passed(NamedTuple):
    """What a part of a model was given, and gave, by name."""

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


class _Trial(NamedTuple):
    """What both parts did with some sources, and the state that lies in the decoder's inputs."""

    encoder: _Passed
    decoder: _Passed
    state: Any


@torch.no_grad()
def _try(model: Seq2Seq, batch: int, length: int, steps: int) -> _Trial:
    """Let a model read some sources, and take a step after some steps."""
    source, token = torch.full((batch, length), UNKNOWN), torch.full((batch, 1), UNKNOWN)
    state, encoded = _encode(model, source)
    for _ in range(steps):
        state, _ = _step(model, token, state)
    # Laid out in their order, as those that a program hands over are.
    given = {"token": token} | {name: tensor.contiguous() for name, tensor in tensors_of(state).items()}
    return _Trial(_Passed({"source": source}, encoded), _Passed(given, _step(model, token, state)[1]), state)


def _shapes(one: dict[str, Tensor], other: dict[str, Tensor]) -> dict[str, Shape]:
    """Return the shapes of tensors, of those in two trials."""
    return {
        name: [
            size if size == another else WORDS.get((size, another), f"{name}.{place}")
            for place, (size, another) in enumerate(zip(tensor.shape, other[name].shape, strict=True))
        ]
        for name, tensor in one.items()
    }


def _graph(part: nn.Module, one: _Passed, other: _Passed) -> Graph:
    """Have PyTorch trace a part of a model, which did this in two trials, and write it."""
    import onnx_ir
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    inputs, outputs = _shapes(one.inputs, other.inputs), _shapes(one.outputs, other.outputs)
    first, *others = (
        {place: size for place, size in enumerate(shape) if isinstance(size, str)} for shape in inputs.values()
    )
    try:
        with _quietly():
            program: Any = torch.onnx.export(
                part,
                tuple(one.inputs.values()),
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_shapes=(first, tuple(others)) if others else (first,),
                dynamo=True,
                custom_translation_table={torch.ops.aten.cos.default: _cosine},
                external_data=False,
                verbose=False,
            )
            ClearMetadataAndDocStringPass()(program.model)  # where the program's files lie on this machine
            # Of some layers, such as the LSTM, PyTorch tells the length that it was traced with.
            for node in program.model.graph:
                for value in node.outputs:
                    value.shape = None
            for value, shape in zip(program.model.graph.outputs, outputs.values(), strict=True):
                value.shape = onnx_ir.Shape(shape)
            return Graph(inputs, outputs, program.model_proto.SerializeToString())
    except InputError:
        raise
    except Exception as error:  # of many kinds, as those who trace and those who write raise them
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise InputError(
            f"PyTorch cannot write it as ONNX ({describe_error(cause, 160)}): what it computes may depend on "
            f"shapes, "
            f"and not on values"
        ) from error


def _cosine(angles: Any) -> Any:
    """Return the cosines of angles, as sines: those of float64 many versions of ONNX Runtime do not know."""
    import onnx_ir
    import onnxscript

    operators: Any = onnxscript.opset18
    if angles.dtype != onnx_ir.DataType.DOUBLE:
        return operators.Cos(angles)
    quarter = operators.Constant(value=onnx_ir.tensor(math.pi / 2, dtype=onnx_ir.DataType.DOUBLE))
    return operators.Sin(operators.Add(angles, quarter))


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what the exporter says of itself, and the listings of what it could not trace, from the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
