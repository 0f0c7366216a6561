"""Exercises: encoder and decoder layer, the Transformer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.course.exercises.exercise import Array, Case, Exercise, varied
from regard.course.exercises.sublayers import ATTENTION, FEED_FORWARD, HEAD, HEADS, INNER, WIDTH, drawn, sizes_of
from regard.course.reference import transformer as layers

STACK = 2
SOURCE_SIZE, TARGET_SIZE = 17, 13
CROSS = ("cross_q", "cross_k", "cross_v", "cross_o")
NORMS = ("gain_1", "shift_1", "gain_2", "shift_2", "gain_3", "shift_3")
ENCODER = (*ATTENTION, *FEED_FORWARD, *NORMS[:4])
DECODER = (*ATTENTION, *CROSS, *FEED_FORWARD, *NORMS)


def _padded(seed: int, batch: int, rows: int, length: int) -> Array:
    """Return a mask (B, rows, T) that hides the ends of all sentences but the last."""
    lengths = [*(max(1, length - 1 - (row + seed) % 3) for row in range(batch - 1)), length]
    if batch == 1:
        lengths = [max(1, length - 1)]
    seen = np.arange(length) < np.array(lengths)[:, None]
    return np.broadcast_to(seen[:, None], (batch, rows, length)).copy()


def _encoder(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, masked: bool = True, **more: Any) -> Case:
        b, t, heads, size = varied(seed, b, t, HEADS, WIDTH // HEADS)
        generator = np.random.default_rng(seed + b + t)
        arguments: dict[str, Any] = {
            "states": generator.normal(0.3, 1, size=(b, t, heads * size)),
            "parameters": drawn(generator, ENCODER, heads * size, INNER),
            "heads": heads,
            "mask": _padded(seed, b, t, t) if masked else None,
        }
        return Case(name=name, arguments=arguments, sizes=sizes_of(heads * size, heads), **more)

    return [
        case("prime sizes", 2, 5, masked=False),
        case("a mask", 3, 7),
        case("one step", 2, 1, masked=False),
        case("one of the batch alone", 1, 5, masked=False),
        case("gradients", 2, 3, slopes=("states", "parameters")),
    ]


def _decoder(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, ts: int, masked: bool = True, **more: Any) -> Case:
        b, t, ts, heads, size = varied(seed, b, t, ts, HEADS, WIDTH // HEADS)
        generator = np.random.default_rng(seed + b + t)
        arguments: dict[str, Any] = {
            "states": generator.normal(0.3, 1, size=(b, t, heads * size)),
            "memory": generator.normal(size=(b, ts, heads * size)),
            "parameters": drawn(generator, DECODER, heads * size, INNER),
            "heads": heads,
            "memory_mask": _padded(seed, b, t, ts) if masked else None,
        }
        return Case(name=name, arguments=arguments, sizes=sizes_of(heads * size, heads), **more)

    return [
        case("more source than target", 2, 5, 7, masked=False),
        case("a mask", 3, 5, 7),
        case("as long as its source", 2, 5, 5),
        case("one step", 2, 1, 5),
        case("one of the batch alone", 1, 5, 7, masked=False),
        case("gradients", 2, 3, 5, slopes=("states", "memory", "parameters")),
    ]


def _transformer(seed: int) -> list[Case]:
    def case(name: str, b: int, ts: int, tt: int, stack: int = STACK, **more: Any) -> Case:
        b, ts, tt = varied(seed, b, ts, tt)
        generator = np.random.default_rng(seed + b + tt)
        source = generator.integers(1, SOURCE_SIZE, (b, ts)) * _padded(seed, b, 1, ts)[:, 0]
        target = generator.integers(1, TARGET_SIZE, (b, tt)) * _padded(seed + 1, b, 1, tt)[:, 0]
        width = 10
        p: dict[str, Array] = {
            "source": generator.normal(size=(SOURCE_SIZE, width)) * 0.5,
            "target": generator.normal(size=(TARGET_SIZE, width)) * 0.5,
        }
        for side, names in (("encoder", ENCODER), ("decoder", DECODER)):
            for layer in range(stack):
                p |= {f"{side}.{layer}.{k}": v for k, v in drawn(generator, names, width, INNER).items()}
        p["w_out"] = generator.normal(size=(width, TARGET_SIZE)) * 0.5
        p["b_out"] = generator.normal(size=TARGET_SIZE) * 0.5
        arguments = {"source": source, "target": target, "parameters": p, "heads": 2, "layers": stack}
        sizes = {**sizes_of(width, 2), "source_size": SOURCE_SIZE, "target_size": TARGET_SIZE, "layers": stack}
        return Case(name=name, arguments=arguments, sizes=sizes, counts=target != 0, **more)

    return [
        case("padded source and target", 3, 7, 5),
        case("as long as its source", 2, 5, 5),
        case("three layers", 2, 3, 5, 3),
        case("one step", 2, 5, 1),
        case("one of the batch alone", 1, 7, 5),
        case("gradients", 2, 3, 2, slopes=("parameters",)),
    ]


def _plain(names: Sequence[str], width: int) -> dict[str, Array]:
    """Return parameters that one can work with by hand."""
    found: dict[str, Array] = {}
    for name in names:
        kind = name.partition("_")[0]
        if kind in ("b", "gain", "shift"):
            found[name] = np.full(width, {"b": 0.5, "gain": 2.0, "shift": 1.0}[kind])
        else:
            found[name] = np.eye(width)
    return found


STATES = np.array([[[1.0, 0.0, 3.0, 0.0], [0.0, 2.0, 0.0, 1.0]]])
MEMORY = np.array([[[0.0, 0.0, 2.0, 1.0], [3.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]])


def _small_encoder() -> list[Case]:
    arguments = {"states": STATES, "parameters": _plain(ENCODER, 4), "heads": 2, "mask": None}
    return [Case(name="by hand", arguments=arguments)]


def _small_decoder() -> list[Case]:
    arguments = {"states": STATES, "memory": MEMORY, "parameters": _plain(DECODER, 4), "heads": 2}
    return [Case(name="by hand", arguments={**arguments, "memory_mask": np.array([[[True, True, False]] * 2])})]


def _small_transformer() -> list[Case]:
    p: dict[str, Array] = {"source": np.eye(3, 4), "target": np.eye(3, 4)}
    p |= {f"encoder.0.{name}": value for name, value in _plain(ENCODER, 4).items()}
    p |= {f"decoder.0.{name}": value for name, value in _plain(DECODER, 4).items()}
    p |= {"w_out": np.eye(4, 3), "b_out": np.full(3, 0.5)}
    arguments = {"source": np.array([[1, 2, 0]]), "target": np.array([[2, 1]]), "parameters": p, "heads": 2}
    return [Case(name="by hand", arguments={**arguments, "layers": 1})]


ENCODING = (
    HEAD.format(title="an encoder layer", where="section 3.1 and figure 1, left")
    + '''
def encoder_layer(states, parameters, heads, mask=None):
    """Return LayerNorm(x + Sublayer(x)) of self-attention, and then of the feed-forward network.

    states (B, T, D); mask (B, T, T), True = may be attended. Returns (B, T, D).
    parameters: a dictionary with w_q, w_k, w_v, w_o (D, D); w_1 (D, F), b_1, w_2 (F, D), b_2; and gain_1,
    shift_1, gain_2, shift_2 (D,) of both norms, which divide by √(variance + 1e-5).

    Or as a module: class EncoderLayer(nn.Module): __init__(self, width, heads, inner),
    forward(self, states, mask=None)
    """
    raise NotImplementedError
'''
)
DECODING = (
    HEAD.format(title="a decoder layer", where="section 3.1 and figure 1, right")
    + '''
def decoder_layer(states, memory, parameters, heads, memory_mask=None):
    """Return LayerNorm(x + Sublayer(x)) of self-attention, of attention to the memory, of the feed-forward
    network.

    states (B, T, D), of which none may see a later one; memory (B, Ts, D); memory_mask (B, T, Ts), True = may be
    attended. Returns (B, T, D).
    parameters: those of the encoder layer, and cross_q, cross_k, cross_v, cross_o (D, D), gain_3, shift_3 (D,).

    Or as a module: class DecoderLayer(nn.Module): __init__(self, width, heads, inner),
    forward(self, states, memory, memory_mask=None)
    """
    raise NotImplementedError
'''
)
WHOLE = (
    HEAD.format(title="the Transformer", where="figure 1")
    + '''
def transformer(source, target, parameters, heads, layers):
    """Return logits (B, Tt, V) of the next token after each step of the target.

    source (B, Ts) and target (B, Tt): numbers of tokens, with padding 0 at the end; the target comes shifted
    already. Embeddings times √D plus sinusoidal positions; encoder layers, in which the source's padding is not
    attended; decoder layers, which do not attend to it either; one linear layer. What comes back for padding does
    not count.
    parameters: source (Vs, D) and target (V, D), the embeddings; encoder.0.w_q and so on as in the exercises
    before, decoder.0.cross_q and so on; w_out (D, V), b_out (V,), which the target's embedding does not share.

    Or as a module: class Transformer(nn.Module):
    __init__(self, source_size, target_size, width, heads, inner, layers), forward(self, source, target)
    """
    raise NotImplementedError
'''
)

EXERCISES = (
    Exercise(
        name="encoder_layer",
        title="an encoder layer",
        stub=ENCODING,
        reference=layers.encoder_layer,
        cases=_encoder,
        small=_small_encoder,
        outputs=("states",),
        names=("transformer_encoder_layer", "encoder_block"),
        held=("parameters", "heads"),
        builds=("width", "heads", "inner"),
    ),
    Exercise(
        name="decoder_layer",
        title="a decoder layer",
        stub=DECODING,
        reference=layers.decoder_layer,
        cases=_decoder,
        small=_small_decoder,
        outputs=("states",),
        names=("transformer_decoder_layer", "decoder_block"),
        held=("parameters", "heads"),
        builds=("width", "heads", "inner"),
    ),
    Exercise(
        name="transformer",
        title="the Transformer",
        stub=WHOLE,
        reference=layers.transformer,
        cases=_transformer,
        small=_small_transformer,
        outputs=("logits",),
        names=("transformer_model",),
        held=("parameters", "heads", "layers"),
        builds=("source_size", "target_size", "width", "heads", "inner", "layers"),
    ),
)
