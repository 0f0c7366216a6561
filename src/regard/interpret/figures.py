"""`plot`: figures for papers, with caption and data, of a run or an external model."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from regard.arguments import public
from regard.attention.positions import LearnedPositions, Rotary, Sinusoidal
from regard.errors import InputError, check_range, plural, shorten, unknown_choice
from regard.interpret.attribution.attention import map_rollout
from regard.interpret.estimates import describe_interval, estimate, resample_counts
from regard.interpret.importance import head_importance
from regard.interpret.roles import induction_keys
from regard.viz.attention_map import AttentionMap
from regard.viz.figure import COLUMN, PAGE_WIDTH, WIDTHS, figure_style, new_figure
from regard.viz.heatmaps import HeadGrid, MatrixPlot, layer_labels, token_labels
from regard.viz.maps import CROSS, AlignedHead, LayerMap, answer_text, best_aligned, intervention_lines
from regard.viz.plots import (
    NARROW,
    PaperFigure,
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
)
from regard.viz.subject import NeedsInputs, ViewedSubject, layer_named

SAMPLES = 100  # Number of unseen inputs over which weights are averaged
UNUSED = " not used in training, drawn with seed {}"
FRAMES = "Frames mark the inputs on which the answer depends."
SHORTENED = 300  # Number of characters that a caption shows from an input


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


def describe(subject: ViewedSubject[Any]) -> str:
    about = subject.about()
    steps = "" if about["step"] is None else f", {about['step']:,} training steps"
    return f"{subject.name} ({about['kind']}{steps})"


def one_map(subject: ViewedSubject[Any], options: FigureOptions) -> tuple[AttentionMap, str]:
    """Return the attention map of the first input or of a drawn input, and its caption text."""
    if options.inputs:
        attention, drawn = subject.attend(options.inputs[0]), ""
    else:
        if not subject.about()["draws"]:
            raise InputError(f"{subject.name} cannot draw an input: give --text (in Python inputs=[...])")
        attention = subject.attend(seed=options.seed)
        drawn = "" if isinstance(subject, NeedsInputs) else f", drawn with seed {options.seed}"
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
        lines.append(f"Because the input is long, each weight is the largest weight in a square of {max(sides)} steps.")
    lines += [f"{line}." for line in intervention_lines(attention)]
    return [*lines, *([f"Note: {attention.note}."] if attention.note else [])]


def many_maps(subject: ViewedSubject[Any], options: FigureOptions) -> tuple[list[AttentionMap], str]:
    """Return the attention maps of the user's inputs, or of unseen inputs, and their caption text. Raises `InputError`
    for a map that contains only the largest weight of each square of steps, and for a model without attention."""
    if options.inputs:
        maps, words = [subject.attend(text) for text in options.inputs], ""
    else:
        maps = list(map(subject.look, subject.unseen(options.samples or SAMPLES, options.seed)))
        words = "" if isinstance(subject, NeedsInputs) else UNUSED.format(options.seed)
    if any(layer.rows is not None for attention in maps for layer in attention.layers.values()):
        raise InputError("the figure needs exact weights, for which an input is too long: give shorter inputs")
    if not maps[0].layers:
        _ = maps[0].cross  # raises an error with advice
    return maps, f"over {plural(len(maps), 'input')}{words}"


def interval_words(samples: int, heads: int) -> str:
    if samples < 2:
        return "A single input has no intervals."
    return f"The data has, for each head, the {describe_interval(samples)}, without correction for {heads} heads."


def head_rows(values: Mapping[str, Sequence[np.ndarray]], name: str, seed: int) -> list[dict[str, Any]]:
    """Return a row for each head, with the mean and the interval over inputs. `values`: by layer, for each input the
    values of all heads (H), NaN where they are undefined. `name`: column."""
    rows = []
    for layer, per_input in values.items():
        draws = resample_counts(len(per_input), seed)
        for head, samples in enumerate(np.stack(per_input, axis=1)):
            mean, known = float(np.nanmean(samples)), estimate(samples, draws)
            low, high = (None, None) if known is None else (known.low, known.high)
            rows.append({"layer": layer, "head": head, name: mean, "low": low, "high": high})
    return rows


def rounded(weights: np.ndarray) -> np.ndarray:
    return np.asarray(weights, dtype=np.float64).round(6)


SCORES = 2.4
"""Width of the panel with the induction of all heads, in inches; the panel beside it shows the weights of one head."""


def heads_figure(subject: ViewedSubject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the attention maps of all heads, with a row for each layer."""
    attention, words = one_map(subject, options)
    layers = _chosen(list(attention.layers.values()), options)
    labels = layer_labels({layer.name: layer.kind for layer in layers})
    grid = HeadGrid(rows=[layer.weights for layer in layers], labels=list(labels.values()), width=options.width)
    steps = sorted({layer.weights.shape[1:] for layer in layers})
    sizes = ", ".join(f"{queries} queries and {keys} keys" for queries, keys in steps)
    caption = [
        f"Attention of the heads of {describe(subject)} on {words}: {plural(len(layers), 'layer')}, {sizes}."
        " A row is a layer, from the first at the top; in each panel a row is a query and a column is a key.",
        grid.notes,
        *remarks(attention),
    ]
    data = {"input": attention.input, "layers": {layer.name: _data(layer, layer.weights) for layer in layers}}
    return {"caption": caption, "data": data, "draw": grid.draw}


def alignment_figure(subject: ViewedSubject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the alignment of outputs and inputs by one head, between whole words."""
    attention, words = one_map(subject, options)
    (layer, head), why = _alignment_head(attention.words(), subject.name, options)
    plot = _matrix(layer, layer.weights[head], options.width, ("output", "input"), marks=layer.relevant)
    pieces = layer.weights.shape != attention.layers[layer.name].weights.shape
    caption = [
        f"Attention from outputs to inputs of {describe(subject)} on {words}: {layer.name},"
        f" {layer.head_name(head)}, {why}.",
        "Pieces of words are merged: sums over pieces of an input word, means over pieces of an output word."
        if pieces
        else "",
        FRAMES * (layer.relevant is not None),
        plot.notes,
        *remarks(attention),
    ]
    data = _data(layer, layer.weights[head]) | {"layer": layer.name, "head": layer.head_number(head)}
    return {"caption": caption, "data": data, "draw": lambda: _draw_alone(plot)}


def _alignment_head(attention: AttentionMap, name: str, options: FigureOptions) -> tuple[AlignedHead, str]:
    """Return the head to draw, and the reason for it."""
    cross = [layer for layer in attention.layers.values() if layer.kind == CROSS]
    if not cross:
        raise InputError(f"alignment needs layers in which outputs attend to inputs, and {name} has none")
    layers = _chosen(cross, options)
    if options.head is not None:
        if len(layers) > 1:
            raise InputError(f"head {options.head} is in {len(layers)} layers: give a layer, 0 to {len(layers) - 1}")
        check_range("head", options.head, 0, len(layers[0].weights) - 1)
        return AlignedHead(layers[0], options.head), "chosen by hand"
    if attention.selected_head is not None and options.layer is None:
        return attention.selected_head, "chosen by known alignments"
    best = best_aligned(layers)
    assert best is not None
    reason = "it has most weight on relevant inputs" if best.layer.relevant is not None else "it covers the input best"
    return best, f"chosen for this input because {reason}"


def rollout_figure(subject: ViewedSubject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the fraction of each input in each output, computed by rollout."""
    attention, words = one_map(subject, options)
    products = map_rollout(attention)
    name = list(products)[-1] if options.layer is None else layer_named(options.layer, list(products))
    layer, product = products[name]
    plot = _matrix(layer, product, options.width, ("state", "input"), marks=layer.relevant, root=True)
    caption = [
        f"Rollout (Abnar and Zuidema 2020) of {describe(subject)} on {words}: fraction of each input in each state "
        f"after the layer {name}. Rollout averages the heads, counts the residual connection as half of each state, "
        "and ignores values and feed-forward layers.",
        FRAMES * (layer.relevant is not None),
        plot.notes,
        *remarks(attention),
    ]
    data = _data(layer, product) | {"layers": {name: rounded(matrix) for name, (_, matrix) in products.items()}}
    return {"caption": caption, "data": data, "draw": lambda: _draw_alone(plot)}


def induction_figure(subject: ViewedSubject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the induction of each head, as a fraction of its attention, and the largest head's weights."""
    maps, words = many_maps(subject, options)
    shares: dict[str, list[np.ndarray]] = {}
    for layer in (layer for attention in maps for layer in attention.layers.values()):
        if (keys := induction_keys(layer)) is not None:
            # Over the queries whose token occurred before
            of_queries = (layer.weights * keys).sum(2)[:, keys.any(1)]
            unknown = np.full(len(layer.weights), np.nan)
            shares.setdefault(layer.name, []).append(of_queries.mean(1) if of_queries.size else unknown)
    if not shares:
        raise InputError(f"induction needs layers of self-attention, and {subject.name} has none")
    shares = {name: values for name, values in shares.items() if not np.isnan(np.stack(values)).all()}
    if not shares:
        raise InputError("no token occurs twice in the inputs: give a text with a repeated token")
    rows = head_rows(shares, "induction", options.seed)
    best = max(rows, key=lambda row: row["induction"])
    known = ~np.isnan([share[0] for share in shares[best["layer"]]])
    shown = [attention for attention in maps if best["layer"] in attention.layers][int(known.argmax())]
    layer = shown.layers[best["layer"]]
    labels = layer_labels({name: shown.layers[name].kind for name in shares})
    table = {labels[name]: [row["induction"] for row in rows if row["layer"] == name] for name in shares}
    wide = options.width >= NARROW
    width = options.width - SCORES if wide else options.width
    marks = induction_keys(layer)
    plot = _matrix(layer, layer.weights[best["head"]], width, ("query", "key"), marks=marks, root=True)
    height = min(0.55 + 0.14 * max(len(table), 3), 6.0)

    def draw() -> Figure:
        figure = new_figure(options.width, max(plot.height, height) if wide else plot.height + height)
        sizes: dict[str, Any] = {"width_ratios": (SCORES, width)} if wide else {"height_ratios": (height, plot.height)}
        rows_and_columns = (1, 2) if wide else (2, 1)
        scores, weights = figure.subfigures(*rows_and_columns, squeeze=False, **sizes).flat
        axes = scores.subplots()
        scores.colorbar(draw_head_matrix(axes, table, signed=False), ax=axes)
        plot.draw(weights)
        return figure

    caption = [
        f"Induction in {describe(subject)}: fraction of each head's weight on the tokens that followed earlier "
        f"occurrences of the query's token (Olsson et al. 2022), mean {words}. The matrix shows the head with the "
        f"largest share ({labels[best['layer']]}, head {best['head']}: {best['induction']:.3f}) on "
        f"{shorten(shown.input, SHORTENED)}; frames mark these tokens.",
        interval_words(len(maps), len(rows)),
        plot.notes,
        *remarks(shown),
    ]
    return {"caption": caption, "data": rows, "draw": draw}


def _chosen(layers: list[LayerMap], options: FigureOptions) -> list[LayerMap]:
    if options.layer is None:
        return layers
    by_name = {layer.name: layer for layer in layers}
    return [by_name[layer_named(options.layer, list(by_name))]]


def _matrix(layer: LayerMap, weights: np.ndarray, width: float, names: tuple[str, str], **options: Any) -> MatrixPlot:
    queries, keys = token_labels(layer.query_labels), token_labels(layer.key_labels)
    return MatrixPlot(weights=weights, queries=queries, keys=keys, width=width, axis_names=names, **options)


def _draw_alone(plot: MatrixPlot) -> Figure:
    figure = new_figure(plot.width, plot.height)
    plot.draw(figure)
    return figure


def _data(layer: LayerMap, weights: np.ndarray) -> dict[str, Any]:
    return {"queries": layer.query_labels, "keys": layer.key_labels, "weights": rounded(weights)}


RANKED = 12  # Number of heads that are drawn with their intervals
LABELLED = 100  # Largest size of a vocabulary for which all tokens are labeled
GREY = 3000  # Number of tokens that are drawn without labels
POINTS_PER_POSITION, MOST_POINTS = 40, 40_000  # Number of points of a wave between two positions, and in total
POSITION_TABLE = re.compile(r"(^|\.)(position_embeddings?|pos_embed|embed_positions|wpe)(\.weight)?$")
CURVE_NAMES = {
    "loss": "loss (nats)",
    "valid_loss": "validation loss (nats)",
    "exact_match": "exact match (share)",
    "bleu": "BLEU of the validation text",
    "chrf": "chrF of the validation text",
    "valid_perplexity": "perplexity of the validation text",
}


def importance_figure(subject: ViewedSubject[Any], options: FigureOptions) -> dict[str, Any]:
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
    place, nats = "Beside" if options.width >= NARROW else "Below", " (nats)" if "loss" in importance.measure else ""
    drawn = "" if isinstance(subject, NeedsInputs) else UNUSED.format(options.seed)
    caption = [
        f"Importance of the heads of {describe(subject)}: increase of the {importance.measure}{nats} when a head"
        f" is off (Michel et al. 2019), mean over {plural(importance.samples, 'input')}{drawn}. With all heads on,"
        f" the {importance.measure} is {importance.loss:.4f}.",
        f"{place} the matrix: the {len(intervals[:RANKED])} largest increases of {len(rows)} heads.",
        "Dots in the matrix mark intervals that exclude 0." if importance.samples > 1 else "",
        interval_words(importance.samples, len(rows)),
    ]

    def draw() -> Figure:
        height = min(0.6 + max(0.14 * len(labels), 0.115 * len(intervals[:RANKED])), 8.0)
        figure, (matrix, whiskers) = make_panels(2, options.width, height)
        table = {labels[name]: values for name, values in importance.added.items()}
        marks = np.nan_to_num(head_table(sure)) > 0
        figure.colorbar(draw_head_matrix(matrix, table, signed=True, marks=marks), ax=matrix)
        draw_intervals(whiskers, intervals[:RANKED], f"added to the {importance.measure.split(' against')[0]}{nats}")
        whiskers.set_ylabel("layer, head")
        return figure

    return {"caption": caption, "data": rows, "draw": draw}


def entropy_figure(subject: ViewedSubject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the mean entropy of each head's weights by layer."""
    maps, words = many_maps(subject, options)
    entropies: dict[str, list[np.ndarray]] = {}
    uniform: dict[str, list[float]] = {}
    for name, layer in (item for attention in maps for item in attention.layers.items()):
        if (layer.weights < 0).any():
            raise InputError(f"weights of layer {name} are negative, so they have no entropy: choose another figure")
        values, even = row_entropy(layer.weights)
        entropies.setdefault(name, []).append(values)
        uniform.setdefault(name, []).append(even)
    labels = layer_labels({name: layer.kind for attention in maps for name, layer in attention.layers.items()})
    rows = head_rows(entropies, "entropy", options.seed)
    table = {labels[name]: [row["entropy"] for row in rows if row["layer"] == name] for name in entropies}
    means = [float(np.mean(values)) for values in uniform.values()]
    caption = [
        f"Entropy of the attention weights of {describe(subject)} by layer, in nats: each dot is a head, mean"
        f" over queries, and {words}. 0: all weight on one key. Gray: uniform attention to the same keys.",
        interval_words(len(maps), len(rows)),
    ]
    draw = lambda: draw_by_layer(table, means, options.width, "entropy (nats)", "uniform")  # noqa: E731
    return {"caption": caption, "data": rows, "draw": draw}


def row_entropy(weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the entropy of each head (H), and of uniform attention to the same keys: means over queries, in nats.
    `weights`: (H, Tq, Tk). Queries without weights are left out. A key counts as visible to a query if a head gives it
    weight."""
    weights = weights.astype(np.float64)
    logarithms = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    visible = (weights > 0).any(0).sum(1)
    rows = visible > 0
    entropy = -(weights * logarithms).sum(2)[:, rows].mean(1) + 0.0
    return entropy, float(np.log(visible[rows]).mean())


def positions_figure(subject: ViewedSubject[Any] | None, options: FigureOptions) -> dict[str, Any]:
    """Draw the positional encoding of a model, or the sinusoidal encoding (Vaswani et al. 2017, section 3.5)."""
    vectors, between, title = _positions(subject, options)
    time, width = vectors.shape
    curves = drawn_dimensions(width)
    caption = [
        f"{title}: {time} positions of width {width}.",
        f"The curves are dimensions {', '.join(map(str, curves))}" + (f" of {width}." if len(curves) < width else "."),
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
def _positions(subject: ViewedSubject[Any] | None, options: FigureOptions) -> tuple[np.ndarray, np.ndarray | None, str]:
    """Return vectors (T, D), interpolated values for waves, and a title."""
    check_range("dimensions", options.dimensions, 1, 65_536)
    check_range("length", options.length, 1, 10_000)
    length = options.length
    if subject is None:
        positions: Any = Sinusoidal(options.dimensions)
        title = "Sinusoidal positions (Vaswani et al. 2017)"
    elif not hasattr(subject.model, "input_positions"):
        for name, table in subject.model.named_parameters():
            if POSITION_TABLE.search(name) and table.dim() in (2, 3):
                vectors = table.detach().float().cpu().reshape(-1, table.shape[-1]).numpy()
                return vectors, None, f"Position vectors of {describe(subject)}"
        raise InputError(
            f"{subject.name} has no table of positions: the model has rotary or relative positions, or no positions"
        )
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


def learning_figure(subject: ViewedSubject[Any], options: FigureOptions) -> dict[str, Any]:
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
        f" at {len(steps):,} of the steps {steps[0]:,} to {steps[-1]:,}, not smoothed."
    ]
    rows = [{"step": line["step"]} | {name: line.get(name) for name in names} for line in lines]
    return {"caption": caption, "data": rows, "draw": lambda: draw_learning(curves, options.width)}


def embeddings_figure(subject: ViewedSubject[Any], options: FigureOptions) -> dict[str, Any]:
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
        f"Token embeddings of {describe(subject)} on their first two principal components, computed over all "
        f"{len(table):,} tokens of width {table.shape[1]}; these components explain {sum(shares):.1%} of the variance.",
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
    """Return vectors (N, D) on their first two principal components (N, 2), and the fraction of variance of each
    component. The sign of each component makes its largest coordinate positive."""
    centred = table.astype(np.float64) - table.mean(0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    points = centred @ directions[:, :-3:-1]
    points *= np.sign(points[np.abs(points).argmax(0), [0, 1]])
    first, second = (variances[:-3:-1] / max(variances.sum(), 1e-30)).tolist()
    return points, (first, second)


def _embeddings(subject: ViewedSubject[Any]) -> tuple[np.ndarray, Any]:
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


FIGURE_KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "heads": heads_figure,
    "alignment": alignment_figure,
    "rollout": rollout_figure,
    "induction": induction_figure,
    "importance": importance_figure,
    "entropy": entropy_figure,
    "positions": positions_figure,
    "learning": learning_figure,
    "embeddings": embeddings_figure,
}
WIDE = ("heads", "importance", "positions")  # Kinds of figures that fill both columns of a page unless a width is given

SINGLE = ("heads", "alignment", "rollout")  # Kinds of figures that show one input


@public
def plot(
    kind: str,
    subject: ViewedSubject[Any] | None = None,
    *,
    inputs: Iterable[Any] = (),
    layer: str | int | None = None,
    head: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    width: float | None = None,
    style: str | Path | None = None,
    dimensions: int = 64,
    length: int = 100,
) -> PaperFigure:
    """Measure the values of a figure, and return the figure; `save(path)` writes the figure, its caption and its data.

    `kind`: heads, alignment, rollout, induction, importance, entropy, positions, learning or embeddings. `subject`: a
    run, or a result of `regard.look`; only `positions` needs no subject (the sinusoidal encoding of width
    `dimensions`). `inputs`: texts; by default `samples` inputs that the subject draws with `seed`, or that were not
    used in training. Kinds that show a single input use the first input. For induction in an external model, each text
    is repeated once. `layer`: number or name. `width`: 3.3 or 6.9 inches. `style`: a matplotlib style sheet. `length`:
    number of positions.

    Raises `InputError` if the subject lacks the quantity that the figure shows.

    >>> figure = plot("positions", dimensions=8, length=20, width=3.3)
    >>> figure.caption.partition(".")[0]
    'Sinusoidal positions (Vaswani et al'
    >>> figure.save("positions.pdf")    # doctest: +SKIP
    """
    if kind not in FIGURE_KINDS:
        raise unknown_choice("figure", kind, FIGURE_KINDS)
    if subject is None and kind != "positions":
        raise InputError(f"{kind} needs a model: name a run, or the folder of an external model")
    if width is not None and width not in WIDTHS:
        raise InputError(f"width {width} is not the width of a column or of a page: choose 3.3 or 6.9 inches")
    if samples is not None:
        check_range("samples", samples, 1, 10**7)
    every = list(inputs)
    shown = texts = every[:1] if kind in SINGLE else every[:samples]
    if texts and subject is not None and isinstance(subject, NeedsInputs):
        doubled = kind == "induction"
        subject = subject.over([f"{text} {text}" if doubled and isinstance(text, str) else text for text in texts])
        shown, samples = [], len(texts)
    options = FigureOptions(
        inputs=shown,
        layer=None if layer is None else str(layer),
        head=head,
        samples=samples,
        seed=seed,
        width=width or (PAGE_WIDTH if kind in WIDE else COLUMN),
        dimensions=dimensions,
        length=length,
    )
    with figure_style(style):  # the size of its text decides which labels fit, and the caption says so
        parts = FIGURE_KINDS[kind](subject, options)
    left = f"Of {len(every)} texts, the figure uses the first{f' {len(texts)}' if len(texts) > 1 else ''}."
    caption = " ".join(filter(None, [*parts["caption"], left * (len(texts) < len(every))]))
    return PaperFigure(
        kind=kind, caption=caption, data=parts["data"], width=options.width, draw=parts["draw"], style=style
    )
