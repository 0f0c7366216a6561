"""Generation by models of Hugging Face's: what each step attended to, of the sequences that came out.

A step's record goes on with those before it (see `caches`). In a beam the hypotheses change places at every
step: the model is asked which one each token of a result came from, and the rows of each step are put in that
order. Drafted tokens that were rejected (prompt lookup, assisted generation) leave no rows. Passes that a logits
processor makes are left out: with guidance, the pass without the prompt.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from regard.external.caches import length_of
from regard.external.interface import is_peer
from regard.external.keeper import Keeper
from regard.external.labels import is_inside

_local = threading.local()
_lock = threading.Lock()
_count = 0


@contextmanager
def following_generation(model: nn.Module, keeper: Keeper) -> Iterator[None]:
    """Put the records of what a model generates in the block into the order of what comes out."""
    if not any(map(is_peer, keeper.passes.modules.values())):
        yield
        return
    from transformers import GenerationMixin, LogitsProcessorList

    with _lock:
        _install(GenerationMixin, LogitsProcessorList)
    keepers = _here()
    keepers.append(keeper)
    try:
        yield
    finally:
        keepers.remove(keeper)
        with _lock:
            _remove(GenerationMixin, LogitsProcessorList)


def _here() -> list[Keeper]:
    """Return who records in this thread."""
    if not hasattr(_local, "keepers"):
        _local.keepers = []
    found: list[Keeper] = _local.keepers
    return found


def _install(mixin: Any, processors: Any) -> None:
    """Let every model ask for its beams, and its processors be left out, as long as anybody records."""
    global _count
    _count += 1
    if _count > 1:
        return
    original, process = mixin.generate, processors.__call__

    def leave_out(self: Any, *args: Any, **options: Any) -> Any:
        with ExitStack() as stack:
            for keeper in _here():
                stack.enter_context(keeper.passes.pause())
            return process(self, *args, **options)

    leave_out.__wrapped__ = process  # type: ignore[attr-defined]
    processors.__call__ = leave_out

    def generate(self: Any, *args: Any, **options: Any) -> Any:
        keepers = [keeper for keeper in _here() if id(self) in keeper.passes.names]
        if not keepers:
            return original(self, *args, **options)
        config = options.get("generation_config") or self.generation_config
        asked = options.get("return_dict_in_generate", config.return_dict_in_generate)
        output = original(self, *args, **(options | {"return_dict_in_generate": True}))
        beams = getattr(output, "beam_indices", None)
        steps = length_of(getattr(output, "past_key_values", None))
        for keeper in keepers:
            if beams is not None:
                _follow(keeper, beams)
            if steps:
                _cut(keeper, keeper.passes.names[id(self)], steps)
            if hasattr(output, "sequences"):
                keeper.read.result(output.sequences, beams=beams is not None)
        return output if asked or not hasattr(output, "sequences") else output.sequences

    generate.__wrapped__ = original  # type: ignore[attr-defined]
    mixin.generate = generate


def _remove(mixin: Any, processors: Any) -> None:
    global _count
    _count -= 1
    if not _count:
        mixin.generate = mixin.generate.__wrapped__
        processors.__call__ = processors.__call__.__wrapped__


def _cut(keeper: Keeper, model: str, steps: int) -> None:
    """Take back the rows of drafted tokens that were rejected: those at `steps` and after."""
    for name in keeper.cached:
        parts = keeper.recorder.parts.get(name)
        if parts is not None and parts.kind != "encoder" and is_inside(name, model):
            parts.truncate(steps)
    keeper.read.cut(model, steps)


def _follow(keeper: Keeper, beams: Tensor) -> None:
    """Keep of every step the rows from which the results came; `beams` (results, steps), -1 after the end."""
    steps = beams.shape[1]
    for name in keeper.cached:
        parts = keeper.recorder.parts.get(name)
        if parts is None or len(parts.calls) < steps or parts.kind == "encoder":
            continue
        for step, part in enumerate(parts.calls[:steps]):
            rows, there = beams[:, step].clamp(min=0), beams[:, step] >= 0
            mask = part.mask
            if mask is not None:
                mask = mask.expand(len(part.weights), *mask.shape[1:])[rows] & there[:, None, None, None]
            weights = part.weights[rows] * there[:, None, None, None]
            parts.calls[step] = part._replace(weights=weights, mask=mask)
        parts.end -= sum(len(part.steps) for part in parts.calls[steps:])
        del parts.calls[steps:]
        parts.record = None
