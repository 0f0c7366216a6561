"""Exercises: encoder layer, decoder layer, the Transformer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.course.exercises.exercise import Exercise, vary_sizes
from regard.course.exercises.sublayers import (
    ATTENTION,
    FEED_FORWARD,
    HEADS,
    INNER,
    WIDTH,
    constructor_arguments,
    draw_parameters,
)
from regard.course.inputs import Array, Case
from regard.course.mistakes import Solution

STACK = 2
SOURCE_SIZE, TARGET_SIZE = 17, 13
CROSS = ("cross_q", "cross_k", "cross_v", "cross_o")
NORMS = ("gain_1", "shift_1", "gain_2", "shift_2", "gain_3", "shift_3")
ENCODER = (*ATTENTION, *FEED_FORWARD, *NORMS[:4])
DECODER = (*ATTENTION, *CROSS, *FEED_FORWARD, *NORMS)


def _padding_mask(seed: int, batch: int, rows: int, length: int) -> Array:
    """Return a mask (B, rows, T) that hides the padding. The last sentence has no padding."""
    lengths = [*(max(1, length - 1 - (row + seed) % 3) for row in range(batch - 1)), length]
    if batch == 1:
        lengths = [max(1, length - 1)]
    visible = np.arange(length) < np.array(lengths)[:, None]
    return np.broadcast_to(visible[:, None], (batch, rows, length)).copy()


def _encoder(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, masked: bool = True, **options: Any) -> Case:
        b, t, heads, size = vary_sizes(seed, b, t, HEADS, WIDTH // HEADS)
        generator = np.random.default_rng(seed + b + t)
        arguments: dict[str, Any] = {
            "states": generator.normal(0.3, 1, size=(b, t, heads * size)),
            "parameters": draw_parameters(generator, ENCODER, heads * size, INNER),
            "heads": heads,
            "mask": _padding_mask(seed, b, t, t) if masked else None,
        }
        return Case(name=name, arguments=arguments, sizes=constructor_arguments(heads * size, heads), **options)

    return [
        case("prime sizes", 2, 5, masked=False),
        case("a mask", 3, 7),
        case("one step", 2, 1, masked=False),
        case("a batch of one", 1, 5, masked=False),
        case("gradients", 2, 3, gradients=("states", "parameters")),
    ]


def _decoder(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, ts: int, masked: bool = True, **options: Any) -> Case:
        b, t, ts, heads, size = vary_sizes(seed, b, t, ts, HEADS, WIDTH // HEADS)
        generator = np.random.default_rng(seed + b + t)
        arguments: dict[str, Any] = {
            "states": generator.normal(0.3, 1, size=(b, t, heads * size)),
            "memory": generator.normal(size=(b, ts, heads * size)),
            "parameters": draw_parameters(generator, DECODER, heads * size, INNER),
            "heads": heads,
            "memory_mask": _padding_mask(seed, b, t, ts) if masked else None,
        }
        return Case(name=name, arguments=arguments, sizes=constructor_arguments(heads * size, heads), **options)

    return [
        case("source longer than target", 2, 5, 7, masked=False),
        case("a mask", 3, 5, 7),
        case("target as long as the source", 2, 5, 5),
        case("one step", 2, 1, 5),
        # A single weight is always 1, so this input separates mistakes in weights from all others.
        case("one source step", 2, 1, 1, masked=False),
        case("a batch of one", 1, 5, 7, masked=False),
        case("gradients", 2, 3, 5, gradients=("states", "memory", "parameters")),
    ]


def _transformer(seed: int) -> list[Case]:
    def case(name: str, b: int, ts: int, tt: int, stack: int = STACK, **options: Any) -> Case:
        b, ts, tt = vary_sizes(seed, b, ts, tt)
        generator = np.random.default_rng(seed + b + tt)
        source = generator.integers(1, SOURCE_SIZE, (b, ts)) * _padding_mask(seed, b, 1, ts)[:, 0]
        target = generator.integers(1, TARGET_SIZE, (b, tt)) * _padding_mask(seed + 1, b, 1, tt)[:, 0]
        width = 10
        p: dict[str, Array] = {
            "source": generator.normal(size=(SOURCE_SIZE, width)) * 0.5,
            "target": generator.normal(size=(TARGET_SIZE, width)) * 0.5,
        }
        for side, names in (("encoder", ENCODER), ("decoder", DECODER)):
            for layer in range(stack):
                p |= {
                    f"{side}.{layer}.{k}": v for k, v in draw_parameters(generator, names, width, INNER).items()
                }
        p["w_out"] = generator.normal(size=(width, TARGET_SIZE)) * 0.5
        p["b_out"] = generator.normal(size=TARGET_SIZE) * 0.5
        arguments = {"source": source, "target": target, "parameters": p, "heads": 2, "layers": stack}
        sizes = {
            **constructor_arguments(width, 2),
            "source_size": SOURCE_SIZE,
            "target_size": TARGET_SIZE,
            "layers": stack,
        }
        return Case(name=name, arguments=arguments, sizes=sizes, valid_steps=target != 0, **options)

    return [
        case("padded source and target", 3, 7, 5),
        case("target as long as the source", 2, 5, 5),
        case("three layers", 2, 3, 5, 3),
        case("one step", 2, 5, 1),
        case("a batch of one", 1, 7, 5),
        case("gradients", 2, 3, 2, gradients=("parameters",)),
    ]


def _simple_parameters(names: Sequence[str], width: int) -> dict[str, Array]:
    """Return parameters for calculations by hand: identity matrices, and equal biases, gains and shifts."""
    parameters: dict[str, Array] = {}
    for name in names:
        kind = name.partition("_")[0]
        if kind in ("b", "gain", "shift"):
            parameters[name] = np.full(width, {"b": 0.5, "gain": 2.0, "shift": 1.0}[kind])
        else:
            parameters[name] = np.eye(width)
    return parameters


STATES = np.array([[[1.0, 0.0, 3.0, 0.0], [0.0, 2.0, 0.0, 1.0]]])
MEMORY = np.array([[[0.0, 0.0, 2.0, 1.0], [3.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]])


def _small_encoder() -> list[Case]:
    arguments = {"states": STATES, "parameters": _simple_parameters(ENCODER, 4), "heads": 2, "mask": None}
    return [Case(name="by hand", arguments=arguments)]


def _small_decoder() -> list[Case]:
    arguments = {"states": STATES, "memory": MEMORY, "parameters": _simple_parameters(DECODER, 4), "heads": 2}
    return [Case(name="by hand", arguments={**arguments, "memory_mask": np.array([[[True, True, False]] * 2])})]


def _small_transformer() -> list[Case]:
    p: dict[str, Array] = {"source": np.eye(3, 4), "target": np.eye(3, 4)}
    p |= {f"encoder.0.{name}": value for name, value in _simple_parameters(ENCODER, 4).items()}
    p |= {f"decoder.0.{name}": value for name, value in _simple_parameters(DECODER, 4).items()}
    p |= {"w_out": np.eye(4, 3), "b_out": np.full(3, 0.5)}
    arguments = {"source": np.array([[1, 2, 0]]), "target": np.array([[2, 1]]), "parameters": p, "heads": 2}
    return [Case(name="by hand", arguments={**arguments, "layers": 1})]


EXERCISES = (
    Exercise(
        title="an encoder layer",
        source="Vaswani et al. 2017, section 3.1 and figure 1, left",
        solution=Solution.encoder_layer,
        cases=_encoder,
        small_cases=_small_encoder,
        outputs=("states",),
        aliases=("transformer_encoder_layer", "encoder_block"),
        module_arguments=("parameters", "heads"),
        constructor_sizes=("width", "heads", "inner"),
    ),
    Exercise(
        title="a decoder layer",
        source="Vaswani et al. 2017, section 3.1 and figure 1, right",
        solution=Solution.decoder_layer,
        cases=_decoder,
        small_cases=_small_decoder,
        outputs=("states",),
        aliases=("transformer_decoder_layer", "decoder_block"),
        module_arguments=("parameters", "heads"),
        constructor_sizes=("width", "heads", "inner"),
    ),
    Exercise(
        title="the Transformer",
        source="Vaswani et al. 2017, figure 1",
        solution=Solution.transformer,
        cases=_transformer,
        small_cases=_small_transformer,
        outputs=("logits",),
        aliases=("transformer_model",),
        module_arguments=("parameters", "heads", "layers"),
        constructor_sizes=("source_size", "target_size", "width", "heads", "inner", "layers"),
    ),
)
