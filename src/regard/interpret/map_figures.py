"""Figures of the attention maps of one input: all heads, an alignment, the rollout, and induction heads."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from regard.errors import InputError, check_range, shorten
from regard.interpret.figure_inputs import (
    SHORTENED,
    FigureOptions,
    describe,
    head_rows,
    interval_words,
    layer_labels,
    many_maps,
    one_map,
    remarks,
    rounded,
)
from regard.interpret.patterns import induction_keys
from regard.interpret.rollout import map_rollout
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import CROSS, AlignedHead, LayerMap, best_aligned
from regard.viz.plots import NARROW, HeadGrid, MatrixPlot, draw_head_matrix, new_figure, token_labels
from regard.viz.subject import Subject, layer_named

SCORES = 2.4
"""Width of the panel with the induction of all heads, in inches; the panel beside it shows the weights of one
head.
"""


def heads_figure(subject: Subject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the attention maps of all heads, with a row for each layer."""
    attention, words = one_map(subject, options)
    layers = _chosen(list(attention.layers.values()), options)
    labels = layer_labels({layer.name: layer.kind for layer in layers})
    grid = HeadGrid(rows=[layer.weights for layer in layers], labels=list(labels.values()), width=options.width)
    steps = sorted({layer.weights.shape[1:] for layer in layers})
    sizes = ", ".join(f"{queries} queries and {keys} keys" for queries, keys in steps)
    caption = [
        f"Attention of the heads of {describe(subject)} on {words}: {len(layers)} layers, {sizes}."
        " A row is a layer, from the first at the top; in each panel a row is a query and a column is a key.",
        grid.notes,
        *remarks(attention),
    ]
    data = {"input": attention.input, "layers": {layer.name: _data(layer, layer.weights) for layer in layers}}
    return {"caption": caption, "data": data, "draw": grid.draw}


def alignment_figure(subject: Subject[Any], options: FigureOptions) -> dict[str, Any]:
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
        _frames(layer),
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
            raise InputError(
                f"head {options.head} is in {len(layers)} layers: give a layer, 0 to {len(layers) - 1}"
            )
        check_range("head", options.head, 0, len(layers[0].weights) - 1)
        return AlignedHead(layers[0], options.head), "chosen by hand"
    if attention.selected_head is not None and options.layer is None:
        return attention.selected_head, "chosen by known alignments"
    best = best_aligned(layers)
    assert best is not None
    reason = (
        "it has most weight on relevant inputs" if best.layer.relevant is not None else "it covers the input best"
    )
    return best, f"chosen for this input because {reason}"


def rollout_figure(subject: Subject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the fraction of each input in each output, computed by rollout."""
    attention, words = one_map(subject, options)
    products = map_rollout(attention)
    name = list(products)[-1] if options.layer is None else layer_named(options.layer, list(products))
    layer, product = products[name]
    plot = _matrix(layer, product, options.width, ("state", "input"), marks=layer.relevant, root=True)
    caption = [
        f"Rollout (Abnar and Zuidema 2020) of {describe(subject)} on {words}: fraction of each input in each "
        f"state after the layer {name}. Rollout averages the heads, counts the residual connection as half of "
        f"each"
        " state, and ignores values and feed-forward layers.",
        _frames(layer),
        plot.notes,
        *remarks(attention),
    ]
    data = _data(layer, product) | {"layers": {name: rounded(matrix) for name, (_, matrix) in products.items()}}
    return {"caption": caption, "data": data, "draw": lambda: _draw_alone(plot)}


def induction_figure(subject: Subject[Any], options: FigureOptions) -> dict[str, Any]:
    """Draw the induction of each head as a fraction of its attention, and the weights of the head with the
    largest fraction.
    """
    maps, words = many_maps(subject, options)
    shares: dict[str, list[np.ndarray]] = {}
    for layer in (layer for attention in maps for layer in attention.layers.values()):
        if (keys := _induction_keys(layer)) is not None:
            shares.setdefault(layer.name, []).append(_induction_share(layer, keys))
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
    marks = _induction_keys(layer)
    plot = _matrix(layer, layer.weights[best["head"]], width, ("query", "key"), marks=marks, root=True)
    height = min(0.55 + 0.14 * max(len(table), 3), 6.0)

    def draw() -> Figure:
        figure = new_figure(options.width, max(plot.height, height) if wide else plot.height + height)
        sizes: dict[str, Any] = (
            {"width_ratios": (SCORES, width)} if wide else {"height_ratios": (height, plot.height)}
        )
        rows_and_columns = (1, 2) if wide else (2, 1)
        scores, weights = figure.subfigures(*rows_and_columns, squeeze=False, **sizes).flat
        axes = scores.subplots()
        scores.colorbar(draw_head_matrix(axes, table, signed=False), ax=axes)
        plot.draw(weights)
        return figure

    caption = [
        f"Induction in {describe(subject)}: fraction of each head's weight on the tokens that followed "
        f"earlier occurrences of the query's token (Olsson et al. 2022), mean {words}. The matrix shows the "
        f"head with"
        f" the largest share ({labels[best['layer']]}, head {best['head']}: {best['induction']:.3f}) on"
        f" {shorten(shown.input, SHORTENED)}; frames mark these tokens.",
        interval_words(len(maps), len(rows)),
        plot.notes,
        *remarks(shown),
    ]
    return {"caption": caption, "data": rows, "draw": draw}


def _induction_keys(layer: LayerMap) -> np.ndarray | None:
    return induction_keys(layer, np.ones(layer.weights.shape[1:], dtype=bool))


def _induction_share(layer: LayerMap, keys: np.ndarray) -> np.ndarray:
    """Return the fraction of each head's weight (H) on induction, over the queries whose token occurred
    before.
    """
    queries = keys.any(1)
    if not queries.any():
        return np.full(len(layer.weights), np.nan)
    share: np.ndarray = (layer.weights * keys).sum(2)[:, queries].mean(1)
    return share


def _chosen(layers: list[LayerMap], options: FigureOptions) -> list[LayerMap]:
    if options.layer is None:
        return layers
    by_name = {layer.name: layer for layer in layers}
    return [by_name[layer_named(options.layer, list(by_name))]]


def _frames(layer: LayerMap) -> str:
    return "" if layer.relevant is None else "Frames mark the inputs on which the answer depends."


def _matrix(
    layer: LayerMap, weights: np.ndarray, width: float, names: tuple[str, str], **options: Any
) -> MatrixPlot:
    queries, keys = token_labels(layer.query_labels), token_labels(layer.key_labels)
    return MatrixPlot(weights=weights, queries=queries, keys=keys, width=width, axis_names=names, **options)


def _draw_alone(plot: MatrixPlot) -> Figure:
    figure = new_figure(plot.width, plot.height)
    plot.draw(figure)
    return figure


def _data(layer: LayerMap, weights: np.ndarray) -> dict[str, Any]:
    return {"queries": layer.query_labels, "keys": layer.key_labels, "weights": rounded(weights)}
