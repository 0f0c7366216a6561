"""Watch the attention of a model during its training, whatever code trains it.

    with regard.watch(model, every=100, out="watch"):
        for batch in batches:                      # any loop, Trainer or Lightning
            ...

The hooks of PyTorch's optimizers count the training steps. After every 100th step, the model runs once more in
evaluation mode on a fixed input, the probe: by default the first batch of the training. This separate pass neither
changes the training nor depends on how the model is compiled, checkpointed or distributed, and its measures are
comparable from step to step. Random states, buffers and gradients remain as they were.

Measures of a head are sums over the queries of all samples. Queries that may attend to no key, and in self-attention
queries that no query may attend to (padding), do not count. Letters: B samples, H heads, Tq queries, Tk keys, D width
of the model, d width of a head.
"""

import contextlib
import inspect
import json
import math
import random
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from regard.activations.interface import Watch, is_linear
from regard.activations.modules import count_parameters, resolve_module, unwrap
from regard.arguments import public
from regard.attention.records import describe_left_out
from regard.errors import InputError, RegardError, shorten
from regard.interpret.training_warnings import KINDS, describe, find_warnings
from regard.io import damage_errors, hold_lock, is_file, make_folder, read_json_lines, write_file
from regard.libraries import import_library
from regard.training.run_folder import pack_tensors, read_tensors
from regard.viz.maps import CROSS, layer_kind

MEASURES = {
    "entropy": "mean entropy of a query's weights, in nats",
    "relative_entropy": "mean entropy divided by that of equal weights on the allowed keys, 0 to 1",
    "largest_score": "largest score of an allowed pair of query and key",
    "largest_weight": "mean over the queries of the largest weight",
    "first_token": "mean weight on the first token",
    "own_token": "mean weight on the query's own token",
    "previous_token": "mean weight on the token before the query",
    "distance": "mean distance in tokens between a query and the keys, weighted by the weights",
    "context_norm": "mean Euclidean norm of the head's context",
    "contribution_norm": "mean Euclidean norm of what the head adds to the residual stream",
    "similarity": "largest cosine similarity to what another head of the layer adds",
    "effective_rank": "participation ratio of the squared singular values of the weights, 1 to the number of keys",
}
"""The measures of each head, with their definitions."""
GRADIENTS = {
    "query_gradient": "norm of the gradient of the matrix that computes the queries of the layer",
    "key_gradient": "norm of the gradient of the matrix that computes its keys",
}
"""The measures of each layer."""
SHARDED = "the parameters are sharded, and a backward pass of a part of the model would change them"
FILE = "watch.jsonl"
PICTURES = ("weights-first.safetensors", "weights-last.safetensors")
"""Weights of the probe's first sample at the first and at the last measurement: for each layer (H, Tq, Tk) uint8, 255
times the weight, of at most `SIDE` queries and keys."""
SIDE = 64
REMEDY = "choose another folder"
MATMULS = ("AddmmBackward", "MmBackward", "BmmBackward", "LinearBackward", "ConvolutionBackward", "MatmulBackward")
"""Prefixes of the names of autograd nodes that multiply by a matrix."""


class HeadMeasures:
    """The measures of one layer's heads in one pass; see `MEASURES`."""

    def __init__(self, name: str) -> None:
        self.found: dict[str, Tensor] = {}
        """By name: a measure of each head (H,)."""
        self.finite = True
        """Whether all scores, weights and contexts are finite."""
        self._reads_itself = layer_kind(name) != CROSS
        self.allowed: Tensor | None = None
        """The mask of scores and weights: broadcastable to (B, H, Tq, Tk), True = may attend; None: all may."""
        self._counted: Tensor | None = None

    def _add(self, name: str, values: Tensor, counted: Tensor) -> None:
        """Add the mean of values (B, H, any), of which some count."""
        total = values.double().masked_fill(~counted, 0.0).sum((0, 2))
        self.found[name] = total / counted.expand(values.shape).sum((0, 2))

    def add_scores(self, scores: Tensor) -> None:
        """Add scores (B, H, Tq, Tk)."""
        largest = []
        for head in range(scores.shape[1]):
            chosen = scores[:, head].float()
            allowed, counted = self._rows(chosen, head)
            largest.append(chosen.masked_fill(~(allowed & counted.unsqueeze(-1)), -torch.inf).max())
        self.found["largest_score"] = now = torch.stack(largest)
        self.finite = self.finite and bool((now < torch.inf).all()) and not bool(now.isnan().any())

    def _rows(self, rows: Tensor, head: int) -> tuple[Tensor, Tensor]:
        """Return the allowed pairs of a head (B, Tq, Tk), and the queries that count (B, Tq)."""
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=rows.device) if self.allowed is None else self.allowed
        mask = mask[(None,) * (4 - mask.dim())]
        allowed = mask[:, head if mask.shape[1] > 1 else 0].expand(rows.shape)
        counted = allowed.any(-1)
        if rows.shape[1] == rows.shape[2] and self._reads_itself:
            counted = counted & allowed.diagonal(dim1=1, dim2=2)
        return allowed, counted

    def add_weights(self, weights: Tensor) -> None:
        """Add weights (B, H, Tq, Tk), one head at a time, so that temporary tensors are small."""
        self.finite = self.finite and bool(weights.isfinite().all())
        _, heads, queries, keys = weights.shape
        steps = torch.arange(keys, device=weights.device)
        has_own = queries == keys and self._reads_itself
        columns: dict[str, list[Tensor]] = {}
        counts, choices, ranks = [], [], []
        for head in range(heads):
            rows = weights[:, head].float()
            allowed, counted = self._rows(rows, head)
            number = allowed.sum(-1)
            entropy = torch.special.entr(rows).sum(-1)
            first = (allowed & counted.unsqueeze(-1)).any(1).int().argmax(-1)
            found = {
                "entropy": entropy,
                "relative_entropy": entropy / number.clamp(min=2).log(),
                "largest_weight": rows.amax(-1),
                "first_token": rows.gather(-1, first[:, None, None].expand(-1, queries, 1)).squeeze(-1),
            }
            if has_own:
                found["own_token"] = rows.diagonal(dim1=1, dim2=2)
                found["previous_token"] = F.pad(rows.diagonal(-1, 1, 2), (1, 0))
                found["distance"] = torch.einsum("bqk,qk->bq", rows, (steps[:, None] - steps).abs().float())
            for name, values in found.items():
                columns.setdefault(name, []).append(values)
            counts.append(counted)
            choices.append(counted & (number > 1))
            rows = rows.masked_fill(~counted.unsqueeze(-1), 0.0)
            squares = rows.square().sum((1, 2))
            product = rows @ rows.mT if queries <= keys else rows.mT @ rows
            ranks.append(squares.square() / product.square().sum((1, 2)))
        counted, choice = torch.stack(counts, 1), torch.stack(choices, 1)
        for name, parts in columns.items():
            rows_of = choice if name == "relative_entropy" else counted
            if name == "previous_token":
                rows_of = counted & (steps > 0)
            self._add(name, torch.stack(parts, 1), rows_of)
        rank = torch.stack(ranks, 1).unsqueeze(-1)
        self._add("effective_rank", rank, rank.isfinite())
        self._counted = counted.any(1)

    def add_contexts(self, contexts: Tensor) -> None:
        """Add the contexts (B, Tq, H, d) of the heads."""
        self.finite = self.finite and bool(contexts.isfinite().all())
        self._add_norms("context_norm", contexts)

    def add_contributions(self, contributions: Tensor) -> None:
        """Add what each head writes to the residual stream, (B, Tq, H, D)."""
        counted = self._add_norms("contribution_norm", contributions)
        flat = contributions.float().masked_fill(~counted[:, :, None, None], 0.0).permute(2, 0, 1, 3).flatten(1)
        gram = (flat @ flat.T).double()
        if len(gram) > 1:
            norms = gram.diagonal().clamp(min=0).sqrt()
            same = torch.eye(len(gram), dtype=torch.bool, device=gram.device)
            self.found["similarity"] = (gram / (norms[:, None] * norms)).masked_fill(same, -torch.inf).amax(1)

    def _add_norms(self, name: str, vectors: Tensor) -> Tensor:
        """Add the mean norms of vectors (B, Tq, H, any), and return which queries count (B, Tq)."""
        norms, counted = vectors.float().norm(dim=-1).transpose(1, 2), self._counted
        if counted is None or counted.shape != norms[:, 0].shape:
            counted = norms.new_ones(norms[:, 0].shape, dtype=torch.bool)
        self._add(name, norms, counted.unsqueeze(1))
        return counted

    def results(self) -> list[dict[str, float | None]]:
        """Return the measures of each head, in the order of `MEASURES`; None for a measure that is not known."""
        table = {name: list(map(_finite, self.found[name].tolist())) for name in MEASURES if name in self.found}
        heads = len(next(iter(table.values()), []))
        return [{name: table[name][head] if name in table else None for name in MEASURES} for head in range(heads)]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _find_matrices(states: Tensor) -> list[Tensor]:
    """Return the parameters whose products with states give a tensor: the matrices nearest to it in its graph."""
    found: dict[int, Tensor] = {}
    nodes, seen = [states.grad_fn], set[Any]()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        before = [function for function, _ in node.next_functions]
        if node.name().startswith(MATMULS):
            for function in before:
                # A transposed or converted matrix, not the rows of an embedding, which are states.
                while function is not None and len(function.next_functions) == 1 and "Embedding" not in function.name():
                    function = function.next_functions[0][0]
                matrix = getattr(function, "variable", None)
                if matrix is not None and matrix.dim() > 1:
                    found[id(matrix)] = matrix
        else:
            nodes += before
    return list(found.values())


def _find_parts(states: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the parameters that compute queries or keys, and which of their numbers do (bool)."""
    matrices = _find_matrices(states)
    if not matrices:
        return []
    # Positive numbers, so that the gradient is zero only where the parameter has no effect.
    directions = torch.linspace(0.5, 1.5, states.numel(), device=states.device).reshape(states.shape)
    gradients = torch.autograd.grad(states, matrices, directions.to(states.dtype), retain_graph=True, allow_unused=True)
    return [
        (matrix, gradient != 0) for matrix, gradient in zip(matrices, gradients, strict=True) if gradient is not None
    ]


class WatchedInput:
    """The input on which a model is measured: the arguments of one forward pass."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.args, self.kwargs = _copied(tuple(args)), _copied(dict(kwargs))
        on = filter(torch.is_autocast_enabled, ("cpu", "cuda", "mps", "xpu"))
        self.autocast = {device: torch.get_autocast_dtype(device) for device in on}


def _copied(value: Any) -> Any:
    """Return the value with copies of its tensors."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return type(value)({name: _copied(item) for name, item in value.items()})  # type: ignore[call-arg]
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Restore the random states, modes and buffers of a model after the block, which runs in evaluation mode."""
    modes = {module: (module.training, dict(module._buffers)) for module in model.modules()}
    buffers = {buffer: buffer.detach().clone() for buffer in model.buffers() if buffer.device.type != "meta"}
    devices = sorted({buffer.device.index for buffer in model.parameters() if buffer.is_cuda})
    drawn = random.getstate()
    with torch.random.fork_rng(devices=devices):
        try:
            model.eval()
            yield
        finally:
            random.setstate(drawn)
            for module, (mode, named) in modes.items():
                module.training = mode
                module._buffers.update(named)
                # After a pass without a backward pass, FSDP2 would reuse the whole parameters in later steps.
                getattr(module, "reshard", tuple)()
            with torch.no_grad():
                for buffer, value in buffers.items():
                    buffer.copy_(value)


class HealthMeter:
    """Measures the attention of one model on a probe."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.finite: dict[str, bool] = {}
        """By layer: whether all scores, weights and contexts of the last measurement are finite."""
        self.parts: dict[str, list[list[tuple[str, Tensor]]]] | None = None
        """By layer: the names of the parameters that compute queries, and those that compute keys, with their parts."""
        self.left_out: dict[str, str] = {}
        """Activations that are not measured, and the reason."""
        self.pictures: dict[str, Tensor] = {}
        """By layer: weights of the first sample in the last measurement, as in `PICTURES`."""

    def measure(self, probe: WatchedInput) -> dict[str, list[dict[str, float | None]]]:
        """Run the model on a probe; return by layer the measures of each head."""
        totals: dict[str, HeadMeasures] = {}
        sharded = any(hasattr(parameter, "full_tensor") for parameter in self.model.parameters())
        first = self.parts is None and not sharded
        parts: dict[str, list[list[tuple[str, Tensor]]]] = {}
        pending: list[tuple[HeadMeasures, Tensor]] = []

        def receive(name: str, value: Tensor, _continues: bool) -> Tensor:
            layer, _, kind = name.rpartition(".")
            total = totals.setdefault(layer, HeadMeasures(layer))
            if kind in ("q", "k"):
                if first and value.requires_grad:
                    names = {id(parameter): name for name, parameter in self.model.named_parameters()}
                    found = [(names[id(matrix)], part) for matrix, part in _find_parts(value) if id(matrix) in names]
                    parts.setdefault(layer, [[], []])["qk".index(kind)] = found
            elif kind == "mask":
                total.allowed = value.detach()
            elif kind != "z":
                if kind == "weights":
                    part = value.detach()[0, :, :SIDE, :SIDE].float().nan_to_num().clamp(0, 1)
                    self.pictures[layer] = (255 * part).round().byte().cpu()
                (total.add_scores if kind == "scores" else total.add_weights)(value.detach())
            else:
                total.add_contexts(value.detach())
                module = watch.tracker.modules.get(watch.tracker.running[-1]) if watch.tracker.running else None
                pending[:] = [(total, value.detach())]
                if isinstance(module, nn.MultiheadAttention):
                    project(module.out_proj, pending.pop())
            return value

        def project(module: Any, waiting: tuple[HeadMeasures, Tensor]) -> None:
            total, contexts = waiting
            matrix = module.weight if isinstance(module, nn.Linear) else module.weight.T
            by_head = matrix.detach().unflatten(1, contexts.shape[-2:]).to(contexts.dtype)
            total.add_contributions(torch.einsum("bthd,nhd->bthn", contexts, by_head))

        def read(module: nn.Module, args: Any) -> None:
            # The values show which matrix reads the contexts of the heads: its name differs between architectures.
            states = args[0] if pending and args else None
            waiting = pending[0][1] if pending else None
            same_size = isinstance(states, Tensor) and waiting is not None and states.numel() == waiting.numel()
            if same_size and torch.equal(states.reshape(-1), waiting.reshape(-1)):  # type: ignore[union-attr]
                project(module, pending.pop())

        watch = Watch(self.model, [f"*.{kind}" for kind in ("q", "k", "mask", "scores", "weights", "z")], receive)
        with ExitStack() as stack:
            stack.enter_context(_unchanged(self.model))
            stack.enter_context(torch.set_grad_enabled(first))
            for device, dtype in probe.autocast.items():
                stack.enter_context(torch.autocast(device, dtype))
            for module in filter(is_linear, self.model.modules()):
                stack.callback(module.register_forward_pre_hook(read).remove)
            stack.enter_context(watch.run())
            self.model(*_copied(probe.args), **_copied(probe.kwargs))
            self.parts = parts if first else self.parts
        self.left_out = watch.missing() | (dict.fromkeys(GRADIENTS, SHARDED) if sharded else {})
        self.finite = {layer: total.finite for layer, total in totals.items()}
        return {layer: total.results() for layer, total in totals.items()}

    def gradients(self) -> dict[str, list[float | None]]:
        """Return by layer the norms of the gradients of the matrices of queries and of keys."""
        return {layer: [self._norm(parts) for parts in sides] for layer, sides in (self.parts or {}).items()}

    def _norm(self, parts: Sequence[tuple[str, Tensor]]) -> float | None:
        squares = []
        for name, part in parts:
            if (gradient := self.model.get_parameter(name).grad) is not None:
                squares.append(gradient.detach().where(part, 0.0).double().square().sum())
        return _finite(float(torch.stack(squares).sum().sqrt())) if squares else None


class WatchWarning(UserWarning):
    """A warning about the attention of a model in training."""


@public
class WatchRecord:
    """What was measured during a training: the lines of a `watch.jsonl`."""

    def __init__(self, lines: Sequence[dict[str, Any]] = ()) -> None:
        self.rows: list[dict[str, Any]] = []
        """One row for each measured step, layer and head."""
        self.warnings: list[dict[str, Any]] = []
        """One row for each warning: step, kind, layer, head and value."""
        self.notes: list[dict[str, Any]] = []
        """Numbers of the training, such as its loss."""
        self.pictures: list[dict[str, Tensor]] = [{}, {}]
        """Weights of the probe's first sample at the first and at the last measurement, as in `PICTURES`."""
        self._sort(lines)

    def _sort(self, lines: Sequence[dict[str, Any]]) -> None:
        self.warnings = [line for line in lines if "warning" in line]
        self.rows = [line for line in lines if "head" in line and "warning" not in line]
        self.notes = [line for line in lines if "head" not in line]

    def to_html(self, path: str | Path) -> Path:
        """Write a page with the entropy of each head over the steps, its measures and weights at the first and at the
        last measurement, the warnings and the loss; return its path."""
        from regard.interpret.watch_page import render_watch  # matplotlib takes long to import

        write_file(Path(path), render_watch(self).encode())
        return Path(path)


@public
class TrainingWatch(WatchRecord):
    """The measures of a model during a training; see `watch`."""

    probe: WatchedInput | None = None
    _hooks: Sequence[Any] = ()
    _taken = False  # whether the probe is the first batch

    def __init__(
        self, model: Any, every: int, folder: Path | None, probe: Any, resume: bool, tensorboard: bool
    ) -> None:
        super().__init__()
        self.given, _ = resolve_module(model)
        self._called = self.given
        self.every, self.folder, self.resume = every, folder, resume
        self.meter: HealthMeter | None = None
        named, args = (probe, ()) if isinstance(probe, Mapping) else ({}, probe)
        self.probe = None if probe is None else WatchedInput(args if isinstance(args, tuple) else (args,), named)
        self.step = 0
        """Number of training steps so far."""
        self._clock: Any = None
        self._stack = ExitStack()
        self._file: Any = None
        self._stored: list[dict[str, Any]] = []
        self._writer: Any = None
        self._tensorboard = tensorboard
        self._parameters: set[int] = set()
        self._failed = False
        self._warned: set[tuple[str, str, int]] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # a copy of the model, such as an average, has the hooks of an empty watch

    def __enter__(self) -> "TrainingWatch":
        self._parameters = {id(parameter) for parameter in self.given.parameters()}
        with ExitStack() as stack:
            parallel = torch.distributed.is_available() and torch.distributed.is_initialized()
            if self.folder is not None and not (parallel and torch.distributed.get_rank()):
                make_folder(self.folder)
                stack.enter_context(hold_lock(self.folder))
                self._open(self.folder / FILE)
            if self.probe is None:  # a LightningModule calls the model inside it
                inside = self.given.children() if hasattr(self.given, "training_step") else ()
                called = [self.given, *(part for part in inside if any(part.children()))]
                self._hooks = [part.register_forward_pre_hook(self._take_probe, with_kwargs=True) for part in called]
            stack.callback(self._remove_hooks)
            stack.callback(register_optimizer_step_pre_hook(self._before_step).remove)
            stack.callback(register_optimizer_step_post_hook(self._after_step).remove)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.suppress(OSError):  # TensorBoard on a full disk, of which `_measure` warns
            self._stack.close()
        if self._file is not None:
            self._file.close()
        if kind is None and self._clock is None:
            message = "no optimizer of PyTorch changed the model: nothing was measured (see watch.tick)"
            warnings.warn(f"regard.watch: {message}", stacklevel=2)

    def note(self, **numbers: Any) -> None:
        """Write numbers of the current step: `watch.note(loss=loss)`. None stands for one that is not finite."""
        plain = {name: value.item() if isinstance(value, Tensor) else value for name, value in numbers.items()}
        finite = {name: value if isinstance(value, str) else _finite(float(value)) for name, value in plain.items()}
        self.notes.append({"step": self.step, **finite})
        self._write(self.notes[-1:])

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _take_probe(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Copy the first batch of the training, which becomes the probe."""
        if module.training and torch.is_grad_enabled() and self.probe is None:
            self.probe, self._called, self._taken = WatchedInput(args, kwargs), module, True
            self._remove_hooks()

    def _is_clock(self, optimizer: Any) -> bool:
        """Return whether an optimizer is the first that updates the model: its steps are those of the training."""
        if optimizer is not self._clock:
            parameters = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            if self._parameters.isdisjoint(parameters):
                return False
            is_first, self._clock = self._clock is None, optimizer
            self._parameters &= parameters  # an optimizer that replaces this one counts on
            if self.resume and is_first:
                steps = [float(state["step"]) for state in optimizer.state.values() if "step" in state]
                self.step = int(max(steps, default=self.step))
                self._drop_rows()
                if self.rows and self._taken:
                    self.note(
                        error="earlier steps were measured on another probe: the first batch before the interruption"
                    )
        return True

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        # Lightning runs the model inside the step: there is no probe before the first step.
        if self._is_clock(optimizer) and self.meter is None and self.probe is not None:
            self._measure()  # also finds the matrices of queries and keys

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_clock(optimizer):
            self.tick(self.step + 1)

    def tick(self, step: int) -> None:
        """Measure before the first step, and after each step that `every` divides. The optimizers of PyTorch call it;
        call it for another optimizer, with the number of steps so far, which is 0 or where the training continues at
        first. It needs `probe`."""
        self.step, is_first = step, self._clock is None
        if is_first:
            self._clock = self
            if self.resume:
                self._drop_rows()
        if is_first or step % self.every == 0:
            self._measure()

    def _measure(self) -> None:
        """Measure the model, and store the rows, unless this step was measured before an interruption. An error never
        ends the training: a warning says what is missing."""
        if self._failed:
            return
        try:
            if self.probe is None:
                raise InputError("the model was not called in training mode: give probe=, the arguments of one pass")
            is_first, self.meter = self.meter is None, self.meter or HealthMeter(unwrap(self._called))
            measures = self.meter.measure(self.probe)
            gradients = self.meter.gradients()
        except Exception as error:
            self._failed = True
            message = f"regard.watch measures nothing from step {self.step} on: {shorten(str(error), 200)}"
            warnings.warn(message, stacklevel=2)
            self.note(error=message)
            return
        if is_first and (self.meter.left_out or not measures):
            self.note(error=describe_left_out(self.meter.left_out) if measures else "no attention was found")
            warnings.warn(f"regard.watch: {self.notes[-1]['error']}", stacklevel=2)
        if self.rows and self.rows[-1]["step"] == self.step:
            return
        rows = []
        for layer, heads in measures.items():
            norms = gradients.get(layer, [None, None])
            for head, numbers in enumerate(heads):
                row = {"step": self.step, "layer": layer, "head": head, **numbers}
                rows.append(row | dict(zip(GRADIENTS, norms, strict=True)) | {"finite": self.meter.finite[layer]})
        found = find_warnings(rows, self.rows[-len(rows) :])
        self.rows += rows
        self._write(rows + found)
        try:
            self._log(rows)
        except Exception as error:  # of TensorBoard or wandb
            warnings.warn(f"regard.watch: the measures of step {self.step} were not logged: {error}", stacklevel=2)
        self._keep_pictures(self.meter.pictures)
        self.warnings += found
        self._warn(found)

    def _warn(self, found: Sequence[dict[str, Any]]) -> None:
        """Give one Python warning for the heads with a new kind of warning."""
        for kind in KINDS:
            new = [row for row in found if row["warning"] == kind and _key(row) not in self._warned]
            self._warned |= set(map(_key, new))
            if new:
                warnings.warn(describe(new), WatchWarning, stacklevel=2)

    def _open(self, path: Path) -> None:
        """Open the file, and continue it if `resume`. Raises `InputError` for the file of another model."""
        about = {"watch": type(unwrap(self.given)).__name__, "parameters": count_parameters(self.given)}
        if is_file(path):
            if not self.resume:
                raise InputError(f"{str(path)!r} exists: continue it with resume=True, or choose another folder")
            stored = [*read_json_lines(path, dict[str, Any], REMEDY)]
            if stored and stored[0] != about:
                raise InputError(f"{str(path)!r} is of another model, {stored[0]}: choose another folder")
            self._stored = stored[1:]
            self.pictures[0] = _read_picture(path.with_name(PICTURES[0]))
            self.step = max((row["step"] for row in self._stored), default=0)
        self._about = about
        self._file = path.open("a", encoding="utf-8")
        if not self._stored:
            self._write([about])

    def _drop_rows(self) -> None:
        """Rewrite the file of an earlier training without the rows of later steps, which are measured again."""
        kept = [row for row in self._stored if row["step"] <= self.step] + self.notes
        self._sort(kept)
        self._warned = set(map(_key, self.warnings))
        if self._file is not None:
            path = Path(self._file.name)
            write_file(path, "\n".join([*map(json.dumps, [self._about, *kept]), ""]).encode())
            self._file.close()
            self._file = path.open("a", encoding="utf-8")

    def _log(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Send the measures to TensorBoard, and to the active run of wandb if a process has one."""
        run = getattr(sys.modules.get("wandb"), "run", None)
        if self._tensorboard and self._writer is None and self._file is not None:
            from torch.utils.tensorboard import SummaryWriter

            # Removes the events of later steps, which an interrupted training wrote.
            self._writer = self._stack.enter_context(SummaryWriter(str(self.folder), purge_step=self.step))
        numbers = {
            f"{name}/{row['layer']}/head {row['head']}": row[name]
            for row in rows
            for name in (*MEASURES, *GRADIENTS)
            if row[name] is not None
        }
        for name, value in numbers.items() if self._writer is not None else ():
            self._writer.add_scalar(name, value, self.step)
        if run is not None:  # sent with the next numbers of the training, whose step wandb counts
            run.log({"watched step": self.step, **numbers}, commit=False)

    def _keep_pictures(self, pictures: dict[str, Tensor]) -> None:
        """Keep the weights of the probe's first sample, at the first and at the last measurement."""
        pictures = dict(pictures)  # the next measurement replaces its values
        self.pictures = [self.pictures[0] or pictures, pictures]
        for name, weights in zip(PICTURES, self.pictures, strict=True):
            path = None if self._file is None else Path(self._file.name).with_name(name)
            if path is not None and (name == PICTURES[1] or not is_file(path)):
                with contextlib.suppress(RegardError):  # a full disk, of which `_write` warns
                    write_file(path, pack_tensors(weights, self.step))

    def _write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows to the file. A full disk does not end the training."""
        if self._file is None:
            return
        try:
            self._file.write("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
            self._file.flush()
        except OSError as error:
            warnings.warn(f"{self._file.name} is not written from step {self.step} on: {error}", stacklevel=2)
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


@public
def read_watch(folder: str | Path) -> WatchRecord:
    """Return what `watch` wrote to a folder. Raises `InputError` if there is no `watch.jsonl`, or a damaged file."""
    record = WatchRecord([*read_json_lines(Path(folder) / FILE, dict[str, Any], REMEDY)][1:])
    record.pictures = [_read_picture(Path(folder) / name) for name in PICTURES]
    return record


def _read_picture(path: Path) -> dict[str, Tensor]:
    with damage_errors(path, REMEDY):
        return dict(read_tensors(path).tensors) if is_file(path) else {}


def _key(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["warning"], row["layer"], row["head"]


@public
def watch(
    model: Any,
    *,
    every: int = 100,
    out: str | Path | None = None,
    probe: Any = None,
    resume: bool = False,
    tensorboard: bool = False,
) -> TrainingWatch:
    """Measure the attention of a model every few training steps inside a `with` block.

        with regard.watch(model, every=100, out="watch") as watch:
            train(model)
        watch.rows[-1]["entropy"]

    `every`: number of optimizer steps between two measurements. `out`: folder for `watch.jsonl`. `probe`: the
    arguments on which the model is measured, a tensor, a tuple or a mapping; by default the first batch of the
    training. `resume`: continue the file of an interrupted training; the steps are those of the optimizer.
    `tensorboard`: also write the measures for TensorBoard to `out`. The active run of wandb, if there is one, receives
    them too. Raises `InputError` if another process writes to the folder, if its file exists or is of another model,
    and if TensorBoard is not installed.
    """
    if every < 1:
        raise InputError(f"every={every}: give a number of training steps, 1 or more")
    if tensorboard:
        if out is None:
            raise InputError("tensorboard needs out, the folder to write to")
        import_library("tensorboard.summary.writer.event_file_writer", "tensorboard=True", "track")
    return TrainingWatch(model, every, None if out is None else Path(out), probe, resume, tensorboard)


_started: dict[str, TrainingWatch] = {}  # those of callbacks, by folder


@public
class WatchCallback:
    """`watch` for the trainers of transformers and Lightning.

        Trainer(model, arguments, train_dataset=data, callbacks=[regard.WatchCallback(every=100, out="watch")])

    The arguments are those of `watch`. A training that continues from a checkpoint continues the file.
    """

    def __new__(cls, **options: Any) -> Any:
        """Create a callback of the libraries that are imported."""
        homes = {"transformers": "TrainerCallback", "lightning.pytorch": "Callback", "pytorch_lightning": "Callback"}
        bases = [getattr(sys.modules[module], name) for module, name in homes.items() if module in sys.modules]
        return object.__new__(type(cls.__name__, (cls, *bases), {}))

    def __init__(self, **options: Any) -> None:
        if len(type(self).__bases__) == 1:  # no library, see `__new__`
            raise InputError("WatchCallback needs transformers or lightning: import it first, or use regard.watch")
        super().__init__()
        inspect.signature(watch).bind(None, **options)
        self.options = options
        self.watch: TrainingWatch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        """Begin to watch the model of transformers' Trainer."""
        self._start(model, state.global_step)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch a LightningModule."""
        self._start(pl_module, trainer.global_step)

    def on_log(self, args: Any, state: Any, control: Any, *, logs: Any = None, **_: Any) -> None:
        """Write the losses that Trainer reports."""
        if self.watch is not None and "loss" in (logs or {}):
            self.watch.note(loss=float(logs["loss"]))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End the watch."""
        if self.watch is not None:
            self.watch.__exit__(None)
            _started.pop(str(self.options.get("out") or id(self)), None)
            self.watch = None

    def _start(self, model: Any, step: int) -> None:
        out = str(self.options.get("out") or id(self))
        if earlier := _started.pop(out, None):
            warnings.warn(
                f"regard.watch: the training that wrote to {out} did not end, and is not watched on", stacklevel=3
            )
            earlier.__exit__(None)
        self.watch = _started[out] = watch(model, **{"resume": step > 0, **self.options})
        self.watch.__enter__()
