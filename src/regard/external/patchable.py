"""External models as subjects of patching: forward passes on one input."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from regard.errors import InputError
from regard.external.adapters import Adapter, CustomModel, PreparedInput, call_model, find_states
from regard.external.language_models import CausalLMAdapter, Seq2SeqAdapter
from regard.external.model_input import ModelInput, find_input
from regard.external.recording import recorded_path
from regard.viz.subject import Patchable


def patchable_model(model: nn.Module, adapter: Adapter, inputs: Sequence[ModelInput]) -> Patchable:
    """Return the forward passes of a model; `inputs`: known inputs, which a label may name."""

    def prepare(value: Any) -> PreparedInput:
        if isinstance(value, PreparedInput):
            return value
        model_input = find_input(inputs, value)
        if isinstance(adapter, CausalLMAdapter):  # `Adapter.prepare` would ask for two tokens, for the loss
            return PreparedInput(input=model_input, arguments=adapter.texts.tensors(model, model_input.value))
        return adapter.prepare(model, model_input)

    def outputs(prepared: PreparedInput) -> Tensor:
        output = call_model(model, adapter.plain_arguments(model, prepared))
        logits = find_states(output) if isinstance(adapter, CustomModel) else adapter.logits(output)
        if logits is None:
            raise InputError(f"{type(model).__name__} returns no logits: nothing can be compared")
        return logits[0].float()

    return Patchable(
        prepare,
        outputs,
        partial(_answer_class, adapter, type(model).__name__),
        partial(recorded_path, model),
        isinstance(adapter, CausalLMAdapter | Seq2SeqAdapter),
    )


def _answer_class(adapter: Adapter, name: str, text: str, classes: int) -> int:
    """Return the first token of a text that is not a special token."""
    texts = getattr(adapter, "texts", None)
    if texts is None:
        raise InputError(f"{name} has no tokenizer for answers: pass metric=")
    ids = texts.target_ids(text)
    if not ids or not 0 <= ids[0] < classes:
        raise InputError(f"answer {text!r} has no token: give another answer")
    return int(ids[0])
