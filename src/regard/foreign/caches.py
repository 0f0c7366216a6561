"""Sequences that go on: a Hugging Face model keeps in a cache what it has read, and gets it with the next."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from regard.foreign.interface import is_peer
from regard.foreign.keeper import Keeper
from regard.foreign.labels import Read
from regard.foreign.passes import Passes
from regard.foreign.wrappers import is_adapted


@contextmanager
def following_caches(model: nn.Module, keeper: Keeper) -> Iterator[None]:
    """Note at which step each pass of the models of Hugging Face's stands, and what they read."""
    follower = Follower(keeper.passes, keeper.read)
    hooks = []
    for peer in (each for each in keeper.passes.modules.values() if is_peer(each) or is_adapted(each)):
        hooks.append(peer.register_forward_pre_hook(follower.begin, with_kwargs=True))
        hooks.append(peer.register_forward_hook(follower.end, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class Follower:
    """Looks at what the models are given. A copy of it follows nothing."""

    def __init__(self, passes: Passes | None = None, read: Read | None = None) -> None:
        self.passes, self.read = passes, read
        self.outer: list[tuple[int, Any]] = []
        """The steps and caches of the models around the one that runs now."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Follower, ()

    def begin(self, peer: nn.Module, args: Any, options: dict[str, Any]) -> None:
        """Note at which step a pass begins, and of which tokens."""
        if self.passes is None or self.read is None or not self.passes.here:
            return
        given = dict(zip(inspect.signature(peer.forward).parameters, args, strict=False)) | options
        cache = given.get("past_key_values")
        self.outer.append((self.passes.start, self.passes.cache))
        if len(self.outer) == 1:
            self.passes.begin_sequence(length_of(cache), cache)
        elif cache is not self.passes.cache:  # an encoder reads its input anew, while the decoder goes on
            self.passes.start, self.passes.cache = length_of(cache), cache
        tokens = given.get("input_ids")
        if isinstance(tokens, Tensor) and tokens.dim() == 2:
            name = self.passes.names.get(id(peer), "")
            start = 0 if "decoder_input_ids" in given else self.passes.start
            self.read.given(name, tokens, given.get("attention_mask"), start)

    def end(self, *_: Any) -> None:
        """Note that it is over."""
        if self.passes is None or not self.passes.here:
            return
        self.passes.start, self.passes.cache = self.outer.pop()
        if not self.outer:
            self.passes.end_sequence()


def length_of(cache: Any) -> int:
    """Return the number of steps that a cache holds."""
    return int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else 0
