"""What the explorer asks of a subject: answers with attention, touched or not, head importance, playback."""

import copy
import itertools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch import nn

from regard.examination import head_importance
from regard.inspection import Subject
from regard.inspection.page import as_json
from regard.serving.questions import Attend, Play


class Explorer:
    """A subject that answers questions, one at a time."""

    def __init__(self, subject: Subject[Any]) -> None:
        self.subject = subject
        self._importance: dict[str | None, dict[str, list[float]]] = {}
        """By the input that it is over; None for unseen ones."""
        self._shown: list[str] = []
        """The input that was shown last."""

    def apart(self, check: Callable[[], None]) -> "Explorer":
        """Return an explorer that can be asked beside this one, for its layers are its own: whatever is done to
        them, nobody else sees. The parameters are the same, so it takes next to no memory.

        `check` is called before each part of its model works, and may raise to stop it.
        """
        model = self.subject.model
        shared = {id(each): each for each in itertools.chain(model.parameters(), model.buffers())}
        found = Explorer(copy.deepcopy(self.subject, shared))
        found._importance, found._shown = self._importance, self._shown

        def before(module: nn.Module, given: Any) -> None:
            check()

        model = found.subject.model
        for part in model.modules():
            if part is model or next(part.children(), None) is not None:  # not each matrix product
                part.register_forward_pre_hook(before)
        return found

    def about(self) -> dict[str, Any]:
        """Return what the page says of the subject."""
        return self.subject.about()

    def attend(self, asked: Attend) -> dict[str, Any]:
        """Answer an input; the answer is a map, and with interventions also the `original`.

        Raises `InputError` where a part does not fit the subject.
        """
        text = self._input(asked.input, asked.seed)
        with ExitStack() as stack:
            for each in asked.interventions:
                stack.enter_context(
                    self.subject.touching(
                        each.layer, heads=each.heads, to=each.to, query=each.query, key=each.key
                    )
                )
            touched = self.subject.attend(text)
        self._shown[:] = [text]
        if not asked.interventions:
            return {"map": as_json(touched)}
        original = self.subject.attend(text)
        return {"map": as_json(touched), "original": as_json(original)}

    def playback(self, asked: Play) -> dict[str, Any]:
        """Return how attention on an input formed: `{steps, losses, frames}`, a map for each step.

        The weights of so many maps are rounded and packed as in a page.
        """
        found = self.subject.playback(self._input(asked.input, asked.seed))
        return {**found.data(), "frames": [as_json(each, packed=True) for each in found.frames]}

    def importance(self) -> dict[str, list[float]]:
        """Return, for each layer, by how much the loss rises when each head is off: over unseen inputs, worked
        out once, or where there are none over the input that was shown last."""
        shown = self._shown[0] if self._shown else None
        weighed = self.subject.weighing(shown)
        over = None if weighed is self.subject else shown
        if over not in self._importance:
            self._importance[over] = head_importance(weighed).added
        return self._importance[over]

    def _input(self, text: str | None, seed: int) -> str:
        if text is None:
            return self.subject.draw(seed=seed)
        self.subject.check(text)
        return text
