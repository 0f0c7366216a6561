"""Sequences that go on: a Hugging Face model keeps in a cache what it has read, and gets it with the next."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from regard.foreign.interface import is_peer
from regard.foreign.passes import Passes


@contextmanager
def following_caches(model: nn.Module, passes: Passes) -> Iterator[None]:
    """Tell `passes` at which step each pass of the models of Hugging Face's stands."""
    follower = Follower(passes)
    hooks = []
    for peer in filter(is_peer, model.modules()):
        hooks.append(peer.register_forward_pre_hook(follower.begin, with_kwargs=True))
        hooks.append(peer.register_forward_hook(follower.end, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class Follower:
    """Looks at what the outermost model is given. A copy of it follows nothing."""

    def __init__(self, passes: Passes | None = None) -> None:
        self.passes, self.depth = passes, 0

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Follower, ()

    def begin(self, _: nn.Module, __: Any, given: dict[str, Any]) -> None:
        """Note at which step a pass begins."""
        if self.passes is None or not self.passes.here:
            return
        self.depth += 1
        if self.depth == 1:
            cache = given.get("past_key_values")
            self.passes.begin_sequence(_length(cache), cache if cache is not None else given.get("use_cache"))

    def end(self, *_: Any) -> None:
        """Note that it is over."""
        if self.passes is None or not self.passes.here:
            return
        self.depth -= 1
        if not self.depth:
            self.passes.end_sequence()


def _length(cache: Any) -> int:
    return int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else 0
