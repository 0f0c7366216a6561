"""Join the passes of a generation into one record per returned sequence.

A transformers model stores earlier keys and values in a cache, and receives the cache with the next step.
`CacheFollower` reads the first step of each pass from this cache, and collects the tokens for labels.

A beam search reorders the hypotheses of the batch at every step. `generate` returns the hypothesis that each
token of a result came from, and the rows of each step are reordered accordingly. Rows of rejected draft tokens
(prompt lookup, assisted generation) are removed. Passes inside a logits processor are ignored, such as the pass
without the prompt in classifier-free guidance.
"""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from regard.activations.capture_session import CaptureSession
from regard.activations.forward_tracker import LibraryPatches, ThreadList, remove_hooks
from regard.activations.modules import is_peft_model, is_transformers_model, parameter_names
from regard.activations.token_labels import is_inside

_recorded = ThreadList[CaptureSession]()
_patches = LibraryPatches()


def applies(session: CaptureSession) -> bool:
    return bool(session.tracker.of_classes(_may_generate))


def _may_generate(model: nn.Module) -> bool:
    return is_transformers_model(model) or is_peft_model(model)


@contextmanager
def capture(session: CaptureSession) -> Iterator[set[str]]:
    """Track the step of each pass and its tokens, and reorder records to match the results of `generate`."""
    from transformers import GenerationMixin, LogitsProcessorList

    follower = CacheFollower(session)
    hooks: list[Any] = []
    for model in session.tracker.of_classes(_may_generate):
        hooks.append(session.tracker.hook_before(model, follower.begin))
        hooks.append(session.tracker.hook_after(model, follower.end, always=True))
        encoder, decoder = follower.part_name(model, "get_encoder"), follower.part_name(model, "get_decoder")
        if encoder and decoder and "decoder_input_ids" in parameter_names(model):
            session.sides |= {encoder: "encoder", decoder: "decoder"}
    patches = [(GenerationMixin, "generate", _wrap_generate), (LogitsProcessorList, "__call__", _wrap_processors)]
    with ExitStack() as stack:
        stack.enter_context(remove_hooks(hooks))
        if not session.intervenes:
            stack.enter_context(_recorded.include(session))
            stack.enter_context(_patches.apply(patches))
        yield set()


class CacheFollower:
    """Hooks that read the inputs of models."""

    def __init__(self, session: CaptureSession) -> None:
        self.tracker, self.token_labels = session.tracker, session.token_labels
        self.outer: list[tuple[int, Any]] = []
        """Steps and caches of the models that contain the running model."""

    def begin(self, model: nn.Module, args: Any, options: dict[str, Any]) -> None:
        """Store the first step of a pass, and its tokens."""
        tracker, labels = self.tracker, self.token_labels
        parameters = inspect.signature(model.forward).parameters
        inputs = dict(zip(parameters, args, strict=False)) | options
        config: Any = getattr(model, "config", None)
        cache: Any = inputs.get("past_key_values")
        if hasattr(cache, "get_seq_length") and cache.get_seq_length() is None:
            cache = None  # Reformer's cache does not know its length
        self.outer.append((tracker.start, tracker.cache))
        if len(self.outer) == 1:
            tracker.begin_sequence(cache_length(cache), cache)
            encoder_decoder = getattr(config, "is_encoder_decoder", False)
            targets = _token_tensor(inputs, "labels") if encoder_decoder else None
            labels.targets, labels.padding = targets, getattr(config, "pad_token_id", None)
        elif cache is not tracker.cache:  # an encoder reads its input anew while the decoder continues
            tracker.start, tracker.cache = cache_length(cache), cache
        name, start = tracker.name_of(model) or "", tracker.start
        if "decoder_input_ids" not in parameters:
            self._note_tokens(name, _token_tensor(inputs, "input_ids"), inputs.get("attention_mask"), start)
            usual = getattr(config, "is_decoder", False) or getattr(config, "is_encoder_decoder", False)
            default = parameters["is_decoder"].default if "is_decoder" in parameters else usual
            if inputs.get("encoder_hidden_states") is not None and inputs.get("is_decoder", default):
                labels.writers.add(name)
            return
        # An encoder-decoder stores no tokens: its encoder and its decoder store them.
        encoder, decoder = self.part_name(model, "get_encoder"), self.part_name(model, "get_decoder")
        self._note_tokens(encoder, _token_tensor(inputs, "input_ids"), inputs.get("attention_mask"), 0)
        written, mask = _token_tensor(inputs, "decoder_input_ids"), inputs.get("decoder_attention_mask")
        self._note_tokens(decoder, written, mask, start)
        if decoder is not None:
            labels.writers.add(decoder)

    def _note_tokens(self, name: str | None, tokens: Tensor | None, mask: Any, start: int) -> None:
        if name is not None and tokens is not None:
            self.token_labels.add_tokens(name, tokens, mask, start)

    def part_name(self, model: nn.Module, getter: str) -> str | None:
        """Return the name of a model's encoder or decoder; None if the model defines none."""
        part = getattr(model, getter)() if hasattr(model, getter) else None
        return None if part is None or part is model else self.tracker.name_of(part)

    def end(self, model: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Store the most likely token of each step, and end the pass."""
        tracker, labels = self.tracker, self.token_labels
        logits = getattr(output, "logits", None)
        if labels.labeler and labels.writers and isinstance(logits, Tensor) and logits.dim() == 3:
            labels.add_logits(logits, tracker.start)
        tracker.start, tracker.cache = self.outer.pop()
        if not self.outer:
            tracker.start, tracker.cache = 0, None


def _token_tensor(inputs: dict[str, Any], name: str) -> Tensor | None:
    tokens = inputs.get(name)
    return tokens if isinstance(tokens, Tensor) and tokens.dim() == 2 else None


def cache_length(cache: Any) -> int:
    """Return the number of steps in a cache."""
    # Counting passes instead would miss the steps of a cache that the caller passes in.
    if hasattr(cache, "get_seq_length"):
        return int(cache.get_seq_length() or 0)
    while isinstance(cache, tuple | list) and cache:  # keys (B, H, T, D) and values of each layer
        cache = cache[0]
    return cache.shape[-2] if isinstance(cache, Tensor) and cache.dim() > 2 else 0


def _wrap_processors(original: Any) -> Any:
    def process(self: Any, *args: Any, **options: Any) -> Any:
        with ExitStack() as stack:
            for session in _recorded.active:
                stack.enter_context(session.tracker.pause())
            return original(self, *args, **options)

    return process


def _wrap_generate(original: Any) -> Any:
    def generate(self: Any, *args: Any, **options: Any) -> Any:
        sessions = [session for session in _recorded.active if id(self) in session.tracker.names]
        if not sessions:
            return original(self, *args, **options)
        config = options.get("generation_config") or self.generation_config
        wants_dict = options.get("return_dict_in_generate", config.return_dict_in_generate)
        output = original(self, *args, **(options | {"return_dict_in_generate": True}))
        beams = getattr(output, "beam_indices", None)
        steps = cache_length(getattr(output, "past_key_values", None))
        for session in sessions:
            model = session.tracker.names[id(self)][0]
            if beams is not None:
                _reorder_beams(session, beams)
            if steps:
                # The rows of rejected draft tokens are those from step `steps` on.
                for name in session.with_cache:
                    parts = session.recorder.parts.get(name)
                    if parts is not None and parts.kind != "encoder" and is_inside(name, model):
                        parts.truncate(steps)
                session.token_labels.cut(model, steps)
            session.warn_of_lost_rows(model)
            if hasattr(output, "sequences"):
                session.token_labels.add_result(output.sequences, beams=beams is not None)
        return output if wants_dict or not hasattr(output, "sequences") else output.sequences

    return generate


def _reorder_beams(session: CaptureSession, beams: Tensor) -> None:
    """Keep the rows of the returned hypotheses at each step; `beams` (results, steps) is -1 after a hypothesis ends."""
    steps = beams.shape[1]
    for name in session.with_cache:
        parts = session.recorder.parts.get(name)
        if parts is None or len(parts.calls) < steps or parts.kind == "encoder":
            continue
        for step, part in enumerate(parts.calls[:steps]):
            rows, exists = beams[:, step].clamp(min=0), beams[:, step] >= 0
            mask = part.mask
            if mask is not None:
                mask = mask.expand(len(part.weights), *mask.shape[1:])[rows] & exists[:, None, None, None]
            weights = part.weights[rows] * exists[:, None, None, None]
            parts.calls[step] = part._replace(weights=weights, mask=mask)
        parts.end -= sum(len(part.steps) for part in parts.calls[steps:])
        del parts.calls[steps:]
        parts.record = None
