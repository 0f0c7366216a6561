"""An exercise of your own: a correct function, its inputs, and common mistakes.

regard check --stubs exercises --exercises own_exercise.py     writes the file that learners start from
regard check mine.py --exercises own_exercise.py               checks an answer, and names the mistake in it
"""

import numpy as np

from regard_course.check import make_exercise


def moving_average(values, width):
    """Return the mean of each step and the width - 1 steps before it, or of all steps so far.

    values (B, T), width: a number; returns (B, T).
    """
    # The correct answer. Learners see the name, the parameters and the docstring. Write it with NumPy.
    return np.stack([values[:, max(0, t - width + 1) : t + 1].mean(1) for t in range(values.shape[1])], 1)


def inputs(seed):
    """Return the arguments by the name of the input, which the report shows.

    Use different primes as sizes, so that swapped axes are noticed. "gradients" also compares gradients.
    "by hand" is the example of a report.
    """
    generator = np.random.default_rng(seed)
    return {
        "prime sizes": {"values": generator.normal(size=(2, 7)), "width": 3},
        "one step": {"values": generator.normal(size=(3, 1)), "width": 2},
        "gradients": {"values": generator.normal(size=(2, 5)), "width": 2},
        "by hand": {"values": np.array([[1.0, 3.0, 5.0]]), "width": 2},
    }


def looks_ahead(values, width):
    """The window contains later steps."""
    # A mistake: the answer that it gives. The docstring describes it to the learner.
    return np.stack([values[:, t : t + width].mean(1) for t in range(values.shape[1])], 1)


def divided_by_width(values, width):
    """The first sums are divided by the width, although they have fewer steps."""
    sums = [values[:, max(0, t - width + 1) : t + 1].sum(1) for t in range(values.shape[1])]
    return np.stack(sums, 1) / width


# Each mistake with its correction. A mistake that no input shows is refused. A file may have several exercises.
average = make_exercise(
    moving_average,
    inputs,
    [
        (looks_ahead, "Use the step itself and earlier steps."),
        (divided_by_width, "Divide by the number of steps in the window."),
    ],
)
