"""The exercises of the course, ordered so that each exercise builds on the previous exercises."""

from collections.abc import Sequence

from regard.errors import unknown_choice
from regard_course.exercises import (
    analysis,
    attention,
    language,
    recurrent,
    search,
    sublayers,
    training,
    transformer,
)
from regard_course.exercises.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *attention.EXERCISES,
    *sublayers.EXERCISES,
    *transformer.EXERCISES,
    *search.EXERCISES,
    *recurrent.EXERCISES,
    *training.EXERCISES,
    *language.EXERCISES,
    *analysis.EXERCISES,
)


def find_exercise(name: str, exercises: Sequence[Exercise] = EXERCISES) -> Exercise:
    """Return the exercise with this name or alias, in any spelling.

    Raises `InputError` for an unknown name.

    >>> find_exercise("MHA").name
    'multi_head_attention'
    """
    for exercise in exercises:
        if exercise.matches(name):
            return exercise
    raise unknown_choice("exercise", name, [exercise.name for exercise in exercises])
