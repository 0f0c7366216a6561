"""Exercises: multi-head attention and the feed-forward network, the sublayers of a Transformer."""

from regard_course.exercises.draws import draw_cases, fixed, number, parameter, random_mask, row, with_empty_rows
from regard_course.exercises.exercise import Exercise
from regard_course.mistakes.solution import Solution

ATTENTION = ("w_q", "w_k", "w_v", "w_o")
FEED_FORWARD = ("w_1", "b_1", "w_2", "b_2")
WIDTH, INNER = "h*s", "11"
CONSTRUCTOR = {"width": WIDTH, "heads": "h", "inner": INNER}
"""Shapes of layers with h heads of the width s."""

EXERCISES = (
    Exercise(
        title="multi-head attention",
        source="Vaswani et al. 2017, section 3.2.2",
        solution=Solution.multi_head_attention,
        cases=draw_cases(
            "b q k h s",
            {
                "query": f"b q {WIDTH}",
                "key": f"b k {WIDTH}",
                "value": f"b k {WIDTH}",
                **{name: parameter(name, WIDTH, INNER) for name in ATTENTION},
                "heads": number("h"),
                "mask": random_mask("b q k"),
            },
            row("Tq different from Tk", 2, 5, 7, 3, 5, mask=None),
            # With equal numbers of keys and queries, the width of a head differs from these numbers.
            row("as many keys as queries", 3, 5, 5, 3, 7, mask=None),
            row(
                "self-attention",
                *(2, 5, 5, 3, 7),
                key=lambda draw: draw.arguments["query"],
                value=lambda draw: draw.arguments["query"],
            ),
            row("a mask", 2, 5, 7, 3, 5),
            row("other sizes", 2, 3, 5, 2, 7),
            row("one step", 2, 1, 5, 3, 5),
            row("a batch of one", 1, 5, 7, 3, 5),
            row("gradients", 2, 3, 5, 3, 5, gradients=("query", "key", "value", *ATTENTION)),
            row(
                "a fully masked row",
                *(2, 5, 7, 3, 5),
                mask=with_empty_rows("b q k", (0, 1)),
                gradients=("query", "key", "value"),
            ),
            fixed(
                "by hand",
                query=[[[1.0, 0.0], [0.0, 2.0]]],
                key=[[[2.0, 1.0], [0.0, 3.0]]],
                value=[[[1.0, 0.0], [0.0, 1.0]]],
                w_q=[[1.0, 0.0], [1.0, 1.0]],
                w_k=[[1.0, 1.0], [0.0, 1.0]],
                w_v=[[1.0, 0.0], [2.0, 1.0]],
                w_o=[[1.0, 1.0], [0.0, 2.0]],
                heads=2,
                mask=None,
                functions=True,
            ),
            constructor=CONSTRUCTOR,
        ),
        outputs=("context",),
        aliases=("multi_head", "multihead_attention", "multi_headed_attention", "MHA"),
        module_arguments=(*ATTENTION, "heads"),
        constructor_sizes=("width", "heads"),
    ),
    Exercise(
        title="the position-wise feed-forward network",
        source="Vaswani et al. 2017, equation 2",
        solution=Solution.feed_forward,
        cases=draw_cases(
            "b t d f",
            {"states": "b t d", **{name: parameter(name, "d", "f") for name in FEED_FORWARD}},
            row("prime sizes", 2, 5, 7, 11),
            row("a narrow hidden layer", 3, 5, 11, 7),
            row("one step", 2, 1, 7, 11),
            row("a batch of one", 1, 5, 7, 11),
            row("gradients", 2, 3, 7, 11, gradients=("states", *FEED_FORWARD)),
            fixed(
                "by hand",
                states=[[[1.0, -1.0]]],
                w_1=[[1.0, -1.0, 2.0], [0.0, 1.0, 0.5]],
                b_1=[0.5, 0.5, -3.0],
                w_2=[[1.0, -2.0], [1.0, 1.0], [3.0, 0.0]],
                b_2=[0.25, 0.0],
                sizes={"width": 2, "inner": 3},
            ),
            constructor={"width": "d", "inner": "f"},
        ),
        outputs=("states",),
        aliases=(
            *("ffn", "mlp", "position_wise_feed_forward", "position_wise_ffn"),
            *("feed_forward_network", "pointwise_feed_forward"),
        ),
        module_arguments=FEED_FORWARD,
        constructor_sizes=("width", "inner"),
    ),
)
