"""Exercises: score, masked softmax, attention, positions."""

import numpy as np

from regard_course.exercises.draws import draw_cases, fixed, number, random_mask, row, with_empty_rows
from regard_course.exercises.exercise import Exercise
from regard_course.mistakes.solution import Solution

EXERCISES = (
    Exercise(
        title="the score of a query and a key",
        source="Vaswani et al. 2017, equation 1, without softmax and V",
        solution=Solution.score,
        cases=draw_cases(
            "b q k d",
            {"query": "b q d", "key": "b k d"},
            row("Tq different from Tk", 2, 5, 7, 3),
            row("as many keys as queries", 3, 5, 5, 7),
            row("a wide key", 2, 3, 2, 31),
            row("one step", 2, 1, 5, 3),
            row("a batch of one", 1, 5, 7, 3),
            row("equal sizes", 3, 3, 3, 3),  # the only input without an error for most swapped dimensions
            row("gradients", 2, 3, 5, 7, gradients=("query", "key")),
            fixed("by hand", query=[[[2.0, 0.0], [1.0, 1.0]]], key=[[[1.0, 0.0], [1.0, 4.0]]]),
        ),
        outputs=("scores",),
        aliases=("scaled_dot_score", "scores", "scaled_scores", "dot_product_score"),
    ),
    Exercise(
        title="softmax with a mask",
        source="Vaswani et al. 2017, section 3.2.3",
        solution=Solution.masked_softmax,
        cases=draw_cases(
            "b q k",
            {"scores": lambda draw: 2 * draw("b q k"), "mask": random_mask("b q k")},
            row("a mask", 2, 5, 7),
            row("as many keys as queries", 3, 5, 5),
            row("nothing masked", 2, 3, 5, mask=lambda draw: np.ones(draw.shape("b q k"), bool)),
            row("one step", 2, 1, 5),
            row("a batch of one", 1, 5, 7),
            # exp overflows above 709 in 64 bits
            row("large scores", 2, 3, 5, scores=lambda draw: 2_000 * draw("b q k")),
            row("equal scores", 2, 3, 5, scores=lambda draw: np.zeros(draw.shape("b q k"))),
            row("one key", 3, 5, 1),
            row(
                "a fully masked row",
                *(2, 5, 5),
                mask=with_empty_rows("b q k", (0, 1), (1, -1)),
                gradients=("scores",),
            ),
            row("gradients", 2, 3, 5, gradients=("scores",)),
            fixed("by hand", scores=[[[1.0, 2.0], [2.0, 3.0]]], mask=[[[True, True], [True, False]]]),
        ),
        outputs=("weights",),
        aliases=("softmax", "softmax_with_mask", "masked_soft_max"),
    ),
    Exercise(
        title="scaled dot-product attention",
        source="Vaswani et al. 2017, equation 1",
        solution=Solution.attention,
        cases=draw_cases(
            "b q k d v",
            {"query": "b q d", "key": "b k d", "value": "b k v", "mask": random_mask("b q k")},
            row("Tq different from Tk", 2, 5, 7, 3, 11, mask=None),
            row("as many keys as queries", 3, 5, 5, 7, 7, mask=None),
            row("a mask", 2, 5, 7, 3, 11),
            row("a square mask", 3, 5, 5, 7, 7),
            row("one step", 2, 1, 5, 3, 7),
            row("a batch of one", 1, 5, 7, 3, 11),
            row("equal sizes", 3, 3, 3, 3, 3, mask=None),
            row("equal scores", 2, 5, 7, 3, 11, query=lambda draw: np.zeros(draw.shape("b q d"))),
            row("one key", 2, 5, 1, 3, 7),
            row("gradients", 2, 3, 5, 7, 2, gradients=("query", "key", "value")),
            row(
                "a fully masked row",
                *(2, 5, 7, 3, 11),
                mask=with_empty_rows("b q k", (0, 1)),
                gradients=("query", "key", "value"),
            ),
            fixed(
                "by hand",
                query=[[[2.0, 1.0], [0.0, 1.0]]],
                key=[[[1.0, 0.0], [1.0, 4.0]]],
                value=[[[1.0, 0.0], [0.0, 10.0]]],
                mask=[[[True, True], [True, False]]],
            ),
        ),
        outputs=("context", "weights"),
        aliases=("scaled_dot_product_attention", "dot_product_attention", "single_head_attention"),
    ),
    Exercise(
        title="sinusoidal positions",
        source="Vaswani et al. 2017, section 3.5",
        solution=Solution.sinusoidal_positions,
        cases=draw_cases(
            "t p",  # p: pairs of dimensions
            {"length": number("t"), "width": number("2*p")},
            row("prime sizes", 7, 5),
            row("a wide model", 11, 23),
            row("two dimensions", 5, 1),
            row("one step", 1, 3),
            row("many steps", 101, 3),
            row("by hand", 2, 2),
            constructor={"width": "2*p"},
        ),
        outputs=("waves",),
        aliases=("positional_encoding", "sinusoidal", "sinusoidal_embedding", "sinusoidal_encoding", "positions"),
    ),
    Exercise(
        title="positions concatenated to the states",
        source="Vaswani et al. 2017, section 3.5",
        solution=Solution.concatenate_positions,
        cases=draw_cases(
            "b t d p",
            {"states": "b t d", "width": number("2*p")},
            row("prime sizes", 2, 7, 3, 5),
            row("positions with the width of the states", 3, 5, 6, 3, states="b t 2*p"),
            row("one step", 2, 1, 3, 2),
            row("a batch of one", 1, 7, 3, 5),
            row("gradients", 2, 3, 5, 2, gradients=("states",)),
            fixed("by hand", states=[[[5.0, 6.0], [7.0, 8.0]]], width=2, sizes={"width": 2}),
            constructor={"width": "2*p"},
        ),
        outputs=("states",),
        aliases=("concatenated_positions", "concat_positions", "ConcatenatedSinusoidal"),
        module_arguments=("width",),
        constructor_sizes=("width",),
    ),
)
