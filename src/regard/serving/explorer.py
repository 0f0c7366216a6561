"""What the explorer asks of a run: answers with attention, touched or not, head importance, playback."""

from contextlib import ExitStack
from typing import Any

from regard.api import AnswerRun, PairRun, SequenceRun
from regard.attention import find_layer, intervene
from regard.errors import InputError, check_range
from regard.inspection import AttentionMap
from regard.inspection.page import as_json

LONGEST = 20_000
"""Characters of an input, at most."""
MOST = 200
"""Interventions at once, at most."""


class Explorer:
    """A run that answers requests, one at a time."""

    def __init__(self, run: AnswerRun | SequenceRun) -> None:
        self.run = run
        self._importance: dict[str, list[float]] | None = None

    def about(self) -> dict[str, Any]:
        """Return what the page says of the run."""
        run = self.run
        return {
            "task": run.task.name,
            "summary": run.task.summary,
            "kind": run.config.kind,
            "step": run.step,
            "draws": isinstance(run, AnswerRun | PairRun),
            "snapshots": run.has_snapshots,
        }

    def attend(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request `{input, seed, interventions}`, each of which may be left out.

        `input` is drawn by `seed` where it is left out. `interventions`: a list of `{layer, heads, to}`, or
        `{layer, heads, to, query, key}` for one weight, as in `regard.intervene`. The answer is a map, and with
        interventions also the `original`. Raises `InputError` where a part does not fit.
        """
        _check_names(request, ("input", "seed", "interventions"), "request")
        text = self._input(request)
        changes = [self._change(each) for each in _list(request.get("interventions", []), "interventions", MOST)]
        original = self._attend(text)
        if not changes:
            return {"map": as_json(original)}
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(intervene(self.run.model, **change))
            touched = self._attend(text)
        return {"map": as_json(touched), "original": as_json(original)}

    def playback(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request `{input}` with how attention formed: `{steps, losses, frames}`, a map for each step.

        The weights of so many maps are rounded and packed as in a page.
        """
        _check_names(request, ("input", "seed"), "request")
        text = self._input(request)
        self._check_length(text)
        found = self.run.playback(text)
        return {**found.data(), "frames": [as_json(each, packed=True) for each in found.frames]}

    def importance(self) -> dict[str, list[float]]:
        """Return, for each layer, by how much the loss rises when each head is off; worked out once."""
        if self._importance is None:
            self._importance = self.run.importance().added
        return self._importance

    def _attend(self, text: str) -> AttentionMap:
        self._check_length(text)
        return self.run.attend_to(text) if isinstance(self.run, SequenceRun) else self.run.attend(text)

    def _check_length(self, text: str) -> None:
        if isinstance(self.run, SequenceRun) and (reason := self.run.too_long(text)) is not None:
            raise InputError(f"input {reason}")

    def _input(self, request: dict[str, Any]) -> str:
        text, seed = request.get("input"), request.get("seed", 0)
        if type(seed) is not int:
            raise InputError(f"seed {seed!r} is not a whole number")
        check_range("seed", seed, 0, 2**32 - 1)
        if text is None:
            if isinstance(self.run, AnswerRun | PairRun):
                return self.run.draw(seed=seed)
            raise InputError("input is missing: this task draws none by itself")
        if not isinstance(text, str):
            raise InputError("input is not a text")
        if len(text) > LONGEST:
            raise InputError(f"input has {len(text):,} characters: at most {LONGEST:,} are taken")
        return text

    def _change(self, given: Any) -> dict[str, Any]:
        """Return the arguments of an intervention; raises `InputError` where one is not what it should be."""
        if not isinstance(given, dict) or not isinstance(given.get("layer"), str):
            raise InputError("an intervention needs a layer, heads, and what they are changed to")
        _check_names(given, ("layer", "heads", "to", "query", "key"), "intervention")
        find_layer(self.run.model, given["layer"])
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
