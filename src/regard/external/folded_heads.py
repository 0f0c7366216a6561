"""Find the layout of heads that are folded into the batch dimension of weights.

Some models fold heads into the batch dimension. In weights (B H, Tq, Tk), the heads of a sample are adjacent.
In weights (H B, Tq, Tk), the samples of a head are adjacent. The shape does not show the layout. The module
with the heads is therefore probed before it runs: it runs up to three times, with the original first sample and
with a changed first sample. The weights that change belong to the heads of the first sample. The state of the
module and of its inputs is then restored.
"""

import threading
import types
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence, MutableSet
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.external.forward_tracker import ForwardTracker
from regard.external.hooks import remove_hooks

HEADS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads", "nhead")
"""Names of attributes that may contain the number of heads."""
STATE_DEPTH = 4
"""Number of nested levels of attributes and containers whose state is restored after a probe."""

_thread = threading.local()


class Folding(NamedTuple):
    """The layout of heads and samples in weights (N, Tq, Tk)."""

    heads: int
    heads_first: bool = False

    def unfold(self, weights: Tensor) -> Tensor:
        """Return weights (N, Tq, Tk) as (B, H, Tq, Tk).

        >>> Folding(heads=2).unfold(torch.zeros(6, 4, 4)).shape
        torch.Size([3, 2, 4, 4])
        """
        sizes = (self.heads, -1) if self.heads_first else (-1, self.heads)
        by_head: Tensor = weights.unflatten(0, sizes)
        return by_head.transpose(0, 1) if self.heads_first else by_head

    def fold(self, weights: Tensor) -> Tensor:
        """Return weights (B, H, Tq, Tk) in the original layout."""
        return (weights.transpose(0, 1) if self.heads_first else weights).flatten(0, 1)


def find_heads(module: nn.Module) -> int | None:
    """Return the number of heads from a module's attributes; None if no attribute holds it.

    >>> find_heads(nn.MultiheadAttention(8, 2))
    2
    """
    values = (getattr(module, name, None) for name in HEADS)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def is_probing() -> bool:
    """Return whether a probe is running, during which nothing is recorded."""
    return bool(getattr(_thread, "probing", False))


class Foldings:
    """Finds the layout of folded weights that pass through some modules."""

    def __init__(self, tracker: ForwardTracker) -> None:
        self.tracker = tracker
        self.known: dict[str, Folding] = {}
        """Layouts by module, while the module that has the heads runs."""
        self._of_batches: dict[str, Folding] = {}
        """Layouts that were found with batches of several samples. They also hold for a single step, where all
        weights are one."""
        self._batch_sizes: tuple[int, ...] = ()
        """Possible batch sizes of the current forward pass."""
        self._probed: dict[str, Tensor] = {}
        self._results: dict[Any, dict[str, Folding]] = {}

    @contextmanager
    def observe(self, names: set[str]) -> Iterator[None]:
        """Inside the block, run a probe before each run of a module that contains the heads of the modules in
        `names`."""
        tracker, owners = self.tracker, {self._find_owner(name) for name in names}
        hooks = [tracker.hook_before(tracker.modules[""], self._begin_pass)]
        hooks += [
            tracker.hook_before(tracker.modules[owner], self._begin) for owner in owners if owner is not None
        ]
        with remove_hooks(hooks):
            yield

    def _find_owner(self, name: str) -> str | None:
        """Return the nearest module around a name that has a number of heads."""
        while find_heads(self.tracker.modules[name]) is None:
            if not name:
                return None
            name = name.rpartition(".")[0]
        return name

    def note_probe(self, name: str, weights: Tensor) -> None:
        """Store weights that pass during a probe."""
        if weights.dim() == 3:
            self._probed.setdefault(name, weights.detach().clone())

    def find(self, name: str, weights: Tensor) -> Folding | None:
        """Return the layout of weights (N, Tq, Tk); None if the layout is unknown."""
        known = self.known.get(name)
        if known is not None and len(weights) % known.heads == 0:
            return known
        owner = self._find_owner(name)
        return Folding(1) if owner is None and len(weights) in self._batch_sizes else None

    def _begin_pass(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        if not is_probing():
            shapes = [
                value.shape for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim()
            ]
            self._batch_sizes = tuple(shapes[0][:2]) if shapes else ()

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if is_probing():
            return
        shapes = tuple(value.shape for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        key = id(module), shapes
        if key not in self._results:
            self._results[key] = self._probe(module, args, kwargs)
        self.known = self._of_batches | self._results[key]

    def _probe(self, module: Any, args: Any, kwargs: Any) -> dict[str, Folding]:
        """Run a module with changed samples; returns the layouts that fit the changed weights."""
        heads, foldings = find_heads(module), dict[str, Folding]()
        _thread.probing = True
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]), _state_restored(module, args, kwargs):
                first = self._run(module, args, kwargs, torch.clone)
                for dim in (0, 1) if first else ():
                    with _state_restored(module, args, kwargs):
                        second = self._run(module, args, kwargs, partial(_change_sample, dim))
                    values = (*args, *kwargs.values())
                    samples = {value.shape[dim] for value in values if _are_states(value)}
                    for name, weights in first.items():
                        if name not in second or second[name].shape != weights.shape or len(samples) != 1:
                            continue
                        changed = (second[name] != weights).flatten(1).any(1).nonzero()[:, 0].tolist()
                        folding = _folding_from_changes(len(weights), samples.copy().pop(), changed)
                        if folding is not None and folding.heads in (1, heads):
                            foldings.setdefault(name, folding)
                            if folding.heads < len(weights):
                                self._of_batches[name] = folding
        except Exception:  # a user's module may refuse to run with other numbers; then a warning says so
            return {}
        finally:
            _thread.probing = False
        return foldings

    def _run(self, module: Any, args: Any, kwargs: Any, change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        self._probed = {}
        module.forward(
            *(change(value) if _are_states(value) else value for value in args),
            **{name: change(value) if _are_states(value) else value for name, value in kwargs.items()},
        )
        return self._probed


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
        yield (
            lambda: value.extend(contents) if isinstance(value, MutableSequence) else value.__ior__(set(contents))
        )
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


def _are_states(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 3 and value.is_floating_point()


def _change_sample(dim: int, states: Tensor) -> Tensor:
    """Return states with a changed first sample along dimension `dim`."""
    changed = states.clone()
    shift = torch.linspace(-1, 1, states.shape[-1], dtype=states.dtype).to(states)
    changed.select(dim, 0).mul_(-0.5).add_(shift)
    return changed


def _folding_from_changes(count: int, samples: int, changed: list[int]) -> Folding | None:
    """Return the layout of `count` rows, from the rows that belong to the first sample."""
    heads = len(changed)
    if heads * samples != count:
        return None
    if changed == list(range(heads)):
        return Folding(heads)
    return Folding(heads, heads_first=True) if changed == list(range(0, count, samples)) else None
