"""Exercises: one step of Bahdanau's decoder, and one of Luong's."""

from typing import Any

import numpy as np

from regard.course.exercises.exercise import Exercise, vary_sizes
from regard.course.inputs import Array, Case, TanhCell
from regard.course.mistakes import Solution


def _padding_mask(generator: np.random.Generator, batch: int, time: int) -> Array:
    mask: Array = np.arange(time) < generator.integers(1, time + 1, (batch, 1))
    mask[0] = np.arange(time) < max(1, time - 1)
    return mask


def _bahdanau(seed: int) -> list[Case]:
    def case(
        name: str, b: int, t: int, e: int, d: int, m: int, a: int, masked: bool = True, **options: Any
    ) -> Case:
        b, t, e, d, m, a = vary_sizes(seed, b, t, e, d, m, a)
        generator = np.random.default_rng(seed + b + t)
        arguments: dict[str, Any] = {
            "previous": generator.normal(size=(b, e)),
            "state": generator.normal(size=(b, d)),
            "memory": generator.normal(size=(b, t, m)),
            "cell": TanhCell(generator.normal(size=(e + m + d, d)) / 2),
            "w": generator.normal(size=(d, a)),
            "u": generator.normal(size=(m, a)),
            "v": generator.normal(size=a) * 2,
            "mask": _padding_mask(generator, b, t) if masked else None,
        }
        return Case(name=name, arguments=arguments, sizes={"width": d, "memory": m, "inner": a}, **options)

    return [
        case("prime sizes", 3, 5, 2, 7, 11, 13, masked=False),
        case("a mask", 3, 5, 2, 7, 11, 13),
        case("equal widths", 2, 7, 5, 5, 5, 5, functions_only=True),
        case("one source step", 2, 1, 3, 5, 7, 2),
        case("a batch of one", 1, 5, 2, 7, 11, 13),
        case("gradients", 2, 5, 3, 5, 7, 2, gradients=("previous", "state", "memory")),
    ]


def _luong(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, e: int, d: int, m: int, masked: bool = True, **options: Any) -> Case:
        b, t, e, d, m = vary_sizes(seed, b, t, e, d, m)
        generator = np.random.default_rng(seed + b + t)
        arguments: dict[str, Any] = {
            "previous": generator.normal(size=(b, e)),
            "state": generator.normal(size=(b, d)),
            "memory": generator.normal(size=(b, t, m)),
            "cell": TanhCell(generator.normal(size=(e + d, d)) / 2),
            "w_a": generator.normal(size=(d, m)),
            "w_c": generator.normal(size=(m + d, d)) / 2,
            "mask": _padding_mask(generator, b, t) if masked else None,
        }
        return Case(name=name, arguments=arguments, sizes={"width": d, "memory": m}, **options)

    return [
        case("prime sizes", 3, 5, 2, 7, 11, masked=False),
        case("a mask", 3, 5, 2, 7, 11),
        case("equal widths", 2, 7, 5, 5, 5, functions_only=True),
        case("one source step", 2, 1, 3, 5, 7),
        case("a batch of one", 1, 5, 2, 7, 11),
        case("gradients", 2, 5, 3, 5, 7, gradients=("previous", "state", "memory")),
    ]


def _small_bahdanau() -> list[Case]:
    inputs = {"previous": [[1.0]], "state": [[-0.5]], "memory": [[[0.5], [-1.0]]]}
    arguments: dict[str, Any] = {name: np.array(value) for name, value in inputs.items()}
    arguments |= {"cell": TanhCell(np.ones((3, 1))), "w": np.eye(1), "u": np.eye(1), "v": np.array([2.0])}
    return [Case(name="by hand", arguments=arguments)]


def _small_luong() -> list[Case]:
    inputs = {
        "previous": [[1.0]],
        "state": [[-0.5]],
        "memory": [[[0.5], [-1.0]]],
        "w_a": [[2.0]],
        "w_c": [[1.0], [0.5]],
    }
    arguments: dict[str, Any] = {name: np.array(value) for name, value in inputs.items()}
    cell = {"cell": TanhCell(np.ones((2, 1)))}
    order = ("previous", "state", "memory", "cell", "w_a", "w_c")
    return [Case(name="by hand", arguments={name: (arguments | cell)[name] for name in order})]


EXERCISES = (
    Exercise(
        title="one step of Bahdanau's decoder",
        source="Bahdanau et al. 2015, appendix A.1.2 and A.2.2",
        solution=Solution.bahdanau_step,
        cases=_bahdanau,
        small_cases=_small_bahdanau,
        outputs=("state", "weights"),
        aliases=("bahdanau", "bahdanau_attention", "additive_attention"),
        module_arguments=("w", "u", "v"),
        constructor_sizes=("width", "memory", "inner"),
    ),
    Exercise(
        title="one step of Luong's decoder",
        source="Luong et al. 2015, section 3.1, score general",
        solution=Solution.luong_step,
        cases=_luong,
        small_cases=_small_luong,
        outputs=("output", "state", "weights"),
        aliases=("luong", "luong_attention"),
        module_arguments=("w_a", "w_c"),
        constructor_sizes=("width", "memory"),
    ),
)
