"""The exercises of the course, in the order in which one part needs another."""

from regard.course.exercises import attending, learning, parts, recurring, seeking, stacking
from regard.course.exercises.exercise import Case, Exercise
from regard.errors import unknown_choice

EXERCISES: tuple[Exercise, ...] = (
    *attending.EXERCISES,
    *parts.EXERCISES,
    *stacking.EXERCISES,
    *seeking.EXERCISES,
    *recurring.EXERCISES,
    *learning.EXERCISES,
)
"""All of them."""


def find_exercise(name: str) -> Exercise:
    """Return the exercise that is called `name`, in any of its spellings; raises `InputError` where none is."""
    for each in EXERCISES:
        if each.answers_to(name):
            return each
    raise unknown_choice("exercise", name, [each.name for each in EXERCISES])


__all__ = ["EXERCISES", "Case", "Exercise", "find_exercise"]
