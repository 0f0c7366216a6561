"""Track the forward passes of a model: the running module, the number of its calls, the step of a sequence.

A layer that runs again in the same pass gets a number: `attention`, `attention#1`, ... The next pass of the
whole model starts at step 0, unless it continues sequences from a cache.

Only the recording thread is tracked: another thread may run the same model at the same time.
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
from regard.external.hooks import DetachableHook, remove_hooks


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return all modules of a model by name.

    Layers of a functional Keras model are not its submodules and are listed under their own names.
    """
    modules = dict(model.named_modules())
    keras = sys.modules.get("keras")
    if keras is None:
        return modules
    known = set(map(id, modules.values()))
    for name, module in list(modules.items()):
        for layer in module.layers if isinstance(module, keras.Model) else ():
            if id(layer) not in known:
                parts = named_modules(layer)
                modules |= {".".join(filter(None, (name, layer.name, part))): parts[part] for part in parts}
    return modules


class ForwardTracker:
    """The running forward pass of one model in one thread."""

    def __init__(self, model: nn.Module) -> None:
        self.thread = threading.get_ident()
        self.model = model
        named = named_modules(model)
        self.modules = {plain_name(name): module for name, module in named.items()}
        """Modules by name, at the beginning of the recording."""
        self.names = {id(module): plain_name(name) for name, module in named.items()}
        self._alive = list(named.values())
        """References that keep modules alive, so that no later module reuses the id of a deleted module."""
        self._unrelated: set[int] = set()
        """Ids of modules outside the model."""
        self.running: list[str] = []
        """Names of the running modules, the outermost first."""
        self.ran = False
        self.seen: set[str] = set()
        """Names of the modules that have run."""
        self.start = 0
        """Step of the first query of the current pass."""
        self.cache: Any = None
        """Cache with the steps before the current pass."""
        self.paused = False
        """Whether the current pass is ignored because none of its sequences is returned."""
        self.captured_elsewhere = False
        """Whether another mechanism captures the running attention, so that PyTorch's calls are not inspected."""
        self.listeners: list[Callable[[str, nn.Module, Any], None]] = []
        """Callbacks that receive the name, the module and the output of each module that returns."""
        self._calls: Counter[str] = Counter()
        self._calls_before_sequence: Counter[str] = Counter()
        self._is_new_pass = False

    def module(self, name: str) -> nn.Module:
        """Return a module by name."""
        module: nn.Module = next(module for module in self._alive if self.names.get(id(module)) == name)
        return module

    @property
    def active(self) -> bool:
        """Whether this is the recording thread and the pass is not ignored."""
        return not self.paused and threading.get_ident() == self.thread

    def hook_before(self, module: nn.Module, function: Callable[[Any, Any, dict[str, Any]], Any]) -> Any:
        """Call `function` with (module, args, kwargs) before each active run; returns the hook."""
        return module.register_forward_pre_hook(self._while_active(function), with_kwargs=True)

    def hook_after(
        self,
        module: nn.Module,
        function: Callable[[Any, Any, dict[str, Any], Any], Any],
        *,
        always: bool = False,
    ) -> Any:
        """Call `function` with (module, args, kwargs, output) after each active run; returns the hook.

        `always`: also after an exception, with the output None.
        """
        hook = self._while_active(function)
        return module.register_forward_hook(hook, with_kwargs=True, always_call=always)

    def _while_active(self, function: Callable[..., Any]) -> DetachableHook:
        return DetachableHook(lambda *args: function(*args) if self.active else None)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Ignore passes that run inside the block."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    @contextmanager
    def track(self, modules: Iterable[nn.Module] | None = None) -> Iterator[None]:
        """Track which modules run inside the block. Copies of the model are not tracked.

        `modules`: track only these and their parents, which costs less time (None: all).
        """
        hooks: list[Any] = []
        if modules is None:
            # Global hooks also cover modules that are created during the pass. PyTorch's layers take their fast
            # path only without hooks on the layer itself.
            hooks.append(register_module_forward_pre_hook(self._begin))
            hooks.append(register_module_forward_hook(self._end, always_call=True))
        else:
            for module in map(self.modules.__getitem__, self._with_parents(modules)):
                hooks.append(module.register_forward_pre_hook(DetachableHook(self._begin)))
                hooks.append(module.register_forward_hook(DetachableHook(self._end), always_call=True))
        with remove_hooks(hooks):
            yield

    def _with_parents(self, modules: Iterable[nn.Module]) -> set[str]:
        names = {""}
        for module in modules:
            name = self.names[id(module)]
            while name:
                names.add(name)
                name = name.rpartition(".")[0]
        return names

    def _begin(self, module: nn.Module, _: Any) -> None:
        name = self._find_name(module) if self.active else None
        if name is None:
            return
        if not self.running:
            self._is_new_pass = self.ran = True
        self.running.append(name)
        self.seen.add(name)

    def _find_name(self, module: nn.Module) -> str | None:
        """Return the name of a module, even if the module was added while the model ran."""
        if id(module) not in self.names and self.running and id(module) not in self._unrelated:
            for name, part in self.model.named_modules():
                if id(part) not in self.names:
                    self.names[id(part)] = plain_name(name)
                    self._alive.append(part)
            if id(module) not in self.names:
                self._unrelated.add(id(module))
                self._alive.append(module)
        return self.names.get(id(module))

    def _end(self, module: nn.Module, _: Any, output: Any) -> None:
        if id(module) in self.names and self.active:
            name = self.running.pop()
            for listener in self.listeners:
                listener(name, module, output)

    def begin_sequence(self, start: int, cache: Any) -> None:
        """Set the first step and the cache of the running pass."""
        self.start, self.cache = start, cache
        if start:
            self._calls, self._is_new_pass = Counter(self._calls_before_sequence), False
        else:
            self._reset_calls()
            self._calls_before_sequence = Counter(self._calls)

    def end_sequence(self) -> None:
        """Reset the step and the cache after a pass."""
        self.start, self.cache = 0, None

    def number(self, name: str) -> str:
        """Count a call of a module's attention, and return the name of the call: `name`, `name#1`, ..."""
        self._reset_calls()
        earlier = self._calls[name]
        self._calls[name] += 1
        return f"{name}#{earlier}" if earlier else name

    def _reset_calls(self) -> None:
        if self._is_new_pass:
            self._calls.clear()
            self._is_new_pass = False


def and_parents(name: str) -> list[str]:
    """Return the names of a module and of all modules that contain it."""
    parts = name.split(".") if name else []
    return [".".join(parts[:count]) for count in range(len(parts) + 1)]


@contextmanager
def capturing_elsewhere(trackers: Iterable[ForwardTracker]) -> Iterator[None]:
    """Ignore PyTorch's attention calls inside the block, because the caller records them itself."""
    before = [(tracker, tracker.captured_elsewhere) for tracker in trackers]
    for tracker, _ in before:
        tracker.captured_elsewhere = True
    try:
        yield
    finally:
        for tracker, captured in before:
            tracker.captured_elsewhere = captured
