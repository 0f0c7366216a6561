"""Exercises: score, masked softmax, attention, positions."""

from typing import Any

import numpy as np

from regard.course.exercises.exercise import Exercise, vary_sizes
from regard.course.inputs import Array, Case
from regard.course.mistakes import Solution


def _draw(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) for shape in shapes]


def masks(seed: int, batch: int, queries: int, keys: int) -> Array:
    """Return a random mask (B, Tq, Tk) in which each query may attend to some keys, and at least two queries to
    each key.

    If there is a single query, all keys are allowed.
    """
    generator = np.random.default_rng(seed + 1)
    mask: Array = generator.random((batch, queries, keys)) < 0.4
    for key in range(keys):
        mask[:, key % queries, key] = mask[:, (key + 2) % queries, key] = True
    for query in range(queries):
        mask[:, query, (2 * query + 1) % keys] = True
    return mask


def _score(seed: int) -> list[Case]:
    def case(name: str, b: int, tq: int, tk: int, d: int, **options: Any) -> Case:
        b, tq, tk, d = vary_sizes(seed, b, tq, tk, d)
        query, key = _draw(seed + b + tk, (b, tq, d), (b, tk, d))
        return Case(name=name, arguments={"query": query, "key": key}, **options)

    small = Case(
        name="by hand",
        arguments={"query": np.array([[[2.0, 0.0], [1.0, 1.0]]]), "key": np.array([[[1.0, 0.0], [0.0, 4.0]]])},
    )
    # Sizes are different primes, so swapped axes change the shape or the numbers of the result.
    return [
        case("Tq different from Tk", 2, 5, 7, 3),
        case("as many keys as queries", 3, 5, 5, 7),
        case("a wide key", 2, 3, 2, 31),
        case("one step", 2, 1, 5, 3),
        case("a batch of one", 1, 5, 7, 3),
        case("gradients", 2, 3, 5, 7, gradients=("query", "key")),
        small,
    ]


def _softmax(seed: int) -> list[Case]:
    def case(name: str, b: int, tq: int, tk: int, scale: float = 2.0, **options: Any) -> Case:
        b, tq, tk = vary_sizes(seed, b, tq, tk)
        (scores,) = _draw(seed + b + tk, (b, tq, tk))
        return Case(name=name, arguments={"scores": scores * scale, "mask": masks(seed, b, tq, tk)}, **options)

    full, partial = case("", 2, 3, 5), case("", 2, 5, 5)
    mask = partial.arguments["mask"].copy()
    mask[0, 1], mask[1, -1] = False, False
    fully_masked = {"scores": partial.arguments["scores"], "mask": mask}
    small = {"scores": np.array([[[1.0, 2.0], [2.0, 3.0]]]), "mask": np.array([[[True, True], [True, False]]])}
    return [
        case("a mask", 2, 5, 7),
        case("as many keys as queries", 3, 5, 5),
        Case(
            name="nothing masked",
            arguments={**full.arguments, "mask": np.ones(full.arguments["mask"].shape, bool)},
        ),
        case("one step", 2, 1, 5),
        case("a batch of one", 1, 5, 7),
        case("large scores", 2, 3, 5, scale=2_000.0),  # exp overflows above 709 in 64 bits
        Case(name="a fully masked row", arguments=fully_masked, gradients=("scores",)),
        case("gradients", 2, 3, 5, gradients=("scores",)),
        Case(name="by hand", arguments=small),
    ]


def _attention(seed: int) -> list[Case]:
    def case(name: str, b: int, tq: int, tk: int, d: int, dv: int, masked: bool = True, **options: Any) -> Case:
        b, tq, tk, d, dv = vary_sizes(seed, b, tq, tk, d, dv)
        query, key, value = _draw(seed + b + tk, (b, tq, d), (b, tk, d), (b, tk, dv))
        mask = masks(seed, b, tq, tk) if masked else None
        return Case(name=name, arguments={"query": query, "key": key, "value": value, "mask": mask}, **options)

    inputs = ("query", "key", "value")
    fully_masked = case("a fully masked row", 2, 5, 7, 3, 11, gradients=inputs)
    fully_masked.arguments["mask"][0, 1] = False
    return [
        case("Tq different from Tk", 2, 5, 7, 3, 11, masked=False),
        case("as many keys as queries", 3, 5, 5, 7, 7, masked=False),
        case("a mask", 2, 5, 7, 3, 11),
        case("a square mask", 3, 5, 5, 7, 7),
        case("one step", 2, 1, 5, 3, 7),
        case("a batch of one", 1, 5, 7, 3, 11),
        case("gradients", 2, 3, 5, 7, 2, gradients=inputs),
        fully_masked,
        Case(
            name="by hand",
            arguments={
                "query": np.array([[[2.0, 0.0], [1.0, 1.0]]]),
                "key": np.array([[[1.0, 0.0], [0.0, 4.0]]]),
                "value": np.array([[[1.0, 0.0], [0.0, 10.0]]]),
                "mask": np.array([[[True, True], [True, False]]]),
            },
        ),
    ]


def _positions(seed: int) -> list[Case]:
    def case(name: str, length: int, width: int) -> Case:
        (length,) = vary_sizes(seed, length)
        return Case(name=name, arguments={"length": length, "width": width}, sizes={"width": width})

    wide = 2 * (3 + seed % 5)
    return [
        case("prime sizes", 7, 2 * 5),
        case("a wide model", 11, 2 * 23),
        case("two dimensions", 5, 2),
        case("one step", 1, 6),
        case("many steps", 101, wide),
        case("by hand", 2, 4),
    ]


def _concatenated(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, d: int, width: int, **options: Any) -> Case:
        b, t, d = vary_sizes(seed, b, t, d)
        (states,) = _draw(seed + b + t, (b, t, d))
        return Case(name=name, arguments={"states": states, "width": width}, sizes={"width": width}, **options)

    small = {"states": np.array([[[5.0, 6.0], [7.0, 8.0]]]), "width": 2}
    return [
        case("prime sizes", 2, 7, 3, 10),
        case("positions with the width of the states", 3, 5, 6, 6),
        case("one step", 2, 1, 3, 4),
        case("a batch of one", 1, 7, 3, 10),
        case("gradients", 2, 3, 5, 4, gradients=("states",)),
        Case(name="by hand", arguments=small, sizes={"width": 2}),
    ]


EXERCISES = (
    Exercise(
        title="the score of a query and a key",
        source="Vaswani et al. 2017, equation 1, without softmax and V",
        solution=Solution.score,
        cases=_score,
        outputs=("scores",),
        aliases=("scaled_dot_score", "scores", "scaled_scores", "dot_product_score"),
    ),
    Exercise(
        title="softmax with a mask",
        source="Vaswani et al. 2017, section 3.2.3",
        solution=Solution.masked_softmax,
        cases=_softmax,
        outputs=("weights",),
        aliases=("softmax", "softmax_with_mask", "masked_soft_max"),
    ),
    Exercise(
        title="scaled dot-product attention",
        source="Vaswani et al. 2017, equation 1",
        solution=Solution.attention,
        cases=_attention,
        outputs=("context", "weights"),
        aliases=("scaled_dot_product_attention", "dot_product_attention", "single_head_attention"),
    ),
    Exercise(
        title="sinusoidal positions",
        source="Vaswani et al. 2017, section 3.5",
        solution=Solution.sinusoidal_positions,
        cases=_positions,
        outputs=("waves",),
        aliases=("positional_encoding", "sinusoidal", "sinusoidal_embedding", "sinusoidal_encoding", "positions"),
    ),
    Exercise(
        title="positions concatenated to the states",
        source="Vaswani et al. 2017, section 3.5",
        solution=Solution.concatenate_positions,
        cases=_concatenated,
        outputs=("states",),
        aliases=("concatenated_positions", "concat_positions", "ConcatenatedSinusoidal"),
        module_arguments=("width",),
        constructor_sizes=("width",),
    ),
)
