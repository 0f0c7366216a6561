"""Display weights that were computed elsewhere, from plain tensors.

    regard.view_weights(outputs.attentions, tokens).view() regard.view_weights(encoder=..., decoder=...,
    cross=..., tokens=source, target_tokens=target).save("page.html")

Weights are PyTorch tensors, NumPy arrays or lists: one layer (H, Tq, Tk) or (B, H, Tq, Tk), or a list of layers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.arguments import public
from regard.errors import InputError, check_range
from regard.viz.attention_map import AttentionMap
from regard.viz.labels import WORD_START
from regard.viz.maps import LayerKind, LayerMap

TOLERANCE = 0.01  # for sums of rows; a softmax in bfloat16 is more exact


@public
def view_weights(
    attentions: Any = None,
    tokens: Sequence[str] | None = None,
    *,
    encoder: Any = None,
    decoder: Any = None,
    cross: Any = None,
    target_tokens: Sequence[str] | None = None,
    input: int | None = None,
) -> AttentionMap:
    """Return a map of weights that were computed elsewhere, with `.view()` and `.save(path)`.

    Pass `attentions` and `tokens` for a model with one sequence, or `encoder`, `decoder` and `cross` for an
    encoder-decoder, with `tokens` of the source and `target_tokens`. `input` selects one input of a batch. The
    map can merge word pieces if tokens mark them by `▁`, `Ġ` or `##`.

    Raises `InputError` if shapes and tokens do not match, for a negative weight, and for a row that neither
    sums to 1 (within 0.01) nor is all zeros.

    >>> print(view_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"]).layers["layer.0"])
    <LayerMap: layer.0, 1 heads, 2 queries, 2 keys>
    """
    parts = {"": attentions, "encoder": encoder, "decoder": decoder, "cross": cross}
    kinds: dict[str, LayerKind] = {"": "encoder", "encoder": "encoder", "decoder": "decoder", "cross": "cross"}
    source, target = (None if labels is None else _labels(labels) for labels in (tokens, target_tokens))
    layers: dict[str, LayerMap] = {}
    for part, weights in parts.items():
        queries = target if part in ("decoder", "cross") else source
        keys = target if part == "decoder" else source
        for number, layer_weights in enumerate(_layers(weights, input)):
            name = f"{part or 'layer'}.{number}"
            _check(name, layer_weights)
            kind = kinds[part] if part or np.triu(layer_weights, 1).any() else "decoder"
            layers[name] = _layer(name, layer_weights, kind, queries, keys)
    if not layers:
        raise InputError("no weights are given: pass attentions, or encoder, decoder or cross")
    return AttentionMap(
        task="", input="", prediction=None, truth=None, layers=layers, outputs=[], probabilities=[]
    )


def _layers(weights: Any, input: int | None) -> list[np.ndarray]:
    """Return the weights (H, Tq, Tk) of each layer for one input."""
    if weights is None:
        return []
    if not isinstance(weights, list | tuple):
        array = _array(weights)
        weights = list(array) if array.ndim == 5 else [array]
    elif weights and _dimensions(weights[0]) == 2:
        weights = [np.stack([_array(head) for head in weights])]  # the heads of one layer
    layers = []
    for layer_weights in weights:
        array = _array(layer_weights)
        if array.ndim == 4:
            if input is None and len(array) > 1:
                raise InputError(f"weights have a batch of {len(array)} inputs: give input=0 to {len(array) - 1}")
            check_range("input", input or 0, 0, len(array) - 1)
            array = array[input or 0]
        if array.ndim != 3:
            raise InputError(
                f"weights have {array.ndim} dimensions: give (H, Tq, Tk) or (B, H, Tq, Tk) of each layer"
            )
        layers.append(array)
    return layers


def _dimensions(weights: Any) -> int:
    if isinstance(weights, list | tuple):
        return 1 + _dimensions(weights[0]) if weights else 1
    return int(np.ndim(weights)) if not hasattr(weights, "dim") else int(weights.dim())


def _array(weights: Any) -> np.ndarray:
    if hasattr(weights, "detach"):
        weights = weights.detach().float().cpu()
    return np.asarray(weights, dtype=np.float32)


def _check(name: str, weights: np.ndarray) -> None:
    """Raise `InputError` for weights that cannot be the result of a softmax."""
    broken = np.argwhere(~np.isfinite(weights))
    if len(broken):
        head, row, column = broken[0]
        value = weights[head, row, column]
        raise InputError(
            f"{name} has {value} in head {head}, row {row}, column {column}: give finite weights, after softmax"
        )
    sums = weights.sum(-1)
    wrong = np.argwhere(((abs(sums - 1) > TOLERANCE) & (sums != 0)) | (weights < 0).any(-1))
    if len(wrong):
        head, row = wrong[0]
        problem = f"sums to {sums[head, row]:.4g}" if weights[head, row].min() >= 0 else "has weights below 0"
        raise InputError(
            f"row {row} of {name}, head {head}, {problem}: give weights after the softmax, whose rows sum to 1,"
            " or pass the model to regard.look if an attention sink receives the rest"
        )


def _layer(
    name: str, weights: np.ndarray, kind: LayerKind, queries: list[str] | None, keys: list[str] | None
) -> LayerMap:
    _, rows, columns = weights.shape
    for side, labels, count in (("queries", queries, rows), ("keys", keys, columns)):
        if labels is not None and len(labels) != count:
            raise InputError(
                f"{name} has {count} {side} but {len(labels)} tokens are given: give one token for each"
            )
    return LayerMap(
        name=name,
        title=name,
        weights=weights,
        query_labels=queries or [str(step) for step in range(rows)],
        key_labels=keys or [str(step) for step in range(columns)],
        kind_override=kind,
    )


def _labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens with `▁` at the start of each word, instead of tokens with `Ġ` or `##`."""
    labels = list(map(str, tokens))
    if any(label.startswith("##") for label in labels):
        return [label[2:] if label.startswith("##") else _mark_start(label) for label in labels]
    return [WORD_START + label[1:] if label.startswith("Ġ") and len(label) > 1 else label for label in labels]


def _mark_start(label: str) -> str:
    special = label[:1] + label[-1:] in ("[]", "<>")
    return label if special else WORD_START + label
