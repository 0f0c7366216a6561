"""Sequences that go on: a Hugging Face model keeps in a cache what it has read, and gets it with the next."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from regard.external.attention_interface import is_transformers_model
from regard.external.capture_session import CaptureSession
from regard.external.forward_tracker import ForwardTracker
from regard.external.modules import is_peft_model
from regard.external.token_labels import Read


@contextmanager
def follow_caches(model: nn.Module, session: CaptureSession) -> Iterator[None]:
    """Note at which step each pass of the models of Hugging Face's stands, and what they read."""
    follower = CacheFollower(session.tracker, session.read)
    hooks = []
    for peer in (
        each for each in session.tracker.modules.values() if is_transformers_model(each) or is_peft_model(each)
    ):
        hooks.append(peer.register_forward_pre_hook(follower.begin, with_kwargs=True))
        hooks.append(peer.register_forward_hook(follower.end, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class CacheFollower:
    """Looks at what the models are given. A copy of it follows nothing."""

    def __init__(self, tracker: ForwardTracker | None = None, read: Read | None = None) -> None:
        self.tracker, self.read = tracker, read
        self.outer: list[tuple[int, Any]] = []
        """The steps and caches of the models around the one that runs now."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return CacheFollower, ()

    def begin(self, peer: nn.Module, args: Any, options: dict[str, Any]) -> None:
        """Note at which step a pass begins, and of which tokens."""
        if self.tracker is None or self.read is None or not self.tracker.here:
            return
        parameters = inspect.signature(peer.forward).parameters
        given = dict(zip(parameters, args, strict=False)) | options
        config: Any = getattr(peer, "config", None)
        cache = given.get("past_key_values")
        self.outer.append((self.tracker.start, self.tracker.cache))
        if len(self.outer) == 1:
            self.tracker.begin_sequence(cache_length(cache), cache)
            paired = getattr(config, "is_encoder_decoder", False)
            self.read.began(_tokens(given, "labels") if paired else None, getattr(config, "pad_token_id", None))
        elif cache is not self.tracker.cache:  # an encoder reads its input anew, while the decoder goes on
            self.tracker.start, self.tracker.cache = cache_length(cache), cache
        name, start = self.tracker.names.get(id(peer), ""), self.tracker.start
        if "decoder_input_ids" not in parameters:
            self._note(name, _tokens(given, "input_ids"), given.get("attention_mask"), start)
            usual = getattr(config, "is_decoder", False) or getattr(config, "is_encoder_decoder", False)
            default = parameters["is_decoder"].default if "is_decoder" in parameters else usual
            if given.get("encoder_hidden_states") is not None and given.get("is_decoder", default):
                self.read.writers.add(name)
            return
        # The tokens of an encoder-decoder are those of its two parts.
        decoder = self._part(peer, "get_decoder")
        self._note(self._part(peer, "get_encoder"), _tokens(given, "input_ids"), given.get("attention_mask"), 0)
        self._note(decoder, _tokens(given, "decoder_input_ids"), given.get("decoder_attention_mask"), start)
        if decoder is not None:
            self.read.writers.add(decoder)

    def _note(self, name: str | None, tokens: Tensor | None, there: Any, start: int) -> None:
        if name is not None and tokens is not None and self.read is not None:
            self.read.given(name, tokens, there, start)

    def _part(self, peer: nn.Module, find: str) -> str | None:
        """Return the name of a model's encoder or decoder; None where it names none."""
        part = getattr(peer, find)() if hasattr(peer, find) else None
        return None if part is None or part is peer or self.tracker is None else self.tracker.names.get(id(part))

    def end(self, peer: nn.Module, args: Any, output: Any) -> None:
        """Note what is most likely at each step, and that the pass is over."""
        del peer, args
        if self.tracker is None or self.read is None or not self.tracker.here:
            return
        logits = getattr(output, "logits", None)
        if self.read.pieces and self.read.writers and isinstance(logits, Tensor) and logits.dim() == 3:
            self.read.answered(logits, self.tracker.start)
        self.tracker.start, self.tracker.cache = self.outer.pop()
        if not self.outer:
            self.tracker.end_sequence()


def _tokens(given: dict[str, Any], name: str) -> Tensor | None:
    found = given.get(name)
    return found if isinstance(found, Tensor) and found.dim() == 2 else None


def cache_length(cache: Any) -> int:
    """Return the number of steps that a cache holds."""
    return int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else 0
