"""The words of Copy, for the exercise in training."""

import numpy as np

from regard.course.exercises.exercise import Array

PADDING, START, END = 0, 1, 2
SIZE = 9
"""Tokens of Copy: padding, start, end and six letters."""


def words(seed: int, count: int, longest: int = 5) -> tuple[Array, Array]:
    """Return words of two letters or more, and as targets: with start, end and padding."""
    generator = np.random.default_rng(seed)
    source = np.zeros((count, longest), np.int64)
    target = np.zeros((count, longest + 2), np.int64)
    target[:, 0] = START
    for row, length in enumerate(generator.integers(2, longest + 1, count)):
        source[row, :length] = generator.integers(END + 1, SIZE, length)
        target[row, 1 : length + 1] = source[row, :length]
        target[row, length + 1] = END
    return source, target
