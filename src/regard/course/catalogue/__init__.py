"""The catalogue: usual mistakes, each as working code, and what each of them would answer.

A mistake is a class derived from `Workings` that does one step as learners do it when they go wrong. Its
docstring says what was done, `instead` what to do, `paper` the line that it departs from.
"""

from regard.course.catalogue import (
    assembled,
    layered,
    learned,
    masked,
    normed,
    placed,
    searched,
    stacked,
    stepped,
    weighed,
)
from regard.course.catalogue.stepwise import Workings

MISTAKES: tuple[type[Workings], ...] = tuple(
    each
    for module in (weighed, masked, placed, layered, normed, stacked, assembled, searched, stepped, learned)
    for each in vars(module).values()
    if isinstance(each, type) and each.__module__ == module.__name__
)
"""All of them, in the order of the exercises."""

__all__ = ["MISTAKES", "Workings"]
