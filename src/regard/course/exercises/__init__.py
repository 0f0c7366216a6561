"""The exercises of the course, ordered so that each exercise builds on the previous exercises."""

from regard.course.exercises import attention, language, recurrent, search, sublayers, training, transformer
from regard.course.exercises.exercise import Case as Case, Exercise as Exercise
from regard.errors import unknown_choice

EXERCISES: tuple[Exercise, ...] = (
    *attention.EXERCISES,
    *sublayers.EXERCISES,
    *transformer.EXERCISES,
    *search.EXERCISES,
    *recurrent.EXERCISES,
    *training.EXERCISES,
    *language.EXERCISES,
)


def find_exercise(name: str) -> Exercise:
    """Return the exercise with this name or alias, in any spelling.

    Raises `InputError` for an unknown name.

    >>> find_exercise("MHA").name
    'multi_head_attention'
    """
    for exercise in EXERCISES:
        if exercise.matches(name):
            return exercise
    raise unknown_choice("exercise", name, [exercise.name for exercise in EXERCISES])
