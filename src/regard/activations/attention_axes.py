"""Find what the axes of attention weights mean: samples, heads, queries and keys.

Code stores weights in many layouts: (B, H, Tq, Tk), heads folded into the batch in either order, windows between
heads and queries, heads after the queries, one call for each head. Shapes alone do not show the layout if, for
example, B = H. If a module's number of heads and the shapes leave several layouts, the module is probed: it runs
again with changed weights, and the positions of its output that change show where each row of weights is used.

- Rows with one index on a head axis are used at every position of the output.
- Rows with one index on a query or sample axis are used at different positions. Windows and groups of steps count
  as samples; the last of these axes is the query axis.
- If no axis separates the steps of the output, the rows are not queries: attention over channels, for example.

The state of the module and of its inputs is then restored. A probe needs no gradients, so it works in half
precision and in functions with their own backward pass.
"""

import math
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.activations.forward_tracker import DetachableHook, ForwardTracker, probing, remove_hooks
from regard.attention.layer import AttentionLayer
from regard.errors import is_own

HEADS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads", "nhead", "nheads", "num_head", "h")
"""Names of attributes that may contain the number of heads."""
STATE_DEPTH = 6
"""Number of nested levels of attributes and containers whose state is restored after a probe."""
LEVELS = 3
"""Number of nested modules that are probed: a module around the one with the weights may join the heads."""
SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax, F.softmin)
SITES = (*SOFTMAXES, F.scaled_dot_product_attention)
"""Functions that compute weights, or contexts with the rows of weights."""
PRODUCTS = (
    *("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "baddbmm", "addbmm", "addmm", "einsum"),
    *("tensordot", "inner", "cdist", "linear", "conv1d", "conv2d", "conv3d"),
)
RESIZE = ("cat", "pad", "sum", "__getitem__", "concat", "concatenate")
"""Functions whose result has the origin of their arguments although its size differs."""
PRODUCT, WEIGHTS, CONTEXT = "product", "weights", "context"
"""Origins of a tensor: a product of states, the weights of a probe, and these weights times values."""
CHANNELS = "the rows of weights {} are not queries (attention over channels, landmarks or slots)"
SELECTED = "the rows of weights {} belong to selected queries, and it is unknown which"
FOLDED = "heads and samples cannot be distinguished in weights {}"
UNKNOWN = "heads, samples and queries cannot be distinguished in weights {}"


Result = TypeVar("Result")
_shuffled = weakref.WeakKeyDictionary[nn.Module, bool]()
"""By module with weights (B, H, Tq, Tk): whether it changes the order of its queries."""


class Axes(NamedTuple):
    """The meaning of each axis of weights."""

    roles: tuple[str, ...]
    """For each axis, s (samples, windows, groups), h (heads), q (queries) or k (keys); for an axis that contains
    samples and heads, "sh" if the heads of a sample are adjacent, "hs" if the samples of a head are."""
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
        """Return weights (B, H, Tq, Tk) in the original layout and `shape`."""
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
    """A module that is running, with its inputs and the number of weights it computed, by place."""

    module: nn.Module
    args: Any
    kwargs: dict[str, Any]
    sites: Counter[str]


class AxesProbe:
    """Repeated runs of a module in which some rows of one tensor of weights are changed."""

    def __init__(self, running: Running, site: str, number: int, shape: Sequence[int], keys: int) -> None:
        self.running, self.site, self.number, self.shape, self.keys = running, site, number, shape, keys
        self.used = False
        """Whether the weights are multiplied by values."""
        self.count = 0
        """Number of tensors of weights in a run."""

    def run(self, axis: int = 0, rows: Callable[[Tensor], Tensor] | None = None, *, projected: bool = False) -> Tensor:
        """Return the output of a run in which the rows with some indices of an axis are changed.

        `projected`: return the first projection of the context instead.
        """
        self._axis, self._rows, self.count = axis, rows, 0
        self.projected: Tensor | None = None
        module, args, kwargs, _ = self.running
        copied = [value.clone() if isinstance(value, Tensor) else value for value in (*args, *kwargs.values())]
        with torch.random.fork_rng(devices=[]), _state_restored(module, args, kwargs), _without_hooks(module):
            forward: Any = module.forward
            output = forward(*copied[: len(args)], **dict(zip(kwargs, copied[len(args) :], strict=True)))
            output = [self.projected] if projected else output
            return next(_tensors(output if isinstance(output, Tensor | Mapping | Sequence) else vars(output))).clone()

    def used_at(self, axis: int, rows: Callable[[Tensor], Tensor], base: Tensor, *, projected: bool = False) -> Tensor:
        """Return the numbers of the output `base`, True where they depend on selected rows of weights."""
        output = self.run(axis, rows, projected=projected)
        return (output != base) & ~(output.isnan() & base.isnan())

    def is_shuffled(self, axis: int, *, projected: bool = False) -> bool:
        """Return whether each row is used at one position, and not at its own: code may sort the queries."""
        used = partial(self.used_at, axis, base=self.run(projected=projected), projected=projected)
        first, count = used(lambda index: index == 0), self.shape[axis]
        dims = [dim for dim in range(first.dim()) if not first.movedim(dim, 0).flatten(1).any(1).all()]

        def by_step(mask: Tensor) -> Tensor:
            return mask.movedim(dims, list(range(len(dims)))).flatten(0, len(dims) - 1).flatten(1)

        if not dims or len(by_step(first)) != count or int(by_step(first).sum(0).max()) > 1:
            return False  # windows, or a module that mixes steps after its weights
        tests = partial(torch.bitwise_and, other=1), partial(torch.ge, other=count // 2)  # odd rows, late rows
        return any(bool(by_step(used(test))[~test(torch.arange(count)).bool()].any()) for test in tests)

    def visit(self, site: str, weights: Tensor) -> Tensor:
        """Return weights, with changed rows if they are those of the probe."""
        if site != self.site:
            return weights
        self.count += 1
        if self.count - 1 != self.number:
            return weights
        if any(a != b for axis, (a, b) in enumerate(zip(weights.shape, self.shape, strict=True)) if axis != self.keys):
            raise ValueError("a repeated run computes weights of another shape")
        if self._rows is not None:
            noise = torch.rand(weights.shape, generator=torch.Generator().manual_seed(0)).to(weights) + 0.1
            rows = self._rows(torch.arange(weights.shape[self._axis], device=weights.device)).to(weights.device)
            sizes = [-1 if axis == self._axis else 1 for axis in range(weights.dim())]
            weights = weights + noise * rows.reshape(sizes)
        return mark(weights, WEIGHTS)


def active_probe() -> AxesProbe | None:
    return getattr(probing, "probe", None)


def mark(tensor: Tensor, origin: str) -> Tensor:
    tensor.regard_origin = origin  # type: ignore[attr-defined]
    return tensor


def in_place_of(output: Tensor | None, weights: Tensor) -> Tensor:
    """Return weights; with `out=`, the tensor from which the code reads them."""
    return weights if output is None else output.copy_(weights)


def origin_of(tensor: Tensor) -> str | None:
    """Return the origin of a tensor; None if it is unknown."""
    return getattr(tensor, "regard_origin", None)


def find_heads(module: nn.Module) -> int | None:
    """Return the number of heads from the attributes of a module or of its config; None if it has none."""
    owners = [module, *(getattr(module, name, None) for name in ("config", "cfg", "args"))]
    values = (getattr(owner, name, None) for owner in owners for name in HEADS)
    return next((value for value in values if type(value) is int and value > 0), None)


class ProbeMode(TorchFunctionMode):
    """Passes the weights of a probed module to the probe, and follows products of states to their use."""

    def __init__(self, tracker: ForwardTracker) -> None:
        super().__init__()
        self.tracker, modules = tracker, tracker.named.items()
        self.own = {name for name, module in modules if isinstance(module, AttentionLayer)}
        """Regard's own layers, which other hooks record."""
        # Sharded parameters (FSDP2) have no storage; during a pass, parameters of their own replace them.
        stored = (part for part in tracker.model.parameters() if not (part.is_meta or hasattr(part, "full_tensor")))
        self._parameters = {parameter.untyped_storage().data_ptr() for parameter in stored}

    @property
    def captures(self) -> bool:
        tracker = self.tracker
        return bool(tracker.running) and not tracker.captured_elsewhere and tracker.running[-1] not in self.own

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result, probe = function(*args, **kwargs), active_probe()
        if probe is not None and function in SITES and self.captures:
            return in_place_of(kwargs.get("out"), probe.visit("", result))
        if isinstance(result, Tensor):
            operands = [
                value
                for arg in (*args, *kwargs.values())
                for value in (arg if isinstance(arg, tuple | list) else (arg,))
                if isinstance(value, Tensor)
            ]
            origin = self._find_origin(getattr(function, "__name__", ""), operands, result)
            if origin is not None:
                mark(result, origin)
        return result

    def _find_origin(self, name: str, operands: Sequence[Tensor], result: Tensor) -> str | None:
        origins, sizes, probe = (list(map(origin_of, operands)), [part.numel() for part in operands], active_probe())
        multiplies = name in PRODUCTS
        if name in ("mul", "__mul__", "__rmul__", "multiply") and len(operands) == 2:  # with a sum, a product
            smaller = [size for size, origin in zip(sizes, origins, strict=True) if origin == WEIGHTS] or [max(sizes)]
            multiplies = result.numel() > min(smaller)
        if not multiplies:
            sized = zip(origins, sizes, strict=True)
            return next(
                (origin for origin, size in sized if origin and (size == result.numel() or name in RESIZE)), None
            )
        if probe is not None and WEIGHTS in origins:
            probe.used |= any(origin not in (WEIGHTS, PRODUCT) for origin in origins)
            return CONTEXT
        if any(map(self._is_parameter, operands)):
            if probe is not None and CONTEXT in origins and probe.projected is None:
                probe.projected = result
            return None
        return CONTEXT if CONTEXT in origins else PRODUCT

    def _is_parameter(self, tensor: Tensor) -> bool:
        """Return whether a tensor is a parameter of the model or a view of one."""
        if isinstance(tensor, nn.Parameter) or type(tensor) is not Tensor:
            return isinstance(tensor, nn.Parameter)
        try:
            return tensor.untyped_storage().data_ptr() in self._parameters
        except (NotImplementedError, RuntimeError):  # a tensor without storage, as in torch.func.vmap
            return False


class AxesFinder:
    """Finds the axes of weights that the modules of a model compute."""

    def __init__(self, tracker: ForwardTracker) -> None:
        self.tracker = tracker
        self.running: list[Running] = []
        """The running modules of user code, the outermost first."""
        self._known: dict[Any, tuple[Axes | str | None, Sequence[int]]] = {}
        self._heads: dict[int, int | None] = {}
        self._observes = False

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Keep the inputs of the running modules inside the block."""
        hooks: list[Any] = []
        # A hook on a PyTorch layer would keep it from its fast path, and TorchScript takes no hooks.
        # A compiled module and the original module inside it have one name.
        modules = {*self.tracker.modules.values(), *self.tracker.model.modules()}
        for module in modules if not self._observes else ():
            # fully_shard replaces the class of a module by a subclass in torch.distributed.
            name = type(module).__module__.replace("torch.distributed.", "")
            if not (name.startswith("torch.") or is_own(name)):
                hooks.append(self.tracker.hook_before(module, self._begin))
                hooks.append(self.tracker.hook_after(module, self._end, always=True))
        self._observes = True
        with remove_hooks(hooks):
            yield

    def _begin(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if active_probe() is None:
            self.running.append(Running(module, args, kwargs, Counter()))

    def _end(self, module: nn.Module, *_: Any) -> None:
        if active_probe() is None and self.running and self.running[-1].module is module:
            self.running.pop()

    def count(self, site: str = "") -> None:
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
        self, shape: Sequence[int], keys: int, site: str = "", *, product: bool = True, convention: Tensor | None = None
    ) -> Axes | str | None:
        """Return the axes of the last counted weights, the reason if they are unknown, or None if they weigh no values.

        `shape`: that of the weights; `keys`: the axis over which they were normalized. `site`: the module through
        which they pass, or "" for a function. `product`: whether the scores are products of queries and keys.
        `convention`: a tensor of the call, if the function requires (..., H, Tq, Tk).
        """
        heads, by_convention = self.find_heads(), convention is not None
        copies = torch.func.debug_unwrap(convention).numel() // convention.numel() if convention is not None else 1
        if heads is not None and copies > 1 < heads and copies % heads == 0:
            return UNKNOWN  # vmap over the heads, or over as many samples
        sure = by_convention and heads is None
        if product and self._is_by_head(shape, keys, shape[-3] if sure else heads, sure=sure):
            return SELECTED if self._is_shuffled(shape, site) else BY_HEAD
        if not self.running:
            return UNKNOWN if product else None
        key = id(self.running[-1].module), site, len(shape), keys, product, tuple(size == 1 for size in shape)
        axes, before = self._known.get(key, (UNKNOWN, ()))
        fixed = [axis for axis in range(len(shape)) if isinstance(axes, Axes) and axes.roles[axis] == "h"]
        if not before or any(before[axis] != shape[axis] for axis in fixed):
            axes = self._probe(shape, keys, site, heads, product=product)
            unclear = axes == UNKNOWN and heads in (None, *shape[-3:-2])
            if isinstance(axes, Axes):
                no_heads = heads is None and axes.heads == 1 and "h" not in axes.roles
                unclear = no_heads or axes.roles[-2] != "q" or "q" in axes.roles[:-2]
            if by_convention and unclear:
                axes = Axes(("s",) * (len(shape) - 3) + ("h", "q", "k"))
            self._known[key] = axes, shape
        if isinstance(axes, Axes) and axes.head is not None:
            return axes._replace(head=(self.running[-1].sites[site] - 1) % axes.heads)
        return axes

    def _inputs(self) -> list[Tensor]:
        return list(_tensors(self.running[-1].args, self.running[-1].kwargs)) if self.running else []

    def has_steps(self, count: int, batch: int) -> bool:
        return count in _step_counts(self._inputs(), batch)

    def _is_by_head(self, shape: Sequence[int], keys: int, heads: int | None, *, sure: bool) -> bool:
        """Return whether only (B, H, Tq, Tk) fits the shape, the number of heads and the inputs of the running
        module; `sure`: whether B and Tq may equal the number of heads."""
        if len(shape) != 4 or keys != 3 or heads is None or shape[1] != heads:
            return False
        inputs = self._inputs()
        widths = {size for states in inputs for size in (states.shape[-1], states.shape[min(1, states.dim() - 1)])}
        channels = heads > 1 and shape[2] * heads in widths
        unique = sure or heads == 1 or heads not in (shape[0], shape[2])
        return unique and not channels and self.has_steps(shape[2], shape[0])

    def _is_shuffled(self, shape: Sequence[int], site: str) -> bool:
        """Return whether the innermost module changes the order of its queries; probes each module once."""
        module = self.running[-1].module if self.running else None
        if module is None or shape[2] < 2 or type(module).__module__.startswith("transformers."):
            return False
        if module not in _shuffled:
            probe = AxesProbe(self.running[-1], site, self.running[-1].sites[site] - 1, shape, 3)
            _shuffled[module] = self._try_probe(probe, lambda probe: probe.is_shuffled(2)) is True
        return _shuffled[module]

    def _probe(
        self, shape: Sequence[int], keys: int, site: str, heads: int | None, *, product: bool
    ) -> Axes | str | None:
        """Return the axes from the output of the running modules, the innermost first."""
        result: Axes | str = UNKNOWN
        for level, running in enumerate(self.running[: -LEVELS - 1 : -1]):
            probe = AxesProbe(running, site, running.sites[site] - 1, shape, keys)
            axes = self._try_probe(probe, partial(_axes_in, heads=heads))
            if not (probe.used or product or site) and axes != UNKNOWN:
                return None
            if isinstance(axes, str) and level == 0:
                # A module of several layers mixes steps after its weights, and a norm may multiply them by zero.
                projected = self._try_probe(probe, partial(_axes_in, heads=heads, projected=True))
                axes = projected if isinstance(projected, Axes) else axes
            if not isinstance(axes, Axes):  # the modules around it mix steps, too
                return axes if level == 0 else result
            result = axes
            split = [size for role, size in zip(axes.roles, shape, strict=True) if role == "h"]
            count = axes.heads * math.prod(split)
            if level == 0 and count == 1 and heads is not None and heads > 1 and probe.count % heads == 0:
                return axes._replace(heads=heads, head=0)
            if count == heads or (heads is None and count > 1):
                return axes
        return result

    def _try_probe(self, probe: AxesProbe, find: Callable[[AxesProbe], Result]) -> Result | str:
        tracker = self.tracker
        running, captured = list(tracker.running), tracker.captured_elsewhere
        probing.probe, tracker.captured_elsewhere = probe, False
        try:
            with torch.no_grad(), ProbeMode(tracker):
                return find(probe)
        except Exception:  # a user's module may refuse to run again, or with other numbers
            return UNKNOWN
        finally:
            probing.probe, tracker.captured_elsewhere = None, captured
            tracker.running[:] = running


def _axes_in(probe: AxesProbe, heads: int | None, *, projected: bool = False) -> Axes | str:
    """Return the axes from the output of one module, or from its first projection after the weights."""
    base, shape = probe.run(projected=projected), probe.shape

    used = partial(probe.used_at, base=base, projected=projected)

    def along(mask: Tensor, dim: int) -> Tensor:
        return mask.movedim(dim, 0).flatten(1).any(1)

    every = used(0, partial(torch.ge, other=0))
    others = [axis for axis in range(len(shape)) if axis != probe.keys]
    first = {axis: used(axis, partial(torch.eq, other=0)) for axis in others if shape[axis] > 1}
    dims, last = range(every.dim()), every.dim() - 1
    limits = {
        axis: [dim for dim in dims if not along(mask, dim).equal(along(every, dim))] for axis, mask in first.items()
    }
    features = [
        dim
        for dim in dims
        if every.shape[dim] > 1 < along(every, dim).sum() and all(dim not in limit for limit in limits.values())
    ]
    if len(features) > 1 or not every.any():
        return CHANNELS if every.any() else UNKNOWN
    if not features and last > 1:  # without a projection, each head has a part of the features
        alone = [(axis, [dim for dim in limit if dim]) for axis, limit in limits.items()]
        parts = {dims[0] for axis, dims in alone if len(dims) == 1 and along(first[axis], dims[0]).sum() > 1}
        features = [last] if last in parts else list(parts & {1})
        limits = {axis: [dim for dim in limit if dim not in features] for axis, limit in limits.items()}

    def positions(mask: Tensor) -> Tensor:
        return mask.any(features[0]) if features else mask

    joined = [axis for axis in first if not limits[axis]]
    separate = [axis for axis in first if limits[axis]]
    single = [axis for axis in others if shape[axis] == 1]
    lowest = max(separate + single, default=-1)
    # Several softmaxes of a module, or a module with one query, use a block of steps if it splits the queries.
    if not positions(every).all() and (probe.count > 1 or not _is_block(first.get(lowest, every), every, along)):
        return SELECTED

    def shares(axis: int) -> bool:
        """Return whether the first row of an axis and its other rows are used at a common position."""
        return bool((positions(first[axis]) & positions(used(axis, partial(torch.gt, other=0)))).any())

    unjoined = math.prod(shape[axis] for axis in joined) != heads
    if not features and unjoined and (heads or 1) > 1:
        return FOLDED
    rows = math.prod(shape[axis] for axis in separate) // ((heads or 1) if unjoined else 1)
    if lowest in separate and int(positions(every).sum()) > rows and shares(lowest):
        return SELECTED  # each head has its own queries
    folded: dict[int, str] = {}
    for axis in separate if unjoined else ():
        if not shares(axis):
            continue
        # Several rows of the axis are used at the same position.
        if heads is None or shape[axis] % heads:
            return FOLDED
        samples = shape[axis] // heads
        tests = (
            lambda index: index % heads == 0,
            lambda index, count=samples: index < count,
            lambda index: index < heads,
        )
        adjacent, spread, block = (positions(used(axis, test)).equal(positions(every)) for test in tests)
        if not adjacent and not spread:
            return FOLDED
        # If both fit, the first rows are those of one sample only if heads are adjacent.
        folded[axis] = "hs" if not adjacent or (spread and block) else "sh"
    inputs = list(_tensors(probe.running.args, probe.running.kwargs))
    if len(shape) == 2 and any(states.dim() > 2 and (len(states) > 1 or shape[others[0]] == 1) for states in inputs):
        return Axes(("s", "k") if probe.keys else ("k", "s"))  # one query for each sample
    separate = [axis for axis in separate if axis not in folded]
    if not separate and not single:
        return CHANNELS
    # An axis of size one is that of the queries, or that of a single head.
    query = max(separate if heads == 1 and len(separate) > 1 and len(single) == 1 else separate + single)
    # Queries of two axes, such as rows and columns of an image, share their keys; windows do not.
    above, keys = [axis for axis in separate if min(others) < axis < query], shape[probe.keys]
    if folded and max(folded) > query:
        return FOLDED  # heads and queries share an axis
    if query in first and probe.is_shuffled(query, projected=projected):
        return SELECTED
    counts = _step_counts(inputs, shape[0])
    grid = {query, above[-1]} if above and shape[query] * shape[above[-1]] == keys in counts else {query}
    letters = dict.fromkeys(joined, "h") | folded | dict.fromkeys(grid, "q") | {probe.keys: "k"}
    return Axes(tuple(letters.get(axis, "s") for axis in range(len(shape))), heads if folded and heads else 1)


def _is_block(first: Tensor, every: Tensor, along: Callable[[Tensor, int], Tensor]) -> bool:
    """Return whether the rows are those of the first steps, and the first row is that of the first step."""
    dims = [dim for dim in range(every.dim()) if not along(every, dim).all()]
    for dim in dims:
        steps, row = along(every, dim).nonzero()[:, 0], along(first, dim).nonzero()[:, 0]
        if int(steps[-1]) + 1 != len(steps) or row.tolist() != [0]:
            return False
    return bool(dims)


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


def _step_counts(inputs: Iterable[Tensor], batch: int) -> set[int]:
    """Return the possible numbers of steps of inputs (B, T, D), (T, B, D), (B, H, W, D) or (B, D, H, W)."""
    counts: set[int] = set()
    for states in inputs:
        sizes = list(states.shape)
        if len(sizes) == 3:
            counts.add(sizes[1] if sizes[0] == batch else sizes[0])
        else:
            counts |= {sizes[-2], math.prod(sizes[-3:-1]), math.prod(sizes[-2:])} if len(sizes) > 3 else {sizes[0]}
    return counts


@contextmanager
def _without_hooks(module: nn.Module) -> Iterator[None]:
    """Call no hooks of the user inside the block: these would see the changed weights, and more calls."""
    tables = [table for part in module.modules() for table in (part._forward_pre_hooks, part._forward_hooks)]
    before = [(table, dict(table)) for table in tables if table]
    for table, hooks in before:
        for key in [key for key, hook in hooks.items() if not isinstance(hook, DetachableHook)]:
            del table[key]
    try:
        yield
    finally:
        for table, hooks in before:
            table.clear()
            table.update(hooks)


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
    """Yield functions that restore a value and its contents in place."""
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
        items = dict(value)
        contents = list(items.values())
        yield value.clear
        yield lambda: value.update(items)
    elif isinstance(value, MutableSequence | MutableSet):
        contents = list(value)
        yield value.clear
        yield (lambda: value.extend(contents) if isinstance(value, MutableSequence) else value.__ior__(set(contents)))
    elif isinstance(value, tuple):
        contents = list(value)
    elif hasattr(value, "__dict__"):
        attributes = {name: part for name, part in vars(value).items() if "hooks" not in name}
        contents = list(attributes.values())
        yield lambda: _set_attributes(value, attributes)
    for part in contents:
        # Submodules have the same depth as their module.
        yield from _restorers(part, visited, depth if isinstance(value, nn.Module) else depth - 1)


def _set_attributes(owner: Any, attributes: dict[str, Any]) -> None:
    current = vars(owner)
    for name in [name for name in current if "hooks" not in name and name not in attributes]:
        del current[name]
    current.update(attributes)
