"""Passes: which module of a model runs, how often its attention was asked, and at which step of a sequence it
stands.

A layer that is asked again in the same pass has a number: `attention`, `attention#1`, ... The next pass of the
whole model begins anew, unless it goes on with sequences that a cache holds.

Only what the thread does that records is seen: another one may run the same model at the same time.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from regard.attention.records import plain_name


class DetachableHook:
    """A hook that tells somebody. A copy of it tells nobody."""

    def __init__(self, tell: Callable[..., None] | None = None) -> None:
        self.tell = tell

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return DetachableHook, ()

    def __call__(self, *given: Any) -> None:
        """Tell what was given."""
        if self.tell is not None:
            self.tell(*given)


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return all modules of a model by name. Layers of a functional model of Keras' are no submodules of it, and
    have names of their own."""
    found = dict(model.named_modules())
    keras = sys.modules.get("keras")
    if keras is None:
        return found
    known = set(map(id, found.values()))
    for name, module in list(found.items()):
        for layer in module.layers if isinstance(module, keras.Model) else ():
            if id(layer) not in known:
                parts = named_modules(layer)
                found |= {".".join(filter(None, (name, layer.name, part))): parts[part] for part in parts}
    return found


class ForwardTracker:
    """What runs now, of one model and in one thread."""

    def __init__(self, model: nn.Module) -> None:
        self.thread = threading.get_ident()
        self.model = model
        named = named_modules(model)
        self.modules = {plain_name(name): module for name, module in named.items()}
        """By name, as they were when this began."""
        self.names = {id(module): plain_name(name) for name, module in named.items()}
        self._kept = list(named.values())
        """So that none that is put in later gets the place in memory of one that is gone."""
        self._strangers: set[int] = set()
        self.running: list[str] = []
        """The names of the modules that run, the outermost first."""
        self.ran = False
        """Whether any has run."""
        self.seen: set[str] = set()
        """The names of those that have run."""
        self.start = 0
        """The step at which the first query of this pass stands."""
        self.cache: Any = None
        """What holds the steps before it, and is to hold these."""
        self.paused = False
        """Whether the passes that run now are left out: they belong to no sequence that comes out."""
        self.captured_elsewhere = False
        """Whether what runs now tells of its attention itself, and its calls of the kernel are not looked at."""
        self.listeners: list[Callable[[str, nn.Module, Any], None]] = []
        """Who is told what each module returns."""
        self._calls: Counter[str] = Counter()
        self._before_sequence: Counter[str] = Counter()
        self._new = False

    def module(self, name: str) -> nn.Module:
        """Return a module by its name."""
        found: nn.Module = next(each for each in self._kept if self.names.get(id(each)) == name)
        return found

    @property
    def here(self) -> bool:
        """Whether this is the thread that records, and no pass is being left out."""
        return not self.paused and threading.get_ident() == self.thread

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave out the passes that run in the block."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    @contextmanager
    def watching(self, some: Iterable[nn.Module] | None = None) -> Iterator[None]:
        """Follow what runs: every module, or only `some` and those that they are part of, which costs less. A
        copy of the model is followed by nobody."""
        if some is None:
            hooks = [
                register_module_forward_pre_hook(self._begin),
                register_module_forward_hook(self._end, always_call=True),
            ]
        else:
            hooks = []
            for module in map(self.modules.__getitem__, self._around(some)):
                hooks.append(module.register_forward_pre_hook(DetachableHook(self._begin)))
                hooks.append(module.register_forward_hook(DetachableHook(self._end), always_call=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _around(self, some: Iterable[nn.Module]) -> set[str]:
        """Return the names of some modules, and of all that they are part of."""
        found = {""}
        for module in some:
            name = self.names[id(module)]
            while name:
                found.add(name)
                name = name.rpartition(".")[0]
        return found

    def _begin(self, module: nn.Module, _: Any) -> None:
        name = self._name(module) if self.here else None
        if name is None:
            return
        if not self.running:
            self._new = self.ran = True
        self.running.append(name)
        self.seen.add(name)

    def _name(self, module: nn.Module) -> str | None:
        """Return a module's name; one that is new may have been put in while the model ran."""
        if id(module) not in self.names and self.running and id(module) not in self._strangers:
            for name, each in self.model.named_modules():
                if id(each) not in self.names:
                    self.names[id(each)] = plain_name(name)
                    self._kept.append(each)
            if id(module) not in self.names:
                self._strangers.add(id(module))
                self._kept.append(module)
        return self.names.get(id(module))

    def _end(self, module: nn.Module, _: Any, output: Any) -> None:
        if id(module) in self.names and self.here:
            name = self.running.pop()
            for listener in self.listeners:
                listener(name, module, output)

    def begin_sequence(self, start: int, cache: Any) -> None:
        """Say that the pass now running is over the steps of some sequences from `start` on."""
        self.start, self.cache = start, cache
        if start:
            self._calls, self._new = Counter(self._before_sequence), False
        else:
            self._renew()
            self._before_sequence = Counter(self._calls)

    def end_sequence(self) -> None:
        """Say that it is over."""
        self.start, self.cache = 0, None

    def number(self, name: str) -> str:
        """Return how this call of a module's attention is named, and count it."""
        self._renew()
        earlier = self._calls[name]
        self._calls[name] += 1
        return f"{name}#{earlier}" if earlier else name

    def _renew(self) -> None:
        if self._new:
            self._calls.clear()
            self._new = False


@contextmanager
def capturing_elsewhere(watched: Iterable[ForwardTracker]) -> Iterator[None]:
    """Let nobody look at the calls made in the block: whoever makes them tells of them."""
    before = [(tracker, tracker.captured_elsewhere) for tracker in watched]
    for tracker, _ in before:
        tracker.captured_elsewhere = True
    try:
        yield
    finally:
        for tracker, was in before:
            tracker.captured_elsewhere = was
