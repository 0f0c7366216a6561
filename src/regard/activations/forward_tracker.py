"""Track the forward passes of a model: the running module, the number of its calls, the step of a sequence.

A layer that runs again in the same pass gets a number: `attention`, `attention#1`, ... The next pass of the
whole model starts at step 0, unless it continues sequences from a cache.

The hooks and patched functions of a recording do not affect copies of a model, or other threads: another thread
may run the same model at the same time.
"""

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from regard.activations.token_labels import is_inside
from regard.attention.names import layer_name, layer_namer

Item = TypeVar("Item")
Patch = tuple[Any, str, Callable[[Any], Any]]
"""Owner and name of a function, and the wrapper for the function."""


probing = threading.local()
"""`probing.probe` is the probe that runs in a thread (see `attention_axes`)."""


class ThreadList(threading.local, Generic[Item]):
    """A list whose items are separate for each thread."""

    def __init__(self) -> None:
        self.active: list[Item] = []

    @contextmanager
    def include(self, item: Item) -> Iterator[None]:
        """Add an item at the end of this thread's list inside the block."""
        self.active.append(item)
        try:
            yield
        finally:
            self.active.remove(item)


class DetachableHook:
    """A hook that calls a function. Copying a model copies its hooks; a copied hook does nothing."""

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return None if self.function is None else self.function(*args)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()


@contextmanager
def remove_hooks(hooks: Iterable[Any]) -> Iterator[None]:
    """Remove hooks after the block."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class LibraryPatches:
    """Library functions that are replaced while any thread is inside a block of `apply`."""

    def __init__(self) -> None:
        self._lock, self._blocks = threading.Lock(), 0
        self._originals: list[tuple[Any, str, Any]] = []

    @contextmanager
    def apply(self, patches: Iterable[Patch]) -> Iterator[None]:
        """Replace functions inside the block. The last block that ends restores all functions."""
        with self._lock:
            self._blocks += 1
            for owner, name, wrap in patches:
                if not any((owner, name) == patched[:2] for patched in self._originals):
                    original = vars(owner).get(name) or getattr(owner, name)
                    self._originals.append((owner, name, original))
                    setattr(owner, name, functools.wraps(original)(wrap(original)))
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                while not self._blocks and self._originals:
                    setattr(*self._originals.pop())


MOST_NAMES = 64
"""Largest number of names of a shared module; parts that share parts have more names than are useful."""


def modules_by_name(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a model by name; a module that is shared by several parts has several names."""
    modules, count, name_of = dict[str, nn.Module](), dict[int, int](), layer_namer(model)
    waiting: list[tuple[str, nn.Module, tuple[Any, ...]]] = [("", model, ())]
    while waiting:
        path, module, around = waiting.pop()
        modules.setdefault(name_of(path), module)
        count[id(module)] = times = count.get(id(module), 0) + 1
        parts = module._modules
        if parts and times <= MOST_NAMES and module not in around:
            prefix, around = f"{path}." if path else "", (*around, module)
            waiting += [(prefix + name, part, around) for name, part in reversed(parts.items()) if part is not None]
    return modules


class ForwardTracker:
    """The running forward pass of one model in one thread."""

    def __init__(self, model: nn.Module) -> None:
        self.thread = threading.get_ident()
        self.model = model
        self.named = modules_by_name(model)
        """Modules by each of their names. References keep them alive, so that no later module reuses an id."""
        self.names: dict[int, list[str]] = {}
        """All names of each module, by its id."""
        for name, module in self.named.items():
            self.names.setdefault(id(module), []).append(name)
        self.modules = {names[0]: self.named[names[0]] for names in self.names.values()}
        """Modules by their first name, at the beginning of the recording."""
        self.by_class: dict[type, list[nn.Module]] = {}
        for module in self.modules.values():
            self.by_class.setdefault(type(module), []).append(module)
        self._unrelated: dict[int, nn.Module] = {}
        """Modules outside the model, by id."""
        self.running: list[str] = []
        """Names of the running modules, the outermost first."""
        self.ran = False
        self.seen: set[str] = set()
        """Names of the modules that have run."""
        self.runs: Counter[str] = Counter()
        """By name: how often each module has run in the current pass."""
        self._missed: dict[str, int] = {}
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
        self._before_sequence: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        self._is_new_pass = False

    def name_of(self, module: nn.Module) -> str | None:
        """Return the name of a module in the running pass; None for a module outside the model.

        A module that several parts of the model share, as in a tied encoder-decoder, has its name inside the
        innermost running module that contains it.
        """
        names = self.names.get(id(module), [])
        if len(names) < 2:
            return next(iter(names), None)
        for around in reversed(self.running):
            for name in names:
                if is_inside(name, around):
                    return name
        return names[0]

    def of_classes(self, condition: Callable[[nn.Module], object]) -> list[nn.Module]:
        """Return the modules that meet a condition which is the same for all modules of a class."""
        return [module for same in self.by_class.values() if condition(same[0]) for module in same]

    @property
    def active(self) -> bool:
        """Whether this is the recording thread and the pass is not ignored."""
        return not self.paused and threading.get_ident() == self.thread

    def hook_before(self, module: nn.Module, function: Callable[[Any, Any, dict[str, Any]], Any]) -> Any:
        return module.register_forward_pre_hook(self._while_active(function), with_kwargs=True)

    def hook_after(
        self, module: nn.Module, function: Callable[[Any, Any, dict[str, Any], Any], Any], *, always: bool = False
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
            names = {name for module in modules for name in self.names[id(module)]}
            for module in {self.named[parent] for name in names | {""} for parent in and_parents(name)}:
                hooks.append(module.register_forward_pre_hook(DetachableHook(self._begin)))
                hooks.append(module.register_forward_hook(DetachableHook(self._end), always_call=True))
        with remove_hooks(hooks):
            yield

    def _begin(self, module: nn.Module, _: Any) -> None:
        if not self.active:
            return
        # The module may have been added while the model ran.
        if id(module) not in self.names and self.running and id(module) not in self._unrelated:
            for path, part in self.model.named_modules():
                if id(part) not in self.names:
                    self.names[id(part)] = [layer_name(self.model, path)]
                    self.named[layer_name(self.model, path)] = part
            if id(module) not in self.names:
                self._unrelated[id(module)] = module
        if (name := self.name_of(module)) is None:
            return
        if not self.running:
            self.missed_calls()
            self.runs.clear()
            self._is_new_pass = self.ran = True
        self.running.append(name)
        self.seen.add(name)
        again = self.running[-2:-1] == [name]  # a compiled module, whose hooks run twice
        if not again and not self.captured_elsewhere and getattr(probing, "probe", None) is None:
            self.runs[name] += 1

    def _end(self, module: nn.Module, _: Any, output: Any) -> None:
        if id(module) in self.names and self.active:
            name = self.running.pop()
            for listener in self.listeners:
                listener(name, module, output)

    def begin_sequence(self, start: int, cache: Any) -> None:
        """Set the first step and the cache of the running pass."""
        self.start, self.cache = start, cache
        if start:
            self._calls, self.runs = map(Counter, self._before_sequence)
            self._is_new_pass = False
        else:
            self._reset_calls()
            self._before_sequence = Counter(self._calls), Counter(self.runs)

    def number(self, name: str, step: int | None = None) -> str:
        """Count a call of a module's attention, and return the name of the call: `name`, `name#1`, ...

        `step`: decoding step, if the module knows it; the calls of each step are counted separately.
        """
        self._reset_calls()
        key = f"{name} {step}" if step else name
        earlier = self._calls[key]
        self._calls[key] += 1
        return f"{name}#{earlier}" if earlier else name

    def missed_calls(self) -> dict[str, int]:
        """Return by layer how many of its runs in its last pass did not call a captured attention."""
        for name, count in self._calls.items():
            self._missed[name] = max(self.runs[name] - count, 0)
        return {name: count for name, count in self._missed.items() if count}

    def _reset_calls(self) -> None:
        if self._is_new_pass:
            self._calls.clear()
            self._is_new_pass = False


def and_parents(name: str) -> list[str]:
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
