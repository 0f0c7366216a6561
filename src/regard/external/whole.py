"""Families of models that answer an input as a whole, or not at all: classifiers, and those that return states.

See `families` for the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.external.adapters import Adapter, Answer, PreparedInput, called, find_states
from regard.external.images import ImageProcessor
from regard.external.model_input import ModelInput
from regard.external.texts import TextEncoder


@dataclass(frozen=True)
class ClassifierAdapter(Adapter):
    """A model that gives its input a class."""

    inputs: TextEncoder | ImageProcessor
    summary = "a classifier"

    def own_answers(self, inputs: Sequence[ModelInput]) -> bool:
        """Say yes: no classes are given."""
        return True

    def feed(self, model: nn.Module, asked: ModelInput) -> PreparedInput:
        """Return an input, whose truth is what the model answers now."""
        given = self.inputs.tensors(model, asked.given)
        logits = self.logits(called(model, given))
        assert logits is not None
        return PreparedInput(asked=asked, given=given, truth=logits.argmax(-1))

    def logits(self, output: Any) -> Tensor | None:
        """Return the logits (N, Tq, C): of the whole input, or of each token."""
        logits: Tensor = output.logits
        return logits if logits.dim() == 3 else logits.unsqueeze(1)

    def answer(self, model: nn.Module, asked: ModelInput, generate: int) -> Answer:
        """Give an input its class."""
        given = self.inputs.tensors(model, asked.given)
        logits = self.logits(called(model, given))
        assert logits is not None
        likely, found = logits[0].float().softmax(-1).max(-1)
        names = getattr(model.config, "id2label", None) or {}
        said = [str(names.get(each, each)) for each in found.tolist()]
        return Answer(PreparedInput(asked=asked, given=given), " ".join(said), None, said, likely.tolist())


@dataclass(frozen=True)
class EncoderAdapter(Adapter):
    """A model whose states are all that comes out."""

    inputs: TextEncoder | ImageProcessor
    summary = "an encoder without an answer of its own"
    measure = "change of the states"
    unanswered = (
        "It answers nothing, so there is no loss: a head's importance is how far the states that come out move"
        " without it, as a share of their squared size.",
        "What an answer depends on (gradients, ablation) cannot be asked of a model that gives none.",
    )

    def feed(self, model: nn.Module, asked: ModelInput) -> PreparedInput:
        """Return an input, with the states that come out of it now."""
        given = self.inputs.tensors(model, asked.given)
        return PreparedInput(asked=asked, given=given, before=find_states(called(model, given)))

    def logits(self, output: Any) -> Tensor | None:
        """Return nothing."""
        return None

    def answer(self, model: nn.Module, asked: ModelInput, generate: int) -> Answer:
        """Return no answer, but what it is fed."""
        return Answer(PreparedInput(asked=asked, given=self.inputs.tensors(model, asked.given)))
