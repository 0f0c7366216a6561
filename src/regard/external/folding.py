"""Heads that a model folds into its batch: weights (B H, Tq, Tk), where heads of a sample stand side by side, or
(H B, Tq, Tk), where samples of a head do.

The shape does not tell which. So the module that has the heads runs up to three times before it runs for the
pass: with the first sample as it is, and with another one. The weights that change are those of its heads.
Afterwards the module and its inputs have the state that they had before.
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

HEADS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "heads", "nhead")
"""What layers call the number of their heads."""

DEEPEST = 4
"""Levels of attributes and containers whose state is restored after a trial run."""

_local = threading.local()


class Folding(NamedTuple):
    """How weights (N, Tq, Tk) hold heads and samples."""

    heads: int
    heads_first: bool = False

    def unfold(self, weights: Tensor) -> Tensor:
        """Return weights (N, Tq, Tk) as (B, H, Tq, Tk)."""
        sizes = (self.heads, -1) if self.heads_first else (-1, self.heads)
        found: Tensor = weights.unflatten(0, sizes)
        return found.transpose(0, 1) if self.heads_first else found

    def fold(self, weights: Tensor) -> Tensor:
        """Return weights (B, H, Tq, Tk) as they were."""
        return (weights.transpose(0, 1) if self.heads_first else weights).flatten(0, 1)


def heads_of(module: nn.Module) -> int | None:
    """Return the number of heads that a module names; None where it names none."""
    found = (getattr(module, name, None) for name in HEADS)
    return next((each for each in found if isinstance(each, int) and each > 0), None)


def probing() -> bool:
    """Say whether a module runs to find out how it folds its heads: nobody is to look on."""
    return bool(getattr(_local, "probing", False))


class Foldings:
    """Finds out how the weights that pass some places hold their heads. A copy of it finds nothing."""

    def __init__(self, tracker: ForwardTracker | None = None) -> None:
        self.tracker = tracker
        self.known: dict[str, Folding] = {}
        """By the name of a place, for what runs now."""
        self._earlier: dict[str, Folding] = {}
        """The same of batches of several samples, which hold for a single step too, where all weights are one."""
        self.batch: tuple[int, ...] = ()
        """Sizes that the batch of the pass may have."""
        self._seen: dict[str, Tensor] = {}
        self._before: dict[Any, dict[str, Folding]] = {}

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Foldings, ()

    @contextmanager
    def watching(self, places: set[str]) -> Iterator[None]:
        """Follow in the block the modules that have the heads of these places."""
        assert self.tracker is not None
        modules = self.tracker.modules
        owners = {self._owner(modules, place) for place in places} - {None}
        hooks = [modules[""].register_forward_pre_hook(self._begin_pass, with_kwargs=True)]
        for owner in owners:
            hooks.append(modules[str(owner)].register_forward_pre_hook(self._begin, with_kwargs=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _owner(self, modules: dict[str, nn.Module], place: str) -> str | None:
        while heads_of(modules[place]) is None:
            if not place:
                return None
            place = place.rpartition(".")[0]
        return place

    def see(self, place: str, weights: Tensor) -> None:
        """Note weights that pass while a module is probed."""
        if weights.dim() == 3:
            self._seen.setdefault(place, weights.detach().clone())

    def of(self, place: str, weights: Tensor) -> Folding | None:
        """Return how weights (N, Tq, Tk) hold their heads; None where that cannot be told."""
        known = self.known.get(place)
        if known is not None and len(weights) % known.heads == 0:
            return known
        assert self.tracker is not None
        owner = self._owner(self.tracker.modules, place)
        return Folding(1) if owner is None and len(weights) in self.batch else None

    def _begin_pass(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        if self.tracker is not None and self.tracker.here and not probing():
            shapes = [each.shape for each in (*args, *kwargs.values()) if isinstance(each, Tensor) and each.dim()]
            self.batch = tuple(shapes[0][:2]) if shapes else ()

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.tracker is None or not self.tracker.here or probing():
            return
        shapes = tuple(each.shape for each in (*args, *kwargs.values()) if isinstance(each, Tensor))
        key = id(module), shapes
        if key not in self._before:
            self._before[key] = self._probe(module, args, kwargs)
        self.known = self._earlier | self._before[key]

    def _probe(self, module: Any, args: Any, kwargs: Any) -> dict[str, Folding]:
        """Return how the weights of each place in a module hold their heads, as far as that shows."""
        heads, found = heads_of(module), dict[str, Folding]()
        _local.probing = True
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]), _state_restored(module, args, kwargs):
                first = self._run(module, args, kwargs, torch.clone)
                for dim in (0, 1) if first else ():
                    with _state_restored(module, args, kwargs):
                        second = self._run(module, args, kwargs, partial(_other_sample, dim))
                    samples = {each.shape[dim] for each in (*args, *kwargs.values()) if _is_states(each)}
                    for place, weights in first.items():
                        if place not in second or second[place].shape != weights.shape or len(samples) != 1:
                            continue
                        changed = (second[place] != weights).flatten(1).any(1).nonzero()[:, 0].tolist()
                        folding = _folding(len(weights), samples.copy().pop(), changed)
                        if folding is not None and folding.heads in (1, heads):
                            found.setdefault(place, folding)
                            if folding.heads < len(weights):
                                self._earlier[place] = folding
        except Exception:  # a module of anybody's, which may refuse to run with other numbers
            return {}
        finally:
            _local.probing = False
        return found

    def _run(self, module: Any, args: Any, kwargs: Any, change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        self._seen = {}
        module.forward(
            *(change(each) if _is_states(each) else each for each in args),
            **{name: change(each) if _is_states(each) else each for name, each in kwargs.items()},
        )
        return self._seen


@contextmanager
def _state_restored(*values: Any) -> Iterator[None]:
    """Give modules, and what else holds state, the attributes, buffers and contents back that they had before."""
    restore = [each for value in values for each in _restorers(value, set(), DEEPEST)]
    try:
        yield
    finally:
        for each in restore:
            each()


def _restorers(value: Any, seen: set[int], depth: int) -> Iterator[Callable[[], object]]:
    """Yield functions that restore a value, and what it holds, in place."""
    if id(value) in seen or depth < 0 or isinstance(value, type | types.FunctionType | types.ModuleType):
        return
    seen.add(id(value))
    inside: list[Any] = []
    if isinstance(value, Tensor):
        if not value.requires_grad:  # parameters do not change without gradients
            copy = value.clone()
            yield lambda: None if torch.equal(value, copy) else value.copy_(copy)
        return
    if isinstance(value, MutableMapping):
        items = dict(value)
        inside = list(items.values())
        yield value.clear
        yield lambda: value.update(items)
    elif isinstance(value, MutableSequence | MutableSet):
        inside = list(value)
        yield value.clear
        yield lambda: value.extend(inside) if isinstance(value, MutableSequence) else value.__ior__(set(inside))
    elif isinstance(value, tuple):
        inside = list(value)
    elif hasattr(value, "__dict__"):
        own = {name: each for name, each in vars(value).items() if "hooks" not in name}
        inside = list(own.values())
        yield lambda: _set_attributes(value, own)
    for each in inside:
        # Modules inside a module are no deeper than it.
        yield from _restorers(each, seen, depth if isinstance(value, nn.Module) else depth - 1)


def _set_attributes(owner: Any, attributes: dict[str, Any]) -> None:
    now = vars(owner)
    for name in [name for name in now if "hooks" not in name and name not in attributes]:
        del now[name]
    now.update(attributes)


def _is_states(each: Any) -> bool:
    return isinstance(each, Tensor) and each.dim() == 3 and each.is_floating_point()


def _other_sample(dim: int, states: Tensor) -> Tensor:
    """Return states with other numbers in the first place of a dimension."""
    found = states.clone()
    found.select(dim, 0).mul_(-0.5).add_(torch.linspace(-1, 1, states.shape[-1], dtype=states.dtype).to(states))
    return found


def _folding(count: int, samples: int, changed: list[int]) -> Folding | None:
    """Return how `count` rows hold so many samples, when `changed` are those of the first one."""
    heads = len(changed)
    if heads * samples != count:
        return None
    if changed == list(range(heads)):
        return Folding(heads)
    return Folding(heads, heads_first=True) if changed == list(range(0, count, samples)) else None
