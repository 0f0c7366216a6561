"""Exercises: one step of Bahdanau's decoder, and one of Luong's."""

import numpy as np

from regard_course.exercises.draws import draw_cases, fixed, padding_mask, row
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import TanhCell
from regard_course.mistakes.solution import Solution

EXERCISES = (
    Exercise(
        title="one step of Bahdanau's decoder",
        source="Bahdanau et al. 2015, appendix A.1.2 and A.2.2",
        solution=Solution.bahdanau_step,
        cases=draw_cases(
            "b t e d m a",
            {
                "previous": "b e",
                "state": "b d",
                "memory": "b t m",
                "cell": lambda draw: TanhCell(draw("e+m+d d") / 2),
                "w": "d a",
                "u": "m a",
                "v": lambda draw: 2 * draw("a"),
                "mask": padding_mask("b t"),
            },
            row("prime sizes", 3, 5, 2, 7, 11, 13, mask=None),
            row("a mask", 3, 5, 2, 7, 11, 13),
            row("equal widths", 2, 7, 5, 5, 5, 5, functions_only=True),
            row("one source step", 2, 1, 3, 5, 7, 2),
            row("a batch of one", 1, 5, 2, 7, 11, 13),
            row("gradients", 2, 5, 3, 5, 7, 2, gradients=("previous", "state", "memory")),
            constructor={"width": "d", "memory": "m", "inner": "a"},
        ),
        small_cases=lambda: [
            fixed(
                "by hand",
                previous=[[1.0]],
                state=[[-0.5]],
                memory=[[[0.5], [-1.0]]],
                cell=TanhCell(np.ones((3, 1))),
                w=[[1.0]],
                u=[[1.0]],
                v=[2.0],
            )
        ],
        outputs=("state", "weights"),
        aliases=("bahdanau", "bahdanau_attention", "additive_attention"),
        module_arguments=("w", "u", "v"),
        constructor_sizes=("width", "memory", "inner"),
    ),
    Exercise(
        title="one step of Luong's decoder",
        source="Luong et al. 2015, section 3.1, score general",
        solution=Solution.luong_step,
        cases=draw_cases(
            "b t e d m",
            {
                "previous": "b e",
                "state": "b d",
                "memory": "b t m",
                "cell": lambda draw: TanhCell(draw("e+d d") / 2),
                "w_a": "d m",
                "w_c": lambda draw: draw("m+d d") / 2,
                "mask": padding_mask("b t"),
            },
            row("prime sizes", 3, 5, 2, 7, 11, mask=None),
            row("a mask", 3, 5, 2, 7, 11),
            row("equal widths", 2, 7, 5, 5, 5, functions_only=True),
            row("one source step", 2, 1, 3, 5, 7),
            row("a batch of one", 1, 5, 2, 7, 11),
            row("gradients", 2, 5, 3, 5, 7, gradients=("previous", "state", "memory")),
            constructor={"width": "d", "memory": "m"},
        ),
        small_cases=lambda: [
            fixed(
                "by hand",
                previous=[[1.0]],
                state=[[-0.5]],
                memory=[[[0.5], [-1.0]]],
                cell=TanhCell(np.ones((2, 1))),
                w_a=[[2.0]],
                w_c=[[1.0], [0.5]],
            )
        ],
        outputs=("output", "state", "weights"),
        aliases=("luong", "luong_attention"),
        module_arguments=("w_a", "w_c"),
        constructor_sizes=("width", "memory"),
    ),
)
