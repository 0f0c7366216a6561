"""Find what the axes of attention weights mean: samples, heads, queries and keys.

PyTorch code stores weights in many layouts: (B, H, Tq, Tk), heads folded into the batch, (B H, Tq, Tk) or (H B,
Tq, Tk), windows between heads and queries, (B, H, W, Tq, Tk), heads after the queries, one call for each head.
Shapes alone do not show the layout, for example if B = H. If a module's number of heads and the shapes leave more
than one layout, the module is probed: it runs again with changed weights, and the positions of its output that
change show where each row of weights is used.

- If rows with index 0 on an axis are used at every position of the output, the axis is a head axis.
- An axis whose rows are used at different positions is a query axis or a sample axis. Windows and groups of steps
  count as samples. The last of these axes is the query axis.
- If no axis separates the steps of the output, the rows are not queries: attention over channels, for example.

The state of the module and of its inputs is then restored. Rows are changed by random numbers, so that a probe
also works without gradients, in half precision and in functions with their own backward pass.
"""

import math
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention.hooks import AttentionLayer
from regard.external.forward_tracker import ForwardTracker
from regard.external.hooks import remove_hooks

HEADS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads", "nhead", "nheads", "num_head", "h")
"""Names of attributes that may contain the number of heads."""
CONFIGS = ("config", "cfg", "args")
"""Names of attributes whose attributes may contain the number of heads."""
STATE_DEPTH = 4
"""Number of nested levels of attributes and containers whose state is restored after a probe."""
import os

DEBUG = bool(os.environ.get("DEBUGAXES"))
LEVELS = 3
"""Number of nested modules that are probed: the module that computes weights may be part of a layer, which then
joins the heads."""
CHANNELS = "the rows of weights {} are not queries (attention over channels, landmarks or slots)"
SELECTED = "the rows of weights {} belong to selected queries, and it is unknown which"
FOLDED = "heads and samples cannot be distinguished in weights {}"
UNKNOWN = "heads, samples and queries cannot be distinguished in weights {}"

SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax)
SITES = (*SOFTMAXES, F.scaled_dot_product_attention)
"""Functions that compute weights, or contexts with the rows of weights."""
PRODUCTS = (
    *("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "baddbmm", "addbmm", "addmm", "einsum"),
    *("tensordot", "inner", "cdist", "linear"),
)
"""Functions that multiply queries and keys, weights and values, or states and parameters."""
CONVOLUTIONS = frozenset(("conv1d", "conv2d", "conv3d"))
MULTIPLICATIONS = frozenset(("mul", "__mul__", "__rmul__", "multiply"))
RESIZE = frozenset(("cat", "pad", "sum", "__getitem__", "concat", "concatenate"))
"""Functions whose result has the origin of their arguments although its size differs."""
PRODUCT, WEIGHTS, CONTEXT = "product", "weights", "context"
"""Origins of a tensor: a product of states, the weights of a probe, and these weights times values."""
ORIGIN = "regard_origin"

_thread = threading.local()


def mark(tensor: Tensor, origin: str) -> Tensor:
    """Attach an origin to a tensor."""
    setattr(tensor, ORIGIN, origin)
    return tensor


def is_product(tensor: Any) -> bool:
    """Return whether a tensor is computed from a product of states, such as queries and keys."""
    return getattr(tensor, ORIGIN, None) == PRODUCT


def note_origin(function: Any, args: Any, result: Any, parameters: Callable[[Tensor], bool]) -> None:
    """Attach an origin to the result of a PyTorch function; `parameters`: whether a tensor is a parameter."""
    if not isinstance(result, Tensor):
        return
    name = getattr(function, "__name__", "")
    operands = [
        value
        for arg in args
        for value in (arg if isinstance(arg, tuple | list) else (arg,))
        if isinstance(value, Tensor)
    ]
    origins = [getattr(operand, ORIGIN, None) for operand in operands]
    largest = max((operand.numel() for operand in operands), default=0)
    multiplies = name in PRODUCTS or name in CONVOLUTIONS
    if name in MULTIPLICATIONS and len(operands) == 2:  # with a sum, a product of vectors
        smaller = (
            operand.numel() for operand, origin in zip(operands, origins, strict=True) if origin == WEIGHTS
        )
        multiplies = result.numel() > min(smaller, default=largest)
    if multiplies:
        probe = active_probe()
        if probe is not None and WEIGHTS in origins:
            others = [origin for origin in origins if origin != WEIGHTS]
            probe.used |= any(origin != PRODUCT for origin in others)
            mark(result, CONTEXT)
        elif any(map(parameters, operands)):
            if probe is not None and CONTEXT in origins and probe.projected is None:
                probe.projected = result
        elif name not in CONVOLUTIONS:
            mark(result, CONTEXT if CONTEXT in origins else PRODUCT)
        return
    for operand, origin in zip(operands, origins, strict=True):
        if origin is not None and (operand.numel() == result.numel() or name in RESIZE):
            mark(result, origin)
            return


class Axes(NamedTuple):
    """The meaning of each axis of weights."""

    roles: tuple[str, ...]
    """For each axis, s (samples, windows, groups), h (heads), q (queries), k (keys), or two letters for an axis
    that contains two: "sh" if the heads of a sample are adjacent, "hs" if the samples of a head are."""
    heads: int = 1
    """Number of heads in a folded axis, or number of calls that compute one head each."""
    head: int | None = None
    """The head that this call computes, if each call of the module computes one head."""

    def unfold(self, weights: Tensor) -> Tensor:
        """Return weights as (B, H, Tq, Tk).

        >>> Axes(("sh", "q", "k"), heads=2).unfold(torch.zeros(6, 4, 4)).shape
        torch.Size([3, 2, 4, 4])
        """
        letters, sizes, order = self._split(weights.shape)
        shape = [math.prod(size for size, role in zip(sizes, letters, strict=True) if role == x) for x in "shqk"]
        return weights.reshape(sizes).permute(order).reshape(shape)

    def fold(self, weights: Tensor, shape: Sequence[int]) -> Tensor:
        """Return weights (B, H, Tq, Tk) in the original layout; `shape` is the shape of the original weights."""
        _, sizes, order = self._split(shape)
        inverse = sorted(range(len(order)), key=order.__getitem__)
        return weights.reshape([sizes[axis] for axis in order]).permute(inverse).reshape(tuple(shape))

    def _split(self, shape: Sequence[int]) -> tuple[str, list[int], list[int]]:
        """Return the letters and sizes of all axes, and the order of the axes in (B, H, Tq, Tk)."""
        sizes: list[int] = []
        for role, size in zip(self.roles, shape, strict=True):
            folded = [self.heads if letter == "h" else size // self.heads for letter in role]
            sizes += folded if len(role) > 1 else [size]
        letters = "".join(self.roles)
        return letters, sizes, sorted(range(len(letters)), key=lambda axis: "shqk".index(letters[axis]))


BY_HEAD = Axes(("s", "h", "q", "k"))


class Running(NamedTuple):
    """A module that is running, with its inputs."""

    module: nn.Module
    args: Any
    kwargs: dict[str, Any]
    sites: Counter[str]
    """Number of tensors of weights that were computed so far, by the name of the place."""


class Probe:
    """A repeated run of a module in which some rows of one tensor of weights are changed."""

    def __init__(self, site: str, number: int, shape: Sequence[int], keys: int, *, used: bool) -> None:
        self.site, self.number, self.shape, self.keys = site, number, list(shape), keys
        self.count = 0
        """Number of tensors of weights in the run."""
        self.selected: Callable[[Tensor], Tensor] | None = None
        """Maps the indices of an axis to those whose rows are changed."""
        self.axis = 0
        self.used = used
        """Whether the weights are multiplied by values."""
        self.projected: Tensor | None = None
        """The result of the first projection of the context."""

    def visit(self, site: str, weights: Tensor) -> Tensor:
        """Return weights, with changed rows if they are those of the probe."""
        if site != self.site:
            return weights
        self.count += 1
        if self.count - 1 != self.number:
            return weights
        sizes = [
            size if axis == self.keys else actual
            for axis, (size, actual) in enumerate(zip(self.shape, weights.shape, strict=True))
        ]
        if sizes != self.shape:
            raise ValueError("a repeated run computes weights of another shape")
        if self.selected is not None:
            generator = torch.Generator().manual_seed(0)
            noise = torch.rand(weights.shape, generator=generator).to(weights) + 0.1
            indices = torch.arange(weights.shape[self.axis], device=weights.device)
            rows = self.selected(indices).reshape(
                [-1 if axis == self.axis else 1 for axis in range(weights.dim())]
            )
            weights = weights + noise * rows
        return mark(weights, WEIGHTS)


def active_probe() -> Probe | None:
    """Return the probe that is running, during which nothing is recorded."""
    return getattr(_thread, "probe", None)


def find_heads(module: nn.Module) -> int | None:
    """Return the number of heads from the attributes of a module or of its config; None if it has none.

    >>> find_heads(nn.MultiheadAttention(8, 2))
    2
    """
    owners = [module, *(getattr(module, name, None) for name in CONFIGS)]
    values = (
        owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)
        for owner in owners
        for name in HEADS
    )
    return next((value for value in values if type(value) is int and value > 0), None)


class ProbeMode(TorchFunctionMode):
    """Passes the weights of a probed module to the probe, and follows products of states to their use."""

    def __init__(self, tracker: ForwardTracker) -> None:
        super().__init__()
        self.tracker = tracker
        modules = tracker.modules.items()
        self.own = {name for name, module in modules if isinstance(module, AttentionLayer)}
        """Regard's own layers, which other hooks record."""
        parameters = (parameter for parameter in tracker.model.parameters() if not parameter.is_meta)
        self._parameters = {parameter.untyped_storage().data_ptr() for parameter in parameters}

    @property
    def captures(self) -> bool:
        """Whether a call of the running module is captured."""
        tracker = self.tracker
        return bool(tracker.running) and not tracker.captured_elsewhere and tracker.running[-1] not in self.own

    def is_parameter(self, tensor: Tensor) -> bool:
        """Return whether a tensor is a parameter of the model or a view of one."""
        if isinstance(tensor, nn.Parameter) or type(tensor) is not Tensor:
            return isinstance(tensor, nn.Parameter)
        try:
            return tensor.untyped_storage().data_ptr() in self._parameters
        except (NotImplementedError, RuntimeError):  # a tensor without storage, as in torch.func.vmap
            return False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result, probe = function(*args, **kwargs), active_probe()
        if probe is not None and function in SITES and self.captures:
            return probe.visit("", result)
        note_origin(function, (*args, *kwargs.values()), result, self.is_parameter)
        return result


class AxesFinder:
    """Finds the axes of weights that the modules of a model compute."""

    def __init__(self, tracker: ForwardTracker) -> None:
        self.tracker = tracker
        self.running: list[Running] = []
        """The running modules of user code, the outermost first."""
        self._known: dict[Any, tuple[Axes | str | None, list[int]]] = {}
        self._heads: dict[int, int | None] = {}
        self._observing = False

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Keep the inputs of the running modules inside the block."""
        if self._observing:
            yield
            return
        self._observing, hooks = True, []
        for module in self.tracker.modules.values():
            # A hook on a PyTorch layer would keep it from its fast path, and TorchScript takes no hooks.
            if not type(module).__module__.startswith(("torch.", "regard.")):
                hooks.append(self.tracker.hook_before(module, self._begin))
                hooks.append(self.tracker.hook_after(module, self._end, always=True))
        with remove_hooks(hooks):
            yield
        self._observing = False

    def _begin(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if active_probe() is None:
            self.running.append(Running(module, args, kwargs, Counter()))

    def _end(self, module: nn.Module, *_: Any) -> None:
        if active_probe() is None and self.running and self.running[-1].module is module:
            self.running.pop()

    def count(self, site: str = "") -> None:
        """Count a tensor of weights in all running modules."""
        for running in self.running:
            running.sites[site] += 1

    def find_heads(self) -> int | None:
        """Return the number of heads of the innermost running module that has one."""
        for running in reversed(self.running):
            key = id(running.module)
            if key not in self._heads:
                self._heads[key] = find_heads(running.module)
            if self._heads[key] is not None:
                return self._heads[key]
        return None

    def find(
        self, shape: Sequence[int], keys: int, site: str = "", *, product: bool = True, convention: bool = False
    ) -> Axes | str | None:
        """Return the axes of the weights that were counted last, the reason if they are unknown, or None if they
        weigh no values.

        `shape`: that of the weights; `keys`: the axis over which the weights were normalized. `site`: the module
        through which the weights pass, or "" for a function. `product`: whether the scores are products of
        queries and keys. `convention`: whether the function requires (..., H, Tq, Tk).
        """
        heads, numbers = self.find_heads(), [running.sites[site] - 1 for running in self.running]
        if product and len(shape) == 4 and self._is_by_head(shape, keys, heads, convention=convention):
            return BY_HEAD
        if not self.running:
            return UNKNOWN if product else None
        inner = self.running[-1].module
        key = id(inner), site, len(shape), keys, product, tuple(size == 1 for size in shape)
        axes, before = self._known.get(key, (None, []))
        sizes = [size for axis, size in enumerate(shape) if isinstance(axes, Axes) and axes.roles[axis] == "h"]
        if not before or sizes != [
            size for axis, size in enumerate(before) if isinstance(axes, Axes) and axes.roles[axis] == "h"
        ]:
            axes = self._probe(shape, keys, site, numbers, heads, product=product)
            unclear = heads is None and isinstance(axes, Axes) and axes.heads == 1 and "h" not in axes.roles
            if convention and (unclear or (axes == UNKNOWN and heads in (None, *shape[-3:-2]))):
                axes = Axes(("s",) * (len(shape) - 3) + ("h", "q", "k"))
            self._known[key] = axes, list(shape)
        if isinstance(axes, Axes) and axes.head is not None:
            return axes._replace(head=numbers[-1] % axes.heads)
        return axes

    def _is_by_head(self, shape: Sequence[int], keys: int, heads: int | None, *, convention: bool) -> bool:
        """Return whether the shape (B, H, Tq, Tk) is the only possible layout."""
        if keys != 3:
            return False
        if heads is None and convention:
            heads = shape[1]
        elif heads is None or shape[1] != heads or (heads > 1 and heads in (shape[0], shape[2])):
            return False
        inputs = list(_tensors(self.running[-1].args, self.running[-1].kwargs)) if self.running else []
        widths = {
            size for states in inputs for size in (states.shape[-1], states.shape[min(1, states.dim() - 1)])
        }
        return shape[2] in _step_counts(inputs, shape[0]) and (heads == 1 or shape[2] * heads not in widths)

    def _probe(
        self,
        shape: Sequence[int],
        keys: int,
        site: str,
        numbers: Sequence[int],
        heads: int | None,
        *,
        product: bool,
    ) -> Axes | str | None:
        """Return the axes from the output of the running modules, the innermost first."""
        result: Axes | str = UNKNOWN
        for level in range(1, min(LEVELS, len(self.running)) + 1):
            running = self.running[-level]
            probe = Probe(site, numbers[-level], shape, keys, used=product or bool(site))
            axes = self._try_probe(running, probe, heads)
            if axes == CHANNELS and level == 1:  # a module of several layers mixes steps after its weights
                projected = self._try_probe(running, probe, heads, projected=True)
                axes = axes if projected == UNKNOWN else projected
            if axes is None:
                return None
            if axes == CHANNELS:  # the other modules around it mix steps, too
                return CHANNELS if level == 1 else result
            if axes == UNKNOWN and isinstance(result, Axes):
                return result
            result = axes
            if not isinstance(axes, Axes):
                continue
            split = [size for role, size in zip(axes.roles, shape, strict=True) if role == "h"]
            count = axes.heads * math.prod(split)
            if level == 1 and count == 1 and heads is not None and heads > 1 and probe.count % heads == 0:
                return axes._replace(heads=heads, head=0)
            if count == heads or (heads is None and count > 1):
                return axes
        return result

    def _try_probe(self, *args: Any, **options: Any) -> Axes | str | None:
        # A user's module may refuse to run again, or with other numbers; the layout is then unknown.
        probe: Probe = args[1]
        try:
            with self._probing(probe):
                return self._axes_in(*args, **options)
        except Exception:
            if DEBUG:
                import traceback

                traceback.print_exc()
            return UNKNOWN

    @contextmanager
    def _probing(self, probe: Probe) -> Iterator[None]:
        running, captured = list(self.tracker.running), self.tracker.captured_elsewhere
        _thread.probe, self.tracker.captured_elsewhere = probe, False
        try:
            with torch.no_grad(), ProbeMode(self.tracker):
                yield
        finally:
            _thread.probe, self.tracker.captured_elsewhere = None, captured
            self.tracker.running[:] = running

    def _axes_in(
        self, running: Running, probe: Probe, heads: int | None, *, projected: bool = False
    ) -> Axes | str | None:
        """Return the axes from the output of one module, or from its first projection after the weights."""
        shape = probe.shape

        def run(axis: int, selected: Callable[[Tensor], Tensor] | None) -> Tensor:
            """Return the output of the module, or of its first projection after the weights."""
            probe.axis, probe.selected, probe.count, probe.projected = axis, selected, 0, None
            output = _run(running)
            if not projected:
                return output
            if probe.projected is None:
                raise ValueError("the context is not projected")
            return probe.projected.clone()

        def used_positions(axis: int, selected: Callable[[Tensor], Tensor]) -> Tensor:
            """Return the numbers of the output, True where they depend on selected rows of weights."""
            output = run(axis, selected)
            return (output != base) & ~(output.isnan() & base.isnan())

        base = run(0, None)
        if not probe.used:
            return None
        every = used_positions(0, lambda index: index >= 0)
        if not every.any():
            return UNKNOWN
        others = [axis for axis in range(len(shape)) if axis != probe.keys]
        first = {axis: used_positions(axis, lambda index: index == 0) for axis in others if shape[axis] > 1}

        def along(mask: Tensor, axis: int) -> Tensor:
            """Return the indices of an axis of the output that a mask contains."""
            return mask.movedim(axis, 0).flatten(1).any(1)

        dims = range(every.dim())
        limits = {axis: [dim for dim in dims if not torch.equal(along(mask, dim), along(every, dim))]
                  for axis, mask in first.items()}  # fmt: skip
        limited = {dim for dims in limits.values() for dim in dims}
        features = [dim for dim in dims if dim not in limited and every.shape[dim] > 1]
        last = every.dim() - 1
        if not features and last > 1:  # without a projection, each head has a part of the features
            parts = [
                axis for axis, dims in limits.items() if dims == [last] and along(first[axis], last).sum() > 1
            ]
            features, limits = [last] if parts else [], limits | {axis: [] for axis in parts}
        if len(features) > 1:
            return CHANNELS
        separate = [axis for axis in first if limits[axis]]
        single = [axis for axis in others if shape[axis] == 1]
        joined = [axis for axis in first if not limits[axis]]

        def positions(mask: Tensor) -> Tensor:
            return mask.any(features[0]) if features else mask

        def use_all(axis: int, selected: Callable[[Tensor], Tensor]) -> bool:
            """Return whether selected rows are used at every position."""
            return torch.equal(positions(used_positions(axis, selected)), positions(every))

        lowest = max(separate + single, default=-1)
        if lowest in first and not positions(every).all() and self._are_selected(first[lowest], every):
            return SELECTED
        folded: dict[int, str] = {}
        for axis in separate if math.prod(shape[axis] for axis in joined) != heads else ():
            if not (positions(first[axis]) & positions(used_positions(axis, lambda index: index > 0))).any():
                continue
            # Several rows of the axis are used at the same position.
            count = heads or shape[axis] + 1
            if shape[axis] % count:
                return FOLDED
            adjacent = use_all(axis, partial(_is_multiple, count))
            spread = use_all(axis, partial(_is_below, shape[axis] // count))
            if adjacent and spread:  # the first rows are those of one sample only if heads are adjacent
                adjacent = not use_all(axis, partial(_is_below, count))
            elif not adjacent and not spread:
                return FOLDED
            folded[axis] = "sh" if adjacent else "hs"
        if len(shape) == 2 and any(states.dim() > 2 for states in _tensors(running.args, running.kwargs)):
            return Axes(("s", "k") if probe.keys else ("k", "s"))  # one query for each sample
        separate = [axis for axis in separate if axis not in folded]
        if not separate and not single:
            return CHANNELS
        query = max(separate + single)
        if query in single and heads == 1 and len(separate) > 1 and len(single) == 1:
            query = max(separate)  # the axis of size one is that of the head
        # Queries of two axes, such as rows and columns of an image, share their keys; windows do not.
        grid = {query}
        below = [axis for axis in separate if min(others) < axis < query]
        keys, inputs = shape[probe.keys], _tensors(running.args, running.kwargs)
        if below and shape[query] * shape[below[-1]] == keys != shape[query]:
            grid |= {below[-1]} if keys in _step_counts(inputs, shape[0]) else set()
        roles = [
            "k"
            if axis == probe.keys
            else folded.get(axis, "q" if axis in grid else "h" if axis in joined else "s")
            for axis in range(len(shape))
        ]
        return Axes(tuple(roles), heads if folded and heads is not None else 1)

    @staticmethod
    def _are_selected(first: Tensor, every: Tensor) -> bool:
        """Return whether the first row is not the first of a block of steps that use weights."""
        dims = [dim for dim in range(every.dim()) if not every.movedim(dim, 0).flatten(1).any(1).all()]
        for dim in dims:
            steps = every.movedim(dim, 0).flatten(1).any(1).nonzero()[:, 0]
            row = first.movedim(dim, 0).flatten(1).any(1).nonzero()[:, 0]
            if len(steps) != steps[-1] - steps[0] + 1 or row[0] != steps[0] or len(row) > 1:
                return True
        return not dims


def _is_multiple(count: int, index: Tensor) -> Tensor:
    return index % count == 0


def _is_below(count: int, index: Tensor) -> Tensor:
    return index < count


def _tensors(*values: Any) -> Iterator[Tensor]:
    """Yield the floating-point tensors in nested containers."""
    for value in values:
        if isinstance(value, Tensor):
            if value.is_floating_point() and value.dim() > 1:
                yield value
        elif isinstance(value, Mapping):
            yield from _tensors(*value.values())
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield from _tensors(*value)


def _step_counts(inputs: Iterator[Tensor] | Sequence[Tensor], batch: int) -> set[int]:
    """Return the possible numbers of steps of inputs (B, T, D), (T, B, D), (B, H, W, D) or (B, D, H, W)."""
    counts: set[int] = set()
    for states in inputs:
        sizes = list(states.shape)
        if len(sizes) == 3:
            counts.add(sizes[1] if sizes[0] == batch else sizes[0])
        elif len(sizes) > 3:
            counts |= {sizes[-3] * sizes[-2], sizes[-2] * sizes[-1], sizes[-2]}
        else:
            counts.add(sizes[0])
    return counts


def _run(running: Running) -> Tensor:
    """Run a module again with copies of its inputs; returns its first output, and restores all states."""
    module: Any = running.module

    def copy(value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) else value

    with torch.random.fork_rng(devices=[]), _state_restored(module, running.args, running.kwargs):
        output = module.forward(
            *map(copy, running.args), **{name: copy(value) for name, value in running.kwargs.items()}
        )
        return next(_tensors(output if isinstance(output, Tensor | Mapping | Sequence) else vars(output))).clone()


@contextmanager
def _state_restored(*values: Any) -> Iterator[None]:
    """Restore the attributes, buffers and contents of modules and containers after the block."""
    restorers = [restore for value in values for restore in _restorers(value, set(), STATE_DEPTH)]
    try:
        yield
    finally:
        for restore in restorers:
            restore()


def _restorers(value: Any, visited: set[int], depth: int) -> Iterator[Callable[[], object]]:
    """Yield functions that restore a value and its contents in place.

    Unchanged containers are not touched, because a running module may iterate over them.
    """
    if id(value) in visited or depth < 0 or isinstance(value, type | types.FunctionType | types.ModuleType):
        return
    visited.add(id(value))
    contents: list[Any] = []
    if isinstance(value, Tensor):
        if not value.requires_grad:  # parameters do not change without gradients
            copy = value.clone()
            yield lambda: None if torch.equal(value, copy) else value.copy_(copy)
        return
    if isinstance(value, MutableMapping):
        items = list(value.items())
        contents = [part for _, part in items]
        yield lambda: _refill(value, items, list(value.items()), value.update)
    elif isinstance(value, MutableSequence | MutableSet):
        contents = list(value)
        fill = value.extend if isinstance(value, MutableSequence) else value.__ior__
        yield lambda: _refill(value, contents, list(value), fill)
    elif isinstance(value, tuple):
        contents = list(value)
    elif hasattr(value, "__dict__"):
        attributes = {name: part for name, part in vars(value).items() if "hooks" not in name}
        contents = list(attributes.values())
        yield lambda: _set_attributes(value, attributes)
    for part in contents:
        # Submodules have the same depth as their module.
        yield from _restorers(part, visited, depth if isinstance(value, nn.Module) else depth - 1)


def _refill(container: Any, before: list[Any], after: list[Any], fill: Callable[[Any], Any]) -> None:
    flat_before, flat_after = (
        [part for entry in entries for part in (entry if isinstance(entry, tuple) else (entry,))]
        for entries in (before, after)
    )
    if list(map(id, flat_before)) != list(map(id, flat_after)):
        container.clear()
        fill(set(before) if isinstance(container, MutableSet) else before)


def _set_attributes(owner: Any, attributes: dict[str, Any]) -> None:
    current = vars(owner)
    for name in [name for name in current if "hooks" not in name and name not in attributes]:
        del current[name]
    current.update(attributes)
