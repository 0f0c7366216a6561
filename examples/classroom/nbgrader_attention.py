"""Autograder cell of the exercise `attention` for nbgrader: a manually created test cell of 10 points.

The last expression is a number, so nbgrader gives partial points. Choose a seed of your own for the hidden part:
learners see the inputs of seed 0.
"""

import regard

SEED = 0
### BEGIN HIDDEN TESTS
SEED = 12345
### END HIDDEN TESTS
report = regard.check(attention, "attention", seed=SEED)  # noqa: F821 (the student's function)
print(report)
answer = report.exercises[0]
10 * answer.points / answer.possible_points
