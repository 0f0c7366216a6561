"""Models of one's own: a function makes tensors of an input, and another one may say what the loss is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.errors import InputError
from regard.external.adapters import Adapter, Answer, PreparedInput, called, find_states
from regard.external.model_input import ModelInput

Read = Callable[[Any], Any]
"""Makes of an input what the model is called with: a tensor, a tuple of them, or a dict of them by name."""
Loss = Callable[[nn.Module, Any], Any]
"""Returns the loss of a model on an input."""
Name = Callable[[Any], Sequence[str]]
"""Returns a name for each step of an input."""


@dataclass(frozen=True)
class CustomModel(Adapter):
    """Whatever a function can feed."""

    read: Read
    own_loss: Loss | None = None
    names: Name | None = None
    summary = "a model of one's own"

    @property
    def accepts(self) -> str:  # type: ignore[override]
        """What may be typed, for people."""
        return "a text, as the function given to look() reads it"

    @property
    def measure(self) -> str:  # type: ignore[override]
        """What the loss is."""
        return "change of the states" if self.own_loss is None else "loss"

    @property
    def unanswered(self) -> Sequence[str]:  # type: ignore[override]
        """What nothing can be said of."""
        asked = "What an answer depends on (gradients, ablation) is not asked: which module embeds is not known."
        moves = "No loss is known: a head's importance is how far the states that come out move without it."
        return (asked,) if self.own_loss is not None else (moves, asked)

    def feed(self, model: nn.Module, asked: ModelInput) -> PreparedInput:
        """Return an input, with what comes out of it now where there is no loss."""
        given = self.given(asked)
        before = find_states(called(model, given)) if self.own_loss is None else None
        return PreparedInput(asked=asked, given=given, before=before)

    def given(self, asked: ModelInput) -> Any:
        """Return what the model is called with."""
        found = self.read(asked.given if asked.target is None else (asked.given, asked.target))
        if isinstance(found, Tensor):
            return (found,)
        if isinstance(found, dict | tuple):
            return found
        raise InputError(
            f"{type(found).__name__} came from the function given to look(): return a tensor, a tuple or a dict"
        )

    def answer(self, model: nn.Module, asked: ModelInput, generate: int) -> Answer:
        """Return no answer, but what the model is fed."""
        return Answer(PreparedInput(asked=asked, given=self.given(asked)))

    def logits(self, output: Any) -> Tensor | None:
        """Return nothing."""
        return None

    def loss(self, model: nn.Module, fed: PreparedInput) -> tuple[float, int]:
        """Return the loss of one's own, or how far the states have moved."""
        if self.own_loss is None:
            return super().loss(model, fed)
        return float(self.own_loss(model, fed.asked.given)), 1

    def embedding(self, model: nn.Module) -> nn.Module | None:
        """Return nothing."""
        return None
