"""Common parts of all figures for papers: options, measured inputs, and caption texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.errors import InputError, shorten
from regard.interpret.estimates import describe_interval, estimate, resample_counts
from regard.viz.attention_map import AttentionMap
from regard.viz.labels import answer_text, intervention_lines
from regard.viz.maps import LayerKind
from regard.viz.subject import Subject

SAMPLES = 100
"""Number of unseen inputs over which weights are averaged."""
SHORTENED = 300
"""Number of characters that a caption shows from an input."""


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """Options of `regard.plot`; a kind of figure ignores the options that it does not need."""

    inputs: Sequence[Any]
    layer: str | None
    head: int | None
    samples: int | None
    seed: int
    width: float
    dimensions: int
    length: int


def describe(subject: Subject[Any]) -> str:
    about = subject.about()
    steps = "" if about["step"] is None else f", {about['step']:,} training steps"
    return f"{subject.name} ({about['kind']}{steps})"


def is_external(subject: Subject[Any]) -> bool:
    """Return whether a subject uses inputs from the user instead of drawing inputs."""
    return hasattr(subject, "over")


def one_map(subject: Subject[Any], options: FigureOptions) -> tuple[AttentionMap, str]:
    """Return the attention map of the first input or of a drawn input, and its caption text."""
    if options.inputs:
        attention, drawn = subject.attend(options.inputs[0]), ""
    else:
        if not subject.about()["draws"]:
            raise InputError(f"{subject.name} cannot draw an input: give --text (in Python inputs=[...])")
        attention = subject.attend(seed=options.seed)
        drawn = "" if is_external(subject) else f", drawn with seed {options.seed}"
    if not attention.layers:
        _ = attention.cross  # raises an error with advice
    return attention, f"the input {shorten(attention.input, SHORTENED)}{drawn}"


def remarks(attention: AttentionMap) -> list[str]:
    """Return sentences on the answer, on interventions, and on special properties of the input."""
    lines = [] if attention.prediction is None else [f"Prediction: {answer_text(attention.prediction)}."]
    if attention.prediction is not None and attention.truth is not None:
        lines.append(f"Right answer: {answer_text(attention.truth)}.")
    sides = [layer.rows.side for layer in attention.layers.values() if layer.rows is not None]
    if sides:
        lines.append(
            f"Because the input is long, each weight is the largest weight in a square of {max(sides)} steps."
        )
    lines += [f"{line}." for line in intervention_lines(attention)]
    return [*lines, *([f"Note: {attention.note}."] if attention.note else [])]


def many_maps(subject: Subject[Any], options: FigureOptions) -> tuple[list[AttentionMap], str]:
    """Return the attention maps of the user's inputs, or of unseen inputs, and their caption text.

    Raises `InputError` for a map that contains only the largest weight of each square of steps, and for a model
    without attention.
    """
    words = ""
    if options.inputs:
        maps = [subject.attend(text) for text in options.inputs]
    else:
        inputs = subject.unseen(options.samples or SAMPLES, options.seed)
        maps = [subject.look(sample) for sample in inputs]
        words = "" if is_external(subject) else f" not used in training, drawn with seed {options.seed}"
    if any(layer.rows is not None for attention in maps for layer in attention.layers.values()):
        raise InputError("the figure needs exact weights, for which an input is too long: give shorter inputs")
    if not maps[0].layers:
        _ = maps[0].cross  # raises an error with advice
    return maps, f"over {counted(len(maps))}{words}"


def counted(inputs: int) -> str:
    return f"{inputs:,} input{'s' if inputs != 1 else ''}"


def interval_words(samples: int, heads: int) -> str:
    if samples < 2:
        return "A single input has no intervals."
    return f"The data has, for each head, the {describe_interval(samples)}, without correction for {heads} heads."


def head_rows(values: Mapping[str, Sequence[np.ndarray]], name: str, seed: int) -> list[dict[str, Any]]:
    """Return a row for each head, with the mean and the interval over inputs.

    `values`: by layer, for each input the values of all heads (H), NaN where they are undefined. `name`: column.
    """
    rows = []
    for layer, per_input in values.items():
        draws = resample_counts(len(per_input), seed)
        for head, samples in enumerate(np.stack(per_input, axis=1)):
            mean, known = float(np.nanmean(samples)), estimate(samples, draws)
            low, high = (None, None) if known is None else (known.low, known.high)
            rows.append({"layer": layer, "head": head, name: mean, "low": low, "high": high})
    return rows


def layer_labels(layers: Mapping[str, LayerKind]) -> dict[str, str]:
    """Return short labels of layers by name: the number of the layer, with its kind if the kinds differ.

    >>> layer_labels({"encoder.0.self_attention": "encoder", "cross": "cross"})
    {'encoder.0.self_attention': 'encoder', 'cross': 'cross'}
    """
    kinds = list(layers.values())
    labels = {}
    for index, (name, kind) in enumerate(layers.items()):
        number = [str(kinds[:index].count(kind))] if kinds.count(kind) > 1 else []
        labels[name] = " ".join([*([kind] if len(set(kinds)) > 1 or not number else []), *number])
    return labels


def rounded(weights: np.ndarray) -> np.ndarray:
    return np.asarray(weights, dtype=np.float64).round(6)
