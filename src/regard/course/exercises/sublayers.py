"""Exercises: multi-head attention and the feed-forward network, the sublayers of a Transformer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.course.exercises.attention import masks
from regard.course.exercises.exercise import Exercise, vary_sizes
from regard.course.inputs import Array, Case
from regard.course.mistakes import Solution

HEADS, WIDTH, INNER = 3, 15, 11
WIDER = 21
"""Width of inputs with equal numbers of keys and queries. The width of a head differs from these numbers."""
ATTENTION = ("w_q", "w_k", "w_v", "w_o")
FEED_FORWARD = ("w_1", "b_1", "w_2", "b_2")


def draw_parameters(
    generator: np.random.Generator, names: Sequence[str], width: int, inner: int
) -> dict[str, Array]:
    """Return random parameters. Gains and shifts are random too, so that a mistake in their use changes the
    output."""
    shapes = {"w_1": (width, inner), "b_1": (inner,), "w_2": (inner, width), "b_2": (width,)}
    parameters: dict[str, Array] = {}
    for name in names:
        if name.startswith(("gain", "shift")):
            parameters[name] = generator.normal(1 if name.startswith("gain") else 0, 0.5, width)
        else:
            # Weights of this size keep the states near 1, so that neither softmax nor tanh saturates.
            shape = shapes.get(name, (width, width))
            parameters[name] = generator.normal(size=shape) * (0.5 if len(shape) == 1 else 1.5 * shape[0] ** -0.5)
    return parameters


def constructor_arguments(width: int, heads: int, inner: int = INNER) -> dict[str, int]:
    """Return the constructor arguments of a learner's module."""
    return {"width": width, "heads": heads, "inner": inner}


def _multi_head(seed: int) -> list[Case]:
    def case(
        name: str, b: int, tq: int, tk: int, heads: int, width: int, masked: bool = True, **options: Any
    ) -> Case:
        b, tq, tk, heads, size = vary_sizes(seed, b, tq, tk, heads, width // heads)
        width = heads * size
        generator = np.random.default_rng(seed + b + tk)
        arguments: dict[str, Any] = {
            "query": generator.normal(size=(b, tq, width)),
            "key": generator.normal(size=(b, tk, width)),
            "value": generator.normal(size=(b, tk, width)),
            **draw_parameters(generator, ATTENTION, width, INNER),
            "heads": heads,
            "mask": masks(seed, b, tq, tk) if masked else None,
        }
        return Case(name=name, arguments=arguments, sizes=constructor_arguments(width, heads), **options)

    inputs = ("query", "key", "value")
    fully_masked = case("a fully masked row", 2, 5, 7, HEADS, WIDTH, gradients=inputs)
    fully_masked.arguments["mask"][0, 1] = False
    self_attention = case("self-attention", 2, 5, 5, HEADS, WIDER)
    same = {
        **self_attention.arguments,
        "key": self_attention.arguments["query"],
        "value": self_attention.arguments["query"],
    }
    small = {
        "query": np.array([[[1.0, 0.0], [0.0, 2.0]]]),
        "key": np.array([[[2.0, 1.0], [0.0, 3.0]]]),
        "value": np.array([[[1.0, 0.0], [0.0, 1.0]]]),
        "w_q": np.array([[1.0, 0.0], [1.0, 1.0]]),
        "w_k": np.array([[1.0, 1.0], [0.0, 1.0]]),
        "w_v": np.array([[1.0, 0.0], [2.0, 1.0]]),
        "w_o": np.array([[1.0, 1.0], [0.0, 2.0]]),
        "heads": 2,
        "mask": None,
    }
    return [
        case("Tq different from Tk", 2, 5, 7, HEADS, WIDTH, masked=False),
        case("as many keys as queries", 3, 5, 5, HEADS, WIDER, masked=False),
        Case(name="self-attention", arguments=same, sizes=self_attention.sizes),
        case("a mask", 2, 5, 7, HEADS, WIDTH),
        case("other sizes", 2, 3, 5, 2, 14),
        case("one step", 2, 1, 5, HEADS, WIDTH),
        case("a batch of one", 1, 5, 7, HEADS, WIDTH),
        case("gradients", 2, 3, 5, HEADS, WIDTH, gradients=(*inputs, *ATTENTION)),
        fully_masked,
        Case(name="by hand", arguments=small, sizes=constructor_arguments(2, 2), functions_only=True),
    ]


def _feed_forward(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, width: int, inner: int, **options: Any) -> Case:
        b, t, width, inner = vary_sizes(seed, b, t, width, inner)
        generator = np.random.default_rng(seed + b + t)
        states = generator.normal(size=(b, t, width))
        arguments = {"states": states, **draw_parameters(generator, FEED_FORWARD, width, inner)}
        return Case(name=name, arguments=arguments, sizes=constructor_arguments(width, HEADS, inner), **options)

    small = {
        "states": np.array([[[1.0, -1.0]]]),
        "w_1": np.array([[1.0, -1.0, 2.0], [0.0, 1.0, 0.5]]),
        "b_1": np.array([0.5, 0.5, -3.0]),
        "w_2": np.array([[1.0, -2.0], [1.0, 1.0], [3.0, 0.0]]),
        "b_2": np.array([0.25, 0.0]),
    }
    return [
        case("prime sizes", 2, 5, 7, 11),
        case("a narrow hidden layer", 3, 5, 11, 7),
        case("one step", 2, 1, 7, 11),
        case("a batch of one", 1, 5, 7, 11),
        case("gradients", 2, 3, 7, 11, gradients=("states", *FEED_FORWARD)),
        Case(name="by hand", arguments=small, sizes=constructor_arguments(2, 1, 3)),
    ]


EXERCISES = (
    Exercise(
        title="multi-head attention",
        source="Vaswani et al. 2017, section 3.2.2",
        solution=Solution.multi_head_attention,
        cases=_multi_head,
        outputs=("context",),
        aliases=("multi_head", "multihead_attention", "multi_headed_attention", "MHA"),
        module_arguments=(*ATTENTION, "heads"),
        constructor_sizes=("width", "heads"),
    ),
    Exercise(
        title="the position-wise feed-forward network",
        source="Vaswani et al. 2017, equation 2",
        solution=Solution.feed_forward,
        cases=_feed_forward,
        outputs=("states",),
        aliases=(
            "ffn",
            "mlp",
            "position_wise_feed_forward",
            "position_wise_ffn",
            "feed_forward_network",
            "pointwise_feed_forward",
        ),
        module_arguments=FEED_FORWARD,
        constructor_sizes=("width", "inner"),
    ),
)
