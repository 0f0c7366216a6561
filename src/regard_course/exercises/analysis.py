"""Exercises on what happens inside a model, and on which outputs to trust: logit lens, sinks, grokking, doubt."""

from collections.abc import Callable

import numpy as np

from regard_course.exercises.draws import Draw, draw_cases, fixed, row
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import Array
from regard_course.mistakes.solution import Solution


def _draw_waves(draw: Draw) -> Array:
    """Return cosine and sine of two random frequencies as embeddings (11, 4)."""
    frequencies = 1 + draw.generator.permutation(5)[:2]
    angles = 2 * np.pi * np.outer(np.arange(11), frequencies) / 11
    return 0.2 + np.concatenate([np.cos(angles), 0.5 * np.sin(angles)], 1)


def _attention(sharpness: float) -> Callable[[Draw], Array]:
    """Return the rule for weights (H, Tt, Ts)."""

    def draw_weights(draw: Draw) -> Array:
        powers = np.exp(sharpness * draw("h t s"))
        return np.asarray(powers / powers.sum(-1, keepdims=True))

    return draw_weights


def _draw_doubts(draw: Draw) -> Array:
    """Return the doubts of n translations, as multiples of 1 / S."""
    steps = draw.size("S")
    return np.asarray(np.round(steps * draw.generator.random(draw.size("n"))) / steps)


def _draw_faulty(draw: Draw) -> Array:
    """Return 1 for F of the translations, which have more doubt than the others on average."""
    noisy = draw.arguments["doubts"] + 0.3 * draw("n")
    return np.asarray(np.argsort(np.argsort(-noisy)) < draw.size("F")).astype(int)


EXERCISES = (
    Exercise(
        title="the logit lens",
        source="nostalgebraist 2020",
        solution=Solution.logit_lens,
        cases=draw_cases(
            "l t d v",
            {
                # Each block adds to the state, so later states are larger.
                "states": lambda draw: 0.3 + draw("l t d").cumsum(0),
                "norm": lambda draw: 1 + draw("d"),
                "output": "v d",
            },
            row("prime sizes", 3, 5, 7, 11),
            row("one step", 5, 1, 3, 13),
            row("as many tokens as dimensions", 2, 3, 5, 5),
            row("only the embeddings", 1, 5, 3, 7),
            row("gradients", 2, 3, 5, 7, gradients=("states", "norm", "output")),
            fixed(
                "by hand",
                states=[[[2.0, 0.0]], [[2.0, 2.0]], [[2.0, 6.0]]],
                norm=[1.0, 2.0],
                output=[[1.0, 0.0], [0.0, 1.0]],
            ),
        ),
        outputs=("probabilities",),
        aliases=("lens",),
    ),
    Exercise(
        title="a softmax with a sink",
        source="Miller 2023; Xiao et al. 2024, section 3.3",
        solution=Solution.sink_softmax,
        cases=draw_cases(
            "b h q k",
            {"scores": "b h q k", "sink": "h"},
            row("prime sizes", 2, 3, 5, 7),
            row("one key", 2, 5, 3, 1),
            row("as many queries as heads", 2, 3, 3, 5),
            row(
                "large scores",
                *(2, 3, 5, 7),
                scores=lambda draw: 1000 * draw("b h q k"),
                sink=lambda draw: 1000 * draw("h"),
            ),
            row("gradients", 2, 3, 2, 5, gradients=("scores", "sink")),
            fixed("by hand", scores=np.log([[[[2.0, 4.0], [1.0, 1.0]]]]), sink=np.log([2.0])),
        ),
        outputs=("weights",),
        aliases=("softmax_with_sink", "softmax_one", "softmax_off_by_one"),
    ),
    Exercise(
        title="the frequencies of embeddings",
        source="Nanda et al. 2023, section 4.1",
        solution=Solution.fourier_power,
        cases=draw_cases(
            "P d",
            {"embeddings": lambda draw: 0.5 + draw("P d")},
            row("an odd modulus", 13, 5),
            row("an even modulus", 12, 7),
            row("as many numbers as dimensions", 9, 9),
            row("one dimension", 10, 1),
            row("two waves", 11, 4, embeddings=_draw_waves),
            fixed("by hand", embeddings=[[1.0], [3.0], [1.0], [-1.0]]),
        ),
        outputs=("shares",),
        aliases=("fourier_share", "fourier_spectrum"),
    ),
    Exercise(
        title="the distance of attention from uniform",
        source="Guerreiro et al. 2023, section 4.1",
        solution=Solution.distance_from_uniform,
        cases=draw_cases(
            "h t s",
            {"attention": _attention(1.0)},
            row("two heads", 2, 5, 7),
            row("one head, sharp", 1, 7, 3, attention=_attention(4.0)),
            row("as many rows as source tokens", 3, 5, 5, attention=_attention(2.0)),
            row("one row", 2, 1, 11, attention=_attention(3.0)),
            fixed(
                "by hand", attention=[[[0.5, 0.5, 0.0, 0.0]] * 2, [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]]
            ),
        ),
        outputs=("distance",),
        aliases=("wass_to_unif", "wasserstein_to_uniform"),
    ),
    Exercise(
        title="the AUROC of a doubt",
        source="Fawcett 2006, section 7",
        solution=Solution.auroc,
        cases=draw_cases(
            "n F S",
            {"doubts": _draw_doubts, "faulty": _draw_faulty},
            row("no ties", 23, 9, 10**6),
            row("many ties", 29, 11, 4),
            row("one fault", 19, 1, 5),
            row("mostly faults", 17, 14, 3),
            fixed("equal doubts", doubts=[0.5] * 5, faulty=[1, 0, 0, 1, 0]),
            fixed("by hand", doubts=[0.9, 0.4, 0.4, 0.1], faulty=[1, 0, 1, 0]),
        ),
        outputs=("auroc",),
        aliases=("roc_auc", "area_under_the_curve"),
    ),
)
