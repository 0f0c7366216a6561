"""What the explorer asks of a subject: answers with attention, touched or not, head importance, playback."""

from contextlib import ExitStack
from typing import Any

from regard.attention import find_layer, intervene
from regard.errors import InputError, check_range
from regard.examination import head_importance
from regard.inspection import Subject
from regard.inspection.page import as_json

LONGEST = 20_000
"""Characters of an input, at most."""
MOST = 200
"""Interventions at once, at most."""


class Explorer:
    """A subject that answers requests, one at a time."""

    def __init__(self, subject: Subject[Any]) -> None:
        self.subject = subject
        self._importance: dict[str, list[float]] | None = None

    def about(self) -> dict[str, Any]:
        """Return what the page says of the subject."""
        return self.subject.about()

    def attend(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request `{input, seed, interventions}`, each of which may be left out.

        `input` is drawn by `seed` where it is left out. `interventions`: a list of `{layer, heads, to}`, or
        `{layer, heads, to, query, key}` for one weight, as in `regard.intervene`. The answer is a map, and with
        interventions also the `original`. Raises `InputError` where a part does not fit.
        """
        _check_names(request, ("input", "seed", "interventions"), "request")
        text = self._input(request)
        changes = [self._change(each) for each in _list(request.get("interventions", []), "interventions", MOST)]
        original = self.subject.attend(text)
        if not changes:
            return {"map": as_json(original)}
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(intervene(self.subject.model, **change))
            touched = self.subject.attend(text)
        return {"map": as_json(touched), "original": as_json(original)}

    def playback(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request `{input}` with how attention formed: `{steps, losses, frames}`, a map for each step.

        The weights of so many maps are rounded and packed as in a page.
        """
        _check_names(request, ("input", "seed"), "request")
        text = self._input(request)
        found = self.subject.playback(text)
        return {**found.data(), "frames": [as_json(each, packed=True) for each in found.frames]}

    def importance(self) -> dict[str, list[float]]:
        """Return, for each layer, by how much the loss rises when each head is off; worked out once."""
        if self._importance is None:
            self._importance = head_importance(self.subject).added
        return self._importance

    def _input(self, request: dict[str, Any]) -> str:
        text, seed = request.get("input"), request.get("seed", 0)
        if type(seed) is not int:
            raise InputError(f"seed {seed!r} is not a whole number")
        check_range("seed", seed, 0, 2**32 - 1)
        if text is None:
            return self.subject.draw(seed=seed)
        if not isinstance(text, str):
            raise InputError("input is not a text")
        if len(text) > LONGEST:
            raise InputError(f"input has {len(text):,} characters: at most {LONGEST:,} are taken")
        self.subject.check(text)
        return text

    def _change(self, given: Any) -> dict[str, Any]:
        """Return the arguments of an intervention; raises `InputError` where one is not what it should be."""
        if not isinstance(given, dict) or not isinstance(given.get("layer"), str):
            raise InputError("an intervention needs a layer, heads, and what they are changed to")
        _check_names(given, ("layer", "heads", "to", "query", "key"), "intervention")
        find_layer(self.subject.model, given["layer"])
        heads = given.get("heads")
        if heads is not None:
            heads = _list(heads, "heads", MOST)
        to = given.get("to", "off")
        if not isinstance(to, str | int | float) or isinstance(to, bool):
            raise InputError(f"to {to!r} is neither off, uniform, nor a weight")
        places = {name: given.get(name) for name in ("query", "key")}
        for name, value in [*places.items(), *(("head", head) for head in heads or [])]:
            if value is not None and type(value) is not int:
                raise InputError(f"{name} {value!r} is not a whole number")
        return {"layer": given["layer"], "heads": heads, "to": to, **places}


def _check_names(given: dict[str, Any], known: tuple[str, ...], what: str) -> None:
    for name in given:
        if name not in known:
            raise InputError(f"{name!r} is unknown in a {what}: choose {', '.join(known)}")


def _list(given: Any, name: str, most: int) -> list[Any]:
    if not isinstance(given, list) or len(given) > most:
        raise InputError(f"{name} is no list of at most {most}")
    return given
