"""The course: lessons, exercises, and a checker for learners' code.

`exercises/` contains inputs, and `mistakes/` contains the correct solution, whose methods are the stubs, and those with
a known mistake. A learner's code runs in a separate process (`sandbox`, `worker`, `learner_calls`, `weight_matching`),
which imports neither of them. The main process grades the answers of this code (`grading`) and finds the mistakes that
explain incorrect answers (`diagnosis`). `check` loads exercises from outside the package, and `marks` checks the
answers of a class. `translations/` contains the course in other languages.
"""
