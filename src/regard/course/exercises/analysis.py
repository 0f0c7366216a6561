"""Exercises on what happens inside a model, and on which outputs to trust: logit lens, sinks, grokking, doubt."""

from typing import Any

import numpy as np

from regard.course.exercises.exercise import Exercise, vary_sizes
from regard.course.inputs import Array, Case
from regard.course.mistakes import Solution


def _lens(seed: int) -> list[Case]:
    def case(name: str, layers: int, t: int, d: int, tokens: int, **options: Any) -> Case:
        layers, t, d, tokens = vary_sizes(seed, layers, t, d, tokens)
        generator = np.random.default_rng(seed + t + d)
        # Each block adds to the state, so later states are larger.
        states = generator.normal(size=(layers, t, d)).cumsum(0) + 0.3
        arguments = {"states": states, "norm": generator.normal(size=d) + 1.0}
        return Case(name=name, arguments=arguments | {"output": generator.normal(size=(tokens, d))}, **options)

    small = {"states": np.array([[[2.0, 0.0]], [[2.0, 2.0]], [[2.0, 6.0]]]), "norm": np.array([1.0, 2.0])}
    return [
        case("prime sizes", 3, 5, 7, 11),
        case("one step", 5, 1, 3, 13),
        case("as many tokens as dimensions", 2, 3, 5, 5),
        case("only the embeddings", 1, 5, 3, 7),
        case("gradients", 2, 3, 5, 7, gradients=("states", "norm", "output")),
        Case(name="by hand", arguments=small | {"output": np.eye(2)}),
    ]


def _sinks(seed: int) -> list[Case]:
    def case(name: str, b: int, h: int, q: int, k: int, size: float = 1.0, **options: Any) -> Case:
        b, h, q, k = vary_sizes(seed, b, h, q, k)
        generator = np.random.default_rng(seed + b + k)
        scores, sink = size * generator.normal(size=(b, h, q, k)), size * generator.normal(size=h)
        return Case(name=name, arguments={"scores": scores, "sink": sink}, **options)

    small = {"scores": np.log([[[[2.0, 4.0], [1.0, 1.0]]]]), "sink": np.log([2.0])}
    return [
        case("prime sizes", 2, 3, 5, 7),
        case("one key", 2, 5, 3, 1),
        case("as many queries as heads", 2, 3, 3, 5),
        case("large scores", 2, 3, 5, 7, size=1000.0),
        case("gradients", 2, 3, 2, 5, gradients=("scores", "sink")),
        Case(name="by hand", arguments=small),
    ]


def _numbers(seed: int) -> list[Case]:
    def case(name: str, count: int, width: int) -> Case:
        (width,) = vary_sizes(seed, width)
        generator = np.random.default_rng(seed + count)
        return Case(name=name, arguments={"embeddings": generator.normal(size=(count, width)) + 0.5})

    first, second = (1 + np.random.default_rng(seed).permutation(5)[:2]).tolist()
    return [
        case("an odd modulus", 13, 5),
        case("an even modulus", 12, 7),
        case("as many numbers as dimensions", 9, 9),
        case("one dimension", 10, 1),
        Case(name="two waves", arguments={"embeddings": _waves(11, (first, second)) + 0.2}),
        Case(name="by hand", arguments={"embeddings": np.array([[1.0], [3.0], [1.0], [-1.0]])}),
    ]


def _waves(count: int, frequencies: tuple[int, ...]) -> Array:
    """Return cosine and sine of each frequency (count, 2 * frequencies)."""
    angles = 2 * np.pi * np.outer(np.arange(count), frequencies) / count
    return np.concatenate([np.cos(angles), 0.5 * np.sin(angles)], 1)


def _attentions(seed: int) -> list[Case]:
    def case(name: str, heads: int, t: int, s: int, sharp: float = 1.0) -> Case:
        heads, t, s = vary_sizes(seed, heads, t, s)
        powers = np.exp(sharp * np.random.default_rng(seed + heads + t).normal(size=(heads, t, s)))
        return Case(name=name, arguments={"attention": powers / powers.sum(-1, keepdims=True)})

    small = np.array([[[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]], [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]])
    return [
        case("two heads", 2, 5, 7),
        case("one head, sharp", 1, 7, 3, sharp=4.0),
        case("as many rows as source tokens", 3, 5, 5, sharp=2.0),
        case("one row", 2, 1, 11, sharp=3.0),
        Case(name="by hand", arguments={"attention": small}),
    ]


def _doubts(seed: int) -> list[Case]:
    def case(name: str, count: int, faults: int, steps: int) -> Case:
        (count,) = vary_sizes(seed, count)
        generator = np.random.default_rng(seed + count)
        faulty = generator.permutation(np.arange(count) < min(faults, count - 1)).astype(int)
        doubts = np.round(steps * (generator.random(count) + 0.4 * faulty)) / steps
        return Case(name=name, arguments={"doubts": doubts, "faulty": faulty})

    return [
        case("no ties", 23, 9, 10**6),
        case("many ties", 29, 11, 4),
        case("one fault", 19, 1, 5),
        case("mostly faults", 17, 14, 3),
        Case(name="equal doubts", arguments={"doubts": np.full(5, 0.5), "faulty": np.array([1, 0, 0, 1, 0])}),
        Case(
            name="by hand",
            arguments={"doubts": np.array([0.9, 0.4, 0.4, 0.1]), "faulty": np.array([1, 0, 1, 0])},
        ),
    ]


EXERCISES = (
    Exercise(
        title="the logit lens",
        source="nostalgebraist 2020",
        solution=Solution.logit_lens,
        cases=_lens,
        outputs=("probabilities",),
        aliases=("lens",),
    ),
    Exercise(
        title="a softmax with a sink",
        source="Miller 2023; Xiao et al. 2024, section 3.3",
        solution=Solution.sink_softmax,
        cases=_sinks,
        outputs=("weights",),
        aliases=("softmax_with_sink", "softmax_one", "softmax_off_by_one"),
    ),
    Exercise(
        title="the frequencies of embeddings",
        source="Nanda et al. 2023, section 4.1",
        solution=Solution.fourier_power,
        cases=_numbers,
        outputs=("shares",),
        aliases=("fourier_share", "fourier_spectrum"),
    ),
    Exercise(
        title="the distance of attention from uniform",
        source="Guerreiro et al. 2023, section 4.1",
        solution=Solution.distance_from_uniform,
        cases=_attentions,
        outputs=("distance",),
        aliases=("wass_to_unif", "wasserstein_to_uniform"),
    ),
    Exercise(
        title="the AUROC of a doubt",
        source="Fawcett 2006, section 7",
        solution=Solution.auroc,
        cases=_doubts,
        outputs=("auroc",),
        aliases=("roc_auc", "area_under_the_curve"),
    ),
)
