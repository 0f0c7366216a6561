"""Figures of measured values: importance, entropy, positions, learning curves, embeddings."""

import re
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from regard.attention.positions import LearnedPositions, Rotary, Sinusoidal
from regard.errors import InputError, check_range
from regard.interpret.figure_inputs import (
    FigureOptions,
    counted,
    describe,
    head_rows,
    interval_words,
    is_external,
    layer_labels,
    many_maps,
    rounded,
)
from regard.interpret.importance import head_importance
from regard.viz.plots import (
    ValueInterval,
    draw_by_layer,
    draw_head_matrix,
    draw_intervals,
    draw_learning,
    draw_points,
    draw_positions,
    drawn_dimensions,
    head_table,
    make_panels,
    position_scale,
    spread_labels,
    token_labels,
)
from regard.viz.subject import Subject

RANKED = 12
"""Number of heads that are drawn with their intervals."""
LABELLED = 100
"""Largest size of a vocabulary for which all tokens are labeled."""
GREY = 3000
"""Number of tokens that are drawn without labels."""
POINTS_PER_POSITION, MOST_POINTS = 40, 40_000
"""Number of points of a wave between two positions, and in total."""
POSITION_TABLE = re.compile(r"(^|\.)(position_embeddings?|pos_embed|embed_positions|wpe)(\.weight)?$")
CURVE_NAMES = {
    "loss": "loss (nats)",
    "valid_loss": "validation loss (nats)",
    "exact_match": "exact match (share)",
    "bleu": "BLEU of the validation text",
    "chrf": "chrF of the validation text",
    "valid_perplexity": "perplexity of the validation text",
}


def importance_figure(subject: Subject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the loss increase when each head is disabled, with intervals for the largest increases."""
    if options.inputs:
        raise InputError("the importance of a run's heads is measured on inputs that the run draws: omit --text")
    importance = head_importance(subject, samples=options.samples, seed=options.seed)
    kinds = {layer.name: layer.kind for layer in subject.layers}
    labels = layer_labels({name: kinds[name] for name in importance.added})
    rows, intervals, sure = [], [], {name: [0.0] * len(row) for name, row in importance.added.items()}
    for value, name, head in importance.ranked()[::-1]:
        known = importance.intervals[name][head]
        low, high = (None, None) if known is None else (known.low, known.high)
        rows.append({"layer": name, "head": head, "added": value, "low": low, "high": high})
        ends = (value, value) if known is None else (known.low, known.high)
        intervals.append(ValueInterval(f"{labels[name]}, {head}", value, *ends))
        sure[name][head] = known is not None and not known.low <= 0 <= known.high
    nats = " (nats)" if "loss" in importance.measure else ""
    drawn = "" if is_external(subject) else f" not used in training, drawn with seed {options.seed}"
    caption = [
        f"Importance of the heads of {describe(subject)}: increase of the {importance.measure}{nats} when a head"
        f" is off (Michel et al. 2019), mean over {counted(importance.samples)}{drawn}. With all heads on,"
        f" the {importance.measure} is {importance.loss:.4f}.",
        f"Beside the matrix: the {len(intervals[:RANKED])} largest increases of {len(rows)} heads.",
        "Dots in the matrix mark intervals that exclude 0." if importance.samples > 1 else "",
        interval_words(importance.samples, len(rows)),
    ]

    def draw() -> Figure:
        height = min(0.6 + max(0.14 * len(labels), 0.115 * len(intervals[:RANKED])), 8.0)
        figure, (matrix, whiskers) = make_panels(2, options.width, height)
        table = {labels[name]: values for name, values in importance.added.items()}
        marks = np.nan_to_num(head_table(sure)) > 0
        figure.colorbar(draw_head_matrix(matrix, table, signed=True, marks=marks), ax=matrix)
        draw_intervals(
            whiskers, intervals[:RANKED], f"added to the {importance.measure.split(' against')[0]}{nats}"
        )
        whiskers.set_ylabel("layer, head")
        return figure

    return {"caption": caption, "data": rows, "draw": draw}


def entropy_figure(subject: Subject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the mean entropy of each head's weights by layer."""
    maps, words = many_maps(subject, options)
    entropies: dict[str, list[np.ndarray]] = {}
    uniform: dict[str, list[float]] = {}
    for name, layer in (item for attention in maps for item in attention.layers.items()):
        if (layer.weights < 0).any():
            raise InputError(
                f"weights of layer {name} are negative, so they have no entropy: choose another figure"
            )
        values, even = row_entropy(layer.weights)
        entropies.setdefault(name, []).append(values)
        uniform.setdefault(name, []).append(even)
    labels = layer_labels({name: layer.kind for attention in maps for name, layer in attention.layers.items()})
    rows = head_rows(entropies, "entropy", options.seed)
    table = {labels[name]: [row["entropy"] for row in rows if row["layer"] == name] for name in entropies}
    means = [float(np.mean(values)) for values in uniform.values()]
    caption = [
        f"Entropy of the attention weights of {describe(subject)} by layer, in nats: each dot is a head, mean"
        f" over queries, and {words}. 0: all weight on one key. Dashed: uniform attention to the same keys.",
        interval_words(len(maps), len(rows)),
    ]
    draw = lambda: draw_by_layer(table, means, options.width, "entropy (nats)", "uniform")  # noqa: E731
    return {"caption": caption, "data": rows, "draw": draw}


def row_entropy(weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the entropy of each head (H), and of uniform attention to the same keys: means over queries, in
    nats.

    `weights`: (H, Tq, Tk). Queries without weights are left out. A key counts as visible to a query if a head
    gives it weight.

    >>> row_entropy(np.array([[[0.5, 0.5]]]))
    (array([0.69314718]), 0.6931471805599453)
    """
    weights = weights.astype(np.float64)
    logarithms = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    visible = (weights > 0).any(0).sum(1)
    rows = visible > 0
    entropy = -(weights * logarithms).sum(2)[:, rows].mean(1) + 0.0
    return entropy, float(np.log(visible[rows]).mean())


def positions_figure(subject: Subject[Any] | None, options: FigureOptions) -> dict[str, Any]:
    """Draw the positional encoding of a model, or the sinusoidal encoding (Vaswani et al. 2017, section 3.5)."""
    vectors, between, title = _positions(subject, options)
    time, width = vectors.shape
    curves = drawn_dimensions(width)
    caption = [
        f"{title}: {time} positions of width {width}.",
        f"The curves are dimensions {', '.join(map(str, curves))}"
        + (f" of {width}." if len(curves) < width else "."),
        ""
        if position_scale(vectors) >= np.abs(vectors).max()
        else "Curves and colors are cut off at the size that 0.5 % of the values exceed.",
        "Similarity is the cosine of each pair of vectors.",
    ]
    return {
        "caption": caption,
        "data": {"vectors": rounded(vectors)},
        "draw": lambda: draw_positions(vectors, options.width, between),
    }


@torch.no_grad()
def _positions(subject: Subject[Any] | None, options: FigureOptions) -> tuple[np.ndarray, np.ndarray | None, str]:
    """Return vectors (T, D), interpolated values for waves, and a title."""
    check_range("dimensions", options.dimensions, 1, 65_536)
    check_range("length", options.length, 1, 10_000)
    length = options.length
    if subject is None:
        positions: Any = Sinusoidal(options.dimensions)
        title = "Sinusoidal positions (Vaswani et al. 2017)"
    elif not hasattr(subject.model, "input_positions"):
        return _position_table(subject), None, f"Position vectors of {describe(subject)}"
    else:
        positions, title = subject.model.input_positions, f"Positions of {describe(subject)}"
    if positions is None:
        assert subject is not None
        remedy = (
            "train it with --pos_enc"
            if hasattr(subject, "config") and hasattr(subject.config.model, "pos_enc")
            else "the model reads step by step, and needs no positions"
        )
        raise InputError(f"{subject.where!r} has no positions: {remedy}")
    if isinstance(positions, Rotary):
        positions, title = positions.waves, f"Rotary {title.lower()}: sine and cosine of the angles"
    if isinstance(positions, LearnedPositions):
        length = len(positions.weight)
    length = min(length, positions.length or length)
    vectors = positions.vectors(0, length).detach().cpu().numpy()
    if not isinstance(positions, Sinusoidal):
        return vectors, None, title
    points = min(POINTS_PER_POSITION * length, MOST_POINTS)
    return vectors, positions.waves_at(torch.linspace(0, length - 1, points, dtype=torch.float64)).numpy(), title


def _position_table(subject: Subject[Any]) -> np.ndarray:
    for name, parameter in subject.model.named_parameters():
        if POSITION_TABLE.search(name) and parameter.dim() in (2, 3):
            return parameter.detach().float().cpu().reshape(-1, parameter.shape[-1]).numpy()
    raise InputError(
        f"{subject.name} has no table of positions: the model has rotary or relative positions, or no positions"
    )


def learning_figure(subject: Subject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the loss and the exact match over the training steps of a run."""
    if not hasattr(subject, "metrics"):
        raise InputError(f"learning curves need the metrics of a run, and {subject.name} is an external model")
    lines = subject.metrics
    if not lines:
        raise InputError(f"{subject.where!r} has no metrics.jsonl, so the learning curves are unknown")
    names = [name for name in CURVE_NAMES if any(name in line for line in lines)]
    curves = {CURVE_NAMES[name]: [(line["step"], line[name]) for line in lines if name in line] for name in names}
    steps = [line["step"] for line in lines]
    seed = subject.config.training.seed  # type: ignore[attr-defined]
    caption = [
        f"Training of {describe(subject)}, seed {seed}, one run: loss and exact match of single training batches,"
        f" at {len(steps):,} of the steps {steps[0]:,} to {steps[-1]:,}, not smoothed.",
    ]
    rows = [{"step": line["step"]} | {name: line.get(name) for name in names} for line in lines]
    return {"caption": caption, "data": rows, "draw": lambda: draw_learning(curves, options.width)}


def embeddings_figure(subject: Subject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw token embeddings on their first two principal components."""
    table, labels = _embeddings(subject)
    if len(table) < 3:
        raise InputError(f"{subject.name} embeds {len(table)} symbols: a projection needs 3 or more symbols")
    texts = options.inputs or getattr(subject, "inputs", ())
    if len(table) <= LABELLED and not texts:
        labelled = list(range(len(table)))
    else:
        labelled = sorted({index for text in texts for index in _encode(subject, getattr(text, "value", text))})
    if not labelled:
        raise InputError(f"{subject.name} has {len(table):,} tokens: give --text, whose tokens get labels")
    points, shares = principal_components(table)
    others = np.setdiff1d(np.arange(len(table)), labelled)
    drawn = np.random.default_rng(options.seed).permutation(others)[:GREY]
    names = dict(zip(labelled, labels(labelled), strict=True))
    shown = spread_labels(points[[*labelled, *drawn]], dict(enumerate(names.values())), options.width - 0.7, 2.4)
    drawn_names = {
        index: text if place in shown else ""
        for place, (index, text) in enumerate(zip(labelled, token_labels(list(names.values())), strict=True))
    }
    caption = [
        f"Token embeddings of {describe(subject)} on their first two principal components, computed over all"
        f" {len(table):,} tokens of width {table.shape[1]}; these components explain {sum(shares):.1%} of the "
        f"variance.",
        f"Blue: {len(labelled)} tokens{' of the text' if texts else ''}.",
        f"{len(labelled) - len(shown)} labels are left out because they would overlap."
        if len(shown) < len(labelled)
        else "",
        f"Gray: {len(drawn):,} of the other {len(others):,} tokens, drawn with seed {options.seed}."
        if len(others)
        else "",
    ]
    rows = [
        {"token": name, "index": index, "first": float(points[index, 0]), "second": float(points[index, 1])}
        for index, name in [*names.items(), *zip(drawn.tolist(), labels(drawn.tolist()), strict=True)]
    ]
    return {
        "caption": caption,
        "data": rows,
        "draw": lambda: draw_points(points, drawn_names, shares, options.width, grey=drawn.tolist()),
    }


def principal_components(table: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Return vectors (N, D) on their first two principal components (N, 2), and the fraction of variance of
    each component.

    The sign of each component makes its largest coordinate positive.
    """
    centred = table.astype(np.float64) - table.mean(0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    points = centred @ directions[:, :-3:-1]
    points *= np.sign(points[np.abs(points).argmax(0), [0, 1]])
    first, second = (variances[:-3:-1] / max(variances.sum(), 1e-30)).tolist()
    return points, (first, second)


def _embeddings(subject: Subject[Any]) -> tuple[np.ndarray, Any]:
    """Return the embedding of every token (V, D), and a function from token indices to labels."""
    model: Any = subject.model
    own = hasattr(model, "input_embedding")
    module = model.input_embedding if own else getattr(model, "get_input_embeddings", lambda: None)()
    if not isinstance(module, nn.Embedding | nn.Linear) or not (own or getattr(subject, "tokenizer", None)):
        raise InputError(f"{subject.name} has no table of token embeddings")
    weight = module.weight.T if isinstance(module, nn.Linear) else module.weight
    table = weight.detach().float().cpu().numpy()
    if not own:
        return table, subject.called
    task: Any = subject.task  # type: ignore[attr-defined]
    if hasattr(task, "source_vocabulary"):
        return table, task.source_vocabulary.labels
    return table, lambda indices: [task.vocabulary[index] for index in indices]


def _encode(subject: Any, text: Any) -> list[int]:
    """Return the token indices of a text, or of the source of a pair."""
    text = text if isinstance(text, str) else text[0]
    if (tokenizer := getattr(subject, "tokenizer", None)) is not None:
        encoded = tokenizer.encode(text)
        return list(getattr(encoded, "ids", encoded))
    if hasattr(subject.task, "source_vocabulary"):
        return list(subject.task.source_vocabulary.encode(text))
    return list(map(int, subject.task.parse(text).flatten()))
