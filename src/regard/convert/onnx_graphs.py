"""Trace a model into two ONNX graphs: the encoder, and one step of the decoder.

    encoder    source (B, Ts) int64                ->  initial state, weights
    decoder    token (B, 1) int64, state           ->  logits (B, V), next state, weights

The state is the value of `Seq2Seq.start`. Each of its tensors is an output of the encoder and an input of the
decoder, named by its path (`past.0.keys`). Tensors that a step changes are outputs of the decoder with the prefix
`next.`; the others are the encoder's memory. Weights (B, H, Tq, Tk) have the layer names of `regard.record`.
The export works for any `Seq2Seq`, without knowledge of its architecture.
"""

import copy
import dataclasses
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
from regard.convert.conversion import hide_logs
from regard.data import PAD, UNKNOWN
from regard.errors import InputError
from regard.models import Seq2Seq
from regard.plugins import describe_error

SIZES = {"batch": (17, 19), "source": (5, 4), "steps": (3, 2)}
"""Sizes of two traces. The shapes of the two traces show which dimensions depend on which size.

All sizes of a trace differ, so that a dimension is unambiguous. No size is 1, because PyTorch treats a size of 1
as constant.
"""
SIZE_NAMES = {sizes: name for name, sizes in SIZES.items()} | {(4, 3): "steps + 1"}
Shape = list[int | str]
"""Sizes of a tensor; dynamic sizes are names."""


class Graph(NamedTuple):
    """One part of a model as an ONNX program."""

    inputs: dict[str, Shape]
    outputs: dict[str, Shape]
    content: bytes
    """Content of the ONNX file."""


def trace_graphs(model: Seq2Seq) -> tuple[Graph, Graph]:
    """Return the encoder and decoder graph of a model in float32, for any batch size and length.

    Raises `InputError` if PyTorch cannot trace the model, or if a file exceeds ONNX's limit of 2 GB.
    """
    model = copy.deepcopy(model).cpu().float().eval()
    first, second = (_run_trace(model, *sizes) for sizes in zip(*SIZES.values(), strict=True))
    return (
        _export_graph(_Encoder(model), first.encoder, second.encoder),
        _export_graph(_Decoder(model, first.state), first.decoder, second.decoder),
    )


def flatten_tensors(value: Any, name: str = "") -> dict[str, Tensor]:
    """Return all tensors in nested tuples and dataclasses, by path such as `past.0.keys`."""
    if isinstance(value, Tensor):
        return {name: value}
    return {
        path: tensor
        for part, child in _parts(value).items()
        for path, tensor in flatten_tensors(child, f"{name}.{part}" if name else part).items()
    }


def replace_tensors(value: Any, tensors: Mapping[str, Tensor], name: str = "") -> Any:
    """Return a copy of a nested value with replaced tensors, by the paths of `flatten_tensors`."""
    if isinstance(value, Tensor):
        return tensors[name]
    parts = {
        part: replace_tensors(child, tensors, f"{name}.{part}" if name else part)
        for part, child in _parts(value).items()
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
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {str(index): item for index, item in enumerate(value)} if isinstance(value, tuple | list) else {}


def _encode(model: Seq2Seq, source: Tensor) -> tuple[Any, dict[str, Tensor]]:
    """Return the initial state for sources (B, Ts), and the outputs of the encoder graph."""
    with _collect_weights(model) as weights:
        state = model.start(model.encode(source, source != PAD))
    return state, flatten_tensors(state) | weights


def _step(model: Seq2Seq, token: Tensor, state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return the state after a step with tokens (B, 1), and the outputs of the decoder graph."""
    with _collect_weights(model) as weights:
        states, after = model.step(token, state)
    before = flatten_tensors(state)
    changed = {
        f"next.{name}": tensor for name, tensor in flatten_tensors(after).items() if tensor is not before[name]
    }
    return after, {"logits": model.logits(states).squeeze(1)} | changed | weights


@contextmanager
def _collect_weights(model: Seq2Seq) -> Iterator[dict[str, Tensor]]:
    """Collect the weights of all layers that run inside the block. `record` cannot be traced: it counts rows,
    which are dynamic."""
    collected: dict[str, Tensor] = {}

    def keep(name: str, weights: Tensor, mask: Tensor | None, step: int | None) -> Tensor:
        del mask, step
        collected[name] = weights
        return weights

    layers = attention_layers(model).items()
    with attach_hooks({layer: AttentionHook(changes=(partial(keep, name),)) for name, layer in layers}):
        yield collected


class _Encoder(nn.Module):
    """The outputs of `_encode`, without names."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        return tuple(_encode(self.model, source)[1].values())


class _Decoder(nn.Module):
    """The outputs of `_step`, without names, for a token and the tensors of a state in order."""

    def __init__(self, model: Seq2Seq, state: Any) -> None:
        super().__init__()
        self.model, self.state = model, state

    def forward(self, token: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        state_tensors = dict(zip(flatten_tensors(self.state), tensors, strict=True))
        return tuple(_step(self.model, token, replace_tensors(self.state, state_tensors))[1].values())


class _PartTrace(NamedTuple):
    """Inputs and outputs of one part of a model, by name."""

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


class _Trace(NamedTuple):
    """Inputs and outputs of encoder and decoder, and the state that the decoder's inputs contain."""

    encoder: _PartTrace
    decoder: _PartTrace
    state: Any


@torch.no_grad()
def _run_trace(model: Seq2Seq, batch: int, length: int, steps: int) -> _Trace:
    """Encode `batch` sources of `length` tokens, and run a step after `steps` steps."""
    source, token = torch.full((batch, length), UNKNOWN), torch.full((batch, 1), UNKNOWN)
    state, encoded = _encode(model, source)
    for _ in range(steps):
        state, _ = _step(model, token, state)
    # The tensors are contiguous, like the inputs of another program.
    inputs = {"token": token} | {name: tensor.contiguous() for name, tensor in flatten_tensors(state).items()}
    return _Trace(
        _PartTrace({"source": source}, encoded), _PartTrace(inputs, _step(model, token, state)[1]), state
    )


def _compare_shapes(first: dict[str, Tensor], second: dict[str, Tensor]) -> dict[str, Shape]:
    """Return the shapes of tensors, with a name for each size that differs between two traces."""
    return {
        name: [
            size if size == other else SIZE_NAMES.get((size, other), f"{name}.{axis}")
            for axis, (size, other) in enumerate(zip(tensor.shape, second[name].shape, strict=True))
        ]
        for name, tensor in first.items()
    }


def _export_graph(part: nn.Module, first: _PartTrace, second: _PartTrace) -> Graph:
    """Export a part of a model with PyTorch; its dynamic sizes are found with two traces."""
    import onnx_ir
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    inputs = _compare_shapes(first.inputs, second.inputs)
    outputs = _compare_shapes(first.outputs, second.outputs)
    dynamic, *others = (
        {axis: size for axis, size in enumerate(shape) if isinstance(size, str)} for shape in inputs.values()
    )
    try:
        with _quietly():
            program: Any = torch.onnx.export(
                part,
                tuple(first.inputs.values()),
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_shapes=(dynamic, tuple(others)) if others else (dynamic,),
                dynamo=True,
                custom_translation_table={torch.ops.aten.cos.default: _cosine},
                external_data=False,
                verbose=False,
            )
            ClearMetadataAndDocStringPass()(program.model)  # metadata holds file paths of this machine
            # For some layers, such as the LSTM, PyTorch stores the traced length as a constant shape.
            for node in program.model.graph:
                for value in node.outputs:
                    value.shape = None
            for value, shape in zip(program.model.graph.outputs, outputs.values(), strict=True):
                value.shape = onnx_ir.Shape(shape)
            return Graph(inputs, outputs, program.model_proto.SerializeToString())
    except InputError:
        raise
    except Exception as error:  # the tracer and the exporter raise many kinds of errors
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise InputError(
            f"PyTorch cannot write this model as ONNX ({describe_error(cause, 160)}): its computation "
            "may depend on shapes, but not on values"
        ) from error


def _cosine(angles: Any) -> Any:
    """Compute cosines as sines: many versions of ONNX Runtime do not support cosines of float64."""
    import onnx_ir
    import onnxscript

    operators: Any = onnxscript.opset18
    if angles.dtype != onnx_ir.DataType.DOUBLE:
        return operators.Cos(angles)
    quarter = operators.Constant(value=onnx_ir.tensor(math.pi / 2, dtype=onnx_ir.DataType.DOUBLE))
    return operators.Sin(operators.Add(angles, quarter))


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide log messages of the exporter and its listings of untraceable code."""
    with hide_logs(), warnings.catch_warnings(), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        yield
