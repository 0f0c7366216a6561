"""What the explorer asks of a subject: answers with attention, touched or not, head importance, playback."""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from regard.errors import InputError, unknown
from regard.interpret import explain, head_importance, head_roles, head_samples
from regard.interpret.importance import importance_by_layer
from regard.server.questions import Attend, Change, Explain, Picture, Play, Row, Wanted, Written
from regard.viz import Sees, Subject, Writes
from regard.viz.data import BesideData, RowData, WorthData
from regard.viz.maps import Map
from regard.viz.page import as_json, row_data


class Explorer:
    """A subject that answers questions, one at a time."""

    def __init__(
        self,
        subject: Subject[Any],
        beside: Sequence[Subject[Any]] = (),
        *,
        back: tuple[str, str] | None = None,
    ) -> None:
        self.subject = subject
        self.beside = beside
        self.back = back
        """The page that led here: its title, and its address from this one; None where none did."""
        self._importance: dict[str | None, dict[str, list[WorthData]]] = {}
        """By the input that it is over; None for unseen ones."""
        self._shown: list[str] = []
        """The input that was shown last."""
        self._long: dict[str, Any] = {}
        """Of the last answer, where it is of a long input: `key`, what was asked, and the `map`."""
        self._roles: dict[str, list[dict[str, Any]]] = {}
        self._progress: dict[str, list[int]] = {}

    def apart(self, check: Callable[[], None]) -> "Explorer":
        """Return an explorer that can be asked beside this one, for its layers are its own: whatever is done to
        them, nobody else sees. The parameters are the same, so it takes next to no memory.

        `check` is called before each part of its model works, and may raise to stop it.
        """
        model = self.subject.model
        shared = {id(each): each for each in itertools.chain(model.parameters(), model.buffers())}
        found = Explorer(copy.deepcopy(self.subject, shared), self.beside, back=self.back)
        found._importance, found._shown = self._importance, self._shown
        found._roles, found._progress, found._long = self._roles, self._progress, self._long

        def before(module: nn.Module, given: Any) -> None:
            check()

        model = found.subject.model
        for part in model.modules():
            if part is model or next(part.children(), None) is not None:  # not each matrix product
                part.register_forward_pre_hook(before)
        return found

    def about(self) -> dict[str, Any]:
        """Return what the page says of the subject."""
        return {**self.subject.about(), "writes": isinstance(self.subject, Writes), "back": self.back}

    def attend(self, asked: Attend) -> dict[str, Any]:
        """Answer an input; the answer is a map, and with interventions also the `original`.

        Raises `InputError` where a part does not fit the subject.
        """
        text = self._input(asked.input, asked.seed)
        self._long.clear()  # which is large
        with self._touched(asked.interventions):
            touched = self.subject.attend(text)
        self._shown[:] = [text]
        if any(layer.rows is not None for layer in touched.layers.values()):
            self._long.update(key=(text, tuple(asked.interventions)), map=touched)
        others = self._beside(text)
        if asked.interventions:
            others["original"] = as_json(touched.original or self.subject.attend(text))
        return {"map": as_json(touched), **others}

    def _beside(self, text: str) -> dict[str, Any]:
        """Return what the other subjects do with an input, `beside`, and why some cannot read it, `left_out`."""
        found: list[BesideData] = []
        left_out: list[str] = []
        for each in self.beside:
            try:
                found.append({"name": each.where, "map": as_json(each.attend(text))})
            except InputError as error:
                left_out.append(f"{each.where} is not shown beside it: {error}")
        return {name: some for name, some in (("beside", found), ("left_out", left_out)) if some}

    def row(self, asked: Row) -> RowData:
        """Return the weights of one step of a long input, exactly.

        Raises `InputError` for a layer, head or step that is not there, or a map that has all rows already.
        """
        key = (asked.input, tuple(asked.interventions))
        if self._long.get("key") != key:
            self.attend(Attend(asked.input, asked.seed, asked.interventions))
        found: Map | None = self._long.get("map")
        if found is None:
            raise InputError("the map has all rows already: each weight stands in it")
        layer = found.layers.get(asked.layer)
        if layer is None or layer.rows is None:
            raise unknown("layer", asked.layer, found.layers)
        return row_data(layer.rows, asked.head, asked.step)

    def picture(self, given: Picture) -> dict[str, str]:
        """Take a picture as an input; returns the `input` that it is called from now on.

        Raises `InputError` where the subject sees none, or not this one.
        """
        subject = self.subject
        if not isinstance(subject, Sees):
            raise InputError(f"{subject.name} sees no pictures: type an input")
        for each in (subject, *self.beside):
            if isinstance(each, Sees):
                each.put_picture(given.name, given.content)
        return {"input": given.name}

    def explain(self, asked: Explain) -> dict[str, Any]:
        """Return how one weight came about, number by number: an `ExplanationData`."""
        text = self._input(asked.input, asked.seed)
        with self._touched(asked.interventions):
            found = explain(
                self.subject,
                text,
                layer=asked.layer,
                head=asked.head,
                output=asked.output,
                key=asked.key,
                temperature=asked.temperature,
            )
        return found.json()

    def tree(self, asked: Written) -> dict[str, Any]:
        """Return what a search tries while it answers an input: the `tree`, and for each branch, which of `maps`
        shows what it attended to.

        Raises `InputError` where the subject writes no sequences.
        """
        subject = self.subject
        if not isinstance(subject, Writes):
            raise InputError(f"{subject.name} answers with numbers, all at once: there is no search to show")
        text = self._input(asked.input, asked.seed)
        with self._touched(asked.interventions):
            found = subject.tree(text, beam=asked.beam)
            leaves = found.leaves
            maps = [as_json(subject.along(text, found.path(leaf)), packed=True) for leaf in leaves]
        shown: list[int] = [0] * len(found.branches)
        for place, leaf in sorted(enumerate(leaves), key=lambda each: each[1] in found.best):
            at: int | None = leaf
            while at is not None:
                shown[at], at = place, found.branches[at].parent
        return {"tree": found.json(), "shown": shown, "maps": maps}

    def playback(self, asked: Play) -> dict[str, Any]:
        """Return how attention on an input formed: `{steps, losses, frames}`, a map for each step.

        The weights of so many maps are rounded and packed as in a page.
        """
        found = self.subject.playback(self._input(asked.input, asked.seed))
        return {**found.data(), "frames": [as_json(each, packed=True) for each in found.frames]}

    def importance(self) -> dict[str, list[WorthData]]:
        """Return, for each layer, what each head is worth: over unseen inputs, worked out once, or where there
        are none over the input that was shown last."""
        shown = self._shown[0] if self._shown else None
        weighed = self.subject.weighing(shown)
        over = None if weighed is self.subject else shown
        if over not in self._importance:
            try:
                found = head_importance(weighed, on_progress=self._tell("importance"))
                self._importance[over] = importance_by_layer(found)
            finally:
                self._progress.pop("importance", None)
        return self._importance[over]

    def roles(self) -> dict[str, list[dict[str, Any]]]:
        """Return, for each layer, what each head does; worked out once."""
        if not self._roles:
            try:
                self._roles.update(head_roles(self.subject, on_progress=self._tell("roles")).by_layer())
            finally:
                self._progress.pop("roles", None)
        return self._roles

    def samples(self, asked: Wanted) -> dict[str, Any]:
        """Return unseen inputs that a head weighs most, a `HeadSamples`."""
        found = head_samples(
            self.subject, asked.layer, asked.head, token=asked.token, wrong_first=asked.wrong_first
        )
        return found.json()

    def progress(self) -> dict[str, list[int]]:
        """Return how far that is which is being worked out: by its name, what is done, and of how much."""
        return dict(self._progress)

    def _tell(self, name: str) -> Callable[[int, int], None]:
        def tell(done: int, all: int) -> None:
            self._progress[name] = [done, all]

        return tell

    @contextmanager
    def _touched(self, interventions: Sequence[Change]) -> Iterator[None]:
        """Do to the model what was asked for, while the block runs."""
        with ExitStack() as stack:
            for each in interventions:
                stack.enter_context(
                    self.subject.touching(
                        each.layer, heads=each.heads, to=each.to, query=each.query, key=each.key
                    )
                )
            yield

    def _input(self, text: str | None, seed: int) -> str:
        if text is None:
            return self.subject.draw(seed=seed)
        self.subject.check(text)
        return text
