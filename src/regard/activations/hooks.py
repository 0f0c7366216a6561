"""Temporary changes while a model is recorded: hooks on modules, and patched functions of a library.

The changes do not affect copies of a model, or other threads that run the same model without a recording.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

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
