"""Exercises: encoder layer, decoder layer, the Transformer."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from regard_course.exercises.draws import Draw, draw_cases, fixed, number, padding_mask, parameters, row
from regard_course.exercises.exercise import Exercise
from regard_course.exercises.sublayers import ATTENTION, CONSTRUCTOR, FEED_FORWARD, INNER, WIDTH
from regard_course.inputs import PADDING, Array, Case
from regard_course.mistakes.solution import Solution

SOURCE_SIZE, TARGET_SIZE = 17, 13
MODEL = {"width": "10", "heads": "2", "inner": INNER}
CROSS = ("cross_q", "cross_k", "cross_v", "cross_o")
NORMS = ("gain_1", "shift_1", "gain_2", "shift_2", "gain_3", "shift_3")
ENCODER = (*ATTENTION, *FEED_FORWARD, *NORMS[:4])
DECODER = (*ATTENTION, *CROSS, *FEED_FORWARD, *NORMS)


def _states(letters: str) -> Callable[[Draw], Array]:
    return lambda draw: 0.3 + draw(f"{letters} {WIDTH}")


def _tokens(letters: str, size: int) -> Callable[[Draw], Array]:
    """Return the rule for token numbers (B, T) with padding."""
    return lambda draw: draw.generator.integers(1, size, draw.shape(letters)) * padding_mask(letters)(draw)


def _draw_model(draw: Draw) -> dict[str, Array]:
    """Return the parameters of a Transformer."""
    width = MODEL["width"]
    model = {"source": draw(f"{SOURCE_SIZE} {width}") / 2, "target": draw(f"{TARGET_SIZE} {width}") / 2}
    for side, names in (("encoder", ENCODER), ("decoder", DECODER)):
        for layer in range(draw.size("N")):
            weights = parameters(names, width, INNER)(draw)
            model |= {f"{side}.{layer}.{name}": value for name, value in weights.items()}
    return {**model, "w_out": draw(f"{width} {TARGET_SIZE}") / 2, "b_out": draw(str(TARGET_SIZE)) / 2}


def _without_padding(cases: Callable[[int], list[Case]]) -> Callable[[int], list[Case]]:
    """Return the inputs of the Transformer, whose logits of padding are not compared."""
    return lambda seed: [
        dataclasses.replace(case, valid_steps=case.arguments["target"] != PADDING) for case in cases(seed)
    ]


def _simple_parameters(names: Sequence[str], prefix: str = "") -> dict[str, Array]:
    """Return parameters for calculations by hand: identity matrices, and equal biases, gains and shifts."""
    values = {"b": 0.5, "gain": 2.0, "shift": 1.0}
    kinds = {name: name.partition("_")[0] for name in names}
    return {
        prefix + name: np.full(4, values[kind]) if kind in values else np.eye(4) for name, kind in kinds.items()
    }


STATES = [[[1.0, 0.0, 3.0, 0.0], [0.0, 2.0, 0.0, 1.0]]]
MEMORY = [[[0.0, 0.0, 2.0, 1.0], [3.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]]
SMALL_ENCODER = fixed("by hand", states=STATES, parameters=_simple_parameters(ENCODER), heads=2, mask=None)
SMALL_DECODER = fixed(
    "by hand",
    states=STATES,
    memory=MEMORY,
    parameters=_simple_parameters(DECODER),
    heads=2,
    memory_mask=[[[True, True, False]] * 2],
)
SMALL_TRANSFORMER = fixed(
    "by hand",
    source=[[1, 2, 0]],
    target=[[2, 1]],
    parameters={
        "source": np.eye(3, 4),
        "target": np.eye(3, 4),
        **_simple_parameters(ENCODER, "encoder.0."),
        **_simple_parameters(DECODER, "decoder.0."),
        "w_out": np.eye(4, 3),
        "b_out": np.full(3, 0.5),
    },
    heads=2,
    layers=1,
)
EXERCISES = (
    Exercise(
        title="an encoder layer",
        source="Vaswani et al. 2017, section 3.1 and figure 1, left",
        solution=Solution.encoder_layer,
        cases=draw_cases(
            "b t h s",
            {
                "states": _states("b t"),
                "parameters": parameters(ENCODER, WIDTH, INNER),
                "heads": number("h"),
                "mask": padding_mask("b t t"),
            },
            row("prime sizes", 2, 5, 3, 5, mask=None),
            row("a mask", 3, 7, 3, 5),
            row("one step", 2, 1, 3, 5, mask=None),
            row("a batch of one", 1, 5, 3, 5, mask=None),
            row("gradients", 2, 3, 3, 5, gradients=("states", "parameters")),
            constructor=CONSTRUCTOR,
        ),
        small_cases=lambda: [SMALL_ENCODER],
        outputs=("states",),
        aliases=("transformer_encoder_layer", "encoder_block"),
        module_arguments=("parameters", "heads"),
        constructor_sizes=("width", "heads", "inner"),
    ),
    Exercise(
        title="a decoder layer",
        source="Vaswani et al. 2017, section 3.1 and figure 1, right",
        solution=Solution.decoder_layer,
        cases=draw_cases(
            "b t m h s",
            {
                "states": _states("b t"),
                "memory": f"b m {WIDTH}",
                "parameters": parameters(DECODER, WIDTH, INNER),
                "heads": number("h"),
                "memory_mask": padding_mask("b t m"),
            },
            row("source longer than target", 2, 5, 7, 3, 5, memory_mask=None),
            row("a mask", 3, 5, 7, 3, 5),
            row("target as long as the source", 2, 5, 5, 3, 5),
            row("one step", 2, 1, 5, 3, 5),
            # A single weight is always 1, so this input separates mistakes in weights from all others.
            row("one source step", 2, 1, 1, 3, 5, memory_mask=None),
            row("a batch of one", 1, 5, 7, 3, 5, memory_mask=None),
            row("gradients", 2, 3, 5, 3, 5, gradients=("states", "memory", "parameters")),
            constructor=CONSTRUCTOR,
        ),
        small_cases=lambda: [SMALL_DECODER],
        outputs=("states",),
        aliases=("transformer_decoder_layer", "decoder_block"),
        module_arguments=("parameters", "heads"),
        constructor_sizes=("width", "heads", "inner"),
    ),
    Exercise(
        title="the Transformer",
        source="Vaswani et al. 2017, figure 1",
        solution=Solution.transformer,
        cases=_without_padding(
            draw_cases(
                "b m t N",
                {
                    "source": _tokens("b m", SOURCE_SIZE),
                    "target": _tokens("b t", TARGET_SIZE),
                    "parameters": _draw_model,
                    "heads": int(MODEL["heads"]),
                    "layers": number("N"),
                },
                row("padded source and target", 3, 7, 5, 2),
                row("target as long as the source", 2, 5, 5, 2),
                row("three layers", 2, 3, 5, 3),
                row("one step", 2, 5, 1, 2),
                row("a batch of one", 1, 7, 5, 2),
                row("gradients", 2, 3, 2, 2, gradients=("parameters",)),
                constructor={
                    "source_size": str(SOURCE_SIZE),
                    "target_size": str(TARGET_SIZE),
                    "layers": "N",
                    **MODEL,
                },
            )
        ),
        small_cases=lambda: [SMALL_TRANSFORMER],
        outputs=("logits",),
        aliases=("transformer_model",),
        module_arguments=("parameters", "heads", "layers"),
        constructor_sizes=("source_size", "target_size", "width", "heads", "inner", "layers"),
    ),
)
