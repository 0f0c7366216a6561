"""What is asked of a model that was not built here: its inputs, and what they are called.

A text is called by itself, a file by its name, and anything else by its kind and its number among the inputs.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import InputError, begun
from regard.external.images import ImageProcessor

BETWEEN = " ||| "
"""What stands between a source and its target."""


class ModelInput(NamedTuple):
    """One input: a text and its target, where there is one; or anything else that a reader of one's own takes."""

    given: Any
    target: str | None = None

    @property
    def text(self) -> str:
        """What it is called."""
        if self.target is not None:
            return f"{self.given}{BETWEEN}{self.target}"
        if isinstance(self.given, Path):
            return self.given.name
        return self.given if isinstance(self.given, str) else type(self.given).__name__


def as_model_input(given: Any) -> ModelInput:
    """Return an input however it was given: a text, `source ||| target`, or a pair of both."""
    if isinstance(given, ModelInput):
        return given
    if isinstance(given, str):
        source, between, target = f" {given} ".partition(BETWEEN)
        return with_target(source.strip(), target.strip()) if between else ModelInput(given)
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(each, str) for each in given):
        return with_target(*given)
    return ModelInput(given)


def with_target(source: Any, target: str) -> ModelInput:
    """Return a source and its target; raises `InputError` where one of them is empty."""
    if isinstance(source, str) and not source.strip():
        raise InputError(f"no source stands before target {begun(target)}: type source{BETWEEN}target")
    if not target.strip():
        raise InputError("target is empty: type one, or leave it out")
    return ModelInput(source, target)


def as_model_inputs(inputs: Any) -> tuple[ModelInput, ...]:
    """Return some inputs, or one text; raises `InputError` for what is neither."""
    if isinstance(inputs, str):
        return (as_model_input(inputs),)
    if not isinstance(inputs, Iterable):
        raise InputError(f"inputs {begun(str(inputs))} are no list: give one, as in ['The cat sat']")
    return tuple(map(as_model_input, inputs))


def input_name(inputs: Sequence[ModelInput], number: int) -> str:
    """Return what one of some inputs is called, unlike the others."""
    asked = inputs[number]
    alike = [each.text for each in inputs].count(asked.text) > 1 and not isinstance(asked.given, str)
    return f"{asked.text} {number}" if alike else asked.text


def find_input(inputs: Sequence[ModelInput], input: Any) -> ModelInput:
    """Return an input however it was given: also by what one of `inputs` is called."""
    for number, each in enumerate(inputs if isinstance(input, str) else ()):
        if not isinstance(each.given, str) and input_name(inputs, number) == input:
            return each
    return as_model_input(input)


def check_image_name(asked: ModelInput, pictures: ImageProcessor | None) -> None:
    """Raise `InputError` for a picture that is asked for by its name and is not there: whoever types on a page
    does not come to read files by that."""
    if pictures is not None and isinstance(asked.given, str) and asked.given not in pictures.album:
        raise InputError(f"picture {asked.given!r} is not here: choose a file, PNG or JPEG")
