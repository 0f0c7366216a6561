"""The catalogue: usual mistakes, each as working code, and what each of them would answer.

A mistake is a class derived from `Solution` that does one step as learners do it when they go wrong. Its
docstring says what was done, `instead` what to do, `paper` the line that it departs from.
"""

from regard.course.mistakes import (
    attention,
    decoder,
    masks,
    multi_head,
    positions,
    recurrent,
    search,
    sublayers,
    training,
    transformer,
)
from regard.course.mistakes.solution import Solution

MISTAKES: tuple[type[Solution], ...] = tuple(
    each
    for module in (
        attention,
        masks,
        positions,
        multi_head,
        sublayers,
        decoder,
        transformer,
        search,
        recurrent,
        training,
    )
    for each in vars(module).values()
    if isinstance(each, type) and each.__module__ == module.__name__
)
"""All of them, in the order of the exercises."""

__all__ = ["MISTAKES", "Solution"]
