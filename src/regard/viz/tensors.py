"""Plain tensors of weights, as other tools take them, made into a map that can be shown.

    regard.view_of(outputs.attentions, tokens).view()
    regard.view_of(encoder=..., decoder=..., cross=..., tokens=source, target_tokens=target).save("page.html")

Weights may be torch's, numpy's, or lists: of one layer (H, Tq, Tk) or (B, H, Tq, Tk), or a sequence of layers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.errors import InputError, check_range
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import LayerKind, LayerMap
from regard.viz.words import BLANK

NEAR = 0.01
"""How far a row may be from summing to 1: what bfloat16 leaves of a softmax is nearer."""


def view_of(
    attentions: Any = None,
    tokens: Sequence[str] | None = None,
    *,
    encoder: Any = None,
    decoder: Any = None,
    cross: Any = None,
    target_tokens: Sequence[str] | None = None,
    input: int | None = None,
) -> AttentionMap:
    """Return a map of weights that were worked out elsewhere: `.view()`, `.save(path)` and `print` show it.

    `attentions`: of a model with one sequence, whose `tokens` they are; or, of an encoder-decoder, `encoder`,
    `decoder` and `cross`, whose `tokens` are the source's and `target_tokens` the target's. `input`: which of a
    batch, to be said where there are several. Pieces of words are merged where tokens say so by `▁`, `Ġ` or `##`.
    Raises `InputError` where shapes and tokens do not fit, and for what are no weights: each row sums to 1 within
    0.01, or is 0 where a query attends to nothing, and no weight is below 0.
    """
    given = {"": attentions, "encoder": encoder, "decoder": decoder, "cross": cross}
    kinds: dict[str, LayerKind] = {"": "encoder", "encoder": "encoder", "decoder": "decoder", "cross": "cross"}
    source, target = (None if each is None else _labels(each) for each in (tokens, target_tokens))
    layers: dict[str, LayerMap] = {}
    for part, weights in given.items():
        queries, keys = (
            (target if part in ("decoder", "cross") else source),
            target if part == "decoder" else source,
        )
        for number, each in enumerate(_layers(weights, input)):
            name = f"{part or 'layer'}.{number}"
            _check(name, each)
            kind = kinds[part] if part or np.triu(each, 1).any() else "decoder"
            layers[name] = _layer(name, each, kind, queries, keys)
    if not layers:
        raise InputError("no weights are given: give attentions, or encoder, decoder or cross")
    return AttentionMap(
        task="", input="", prediction=None, truth=None, layers=layers, outputs=[], probabilities=[]
    )


def _layers(weights: Any, input: int | None) -> list[np.ndarray]:
    """Return the weights (H, Tq, Tk) of each layer, of one input."""
    if weights is None:
        return []
    if not isinstance(weights, list | tuple):
        array = _array(weights)
        weights = list(array) if array.ndim == 5 else [array]
    elif weights and not isinstance(weights[0], list | tuple) and _array(weights[0]).ndim == 2:
        weights = [np.stack([_array(each) for each in weights])]  # the heads of one layer
    found = []
    for each in weights:
        array = _array(each)
        if array.ndim == 4:
            if input is None and len(array) > 1:
                raise InputError(
                    f"weights are of a batch of {len(array)} inputs: say which by input, 0 to {len(array) - 1}"
                )
            check_range("input", input or 0, 0, len(array) - 1)
            array = array[input or 0]
        if array.ndim != 3:
            raise InputError(
                f"weights have {array.ndim} dimensions: give (H, Tq, Tk) or (B, H, Tq, Tk) of each layer"
            )
        found.append(array)
    return found


def _array(weights: Any) -> np.ndarray:
    """Return weights as float32, wherever they are kept."""
    if hasattr(weights, "detach"):
        weights = weights.detach().float().cpu()
    return np.asarray(weights, dtype=np.float32)


def _check(name: str, weights: np.ndarray) -> None:
    """Raise `InputError` for what no softmax leaves."""
    broken = np.argwhere(~np.isfinite(weights))
    if len(broken):
        head, row, column = broken[0]
        found = weights[head, row, column]
        raise InputError(
            f"{name} has {found} in head {head}, row {row}, column {column}: give finite ones, after the softmax"
        )
    sums = weights.sum(-1)
    wrong = np.argwhere(((abs(sums - 1) > NEAR) & (sums != 0)) | (weights < 0).any(-1))
    if len(wrong):
        head, row = wrong[0]
        said = f"sums to {sums[head, row]:.4g}" if weights[head, row].min() >= 0 else "has weights below 0"
        raise InputError(
            f"row {row} of {name}, head {head}, {said}: give weights after the softmax, whose rows sum to 1; or "
            "regard.look at the model, where a sink takes the rest"
        )


def _layer(
    name: str, weights: np.ndarray, kind: LayerKind, queries: list[str] | None, keys: list[str] | None
) -> LayerMap:
    _, rows, columns = weights.shape
    for what, labels, count in (("queries", queries, rows), ("keys", keys, columns)):
        if labels is not None and len(labels) != count:
            raise InputError(f"{name} has {count} {what}, and {len(labels)} tokens are given: give one for each")
    return LayerMap(
        name=name,
        title=name,
        weights=weights,
        query_labels=queries or [str(step) for step in range(rows)],
        key_labels=keys or [str(step) for step in range(columns)],
        reads=kind,
    )


def _labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens with `▁` where a word begins, whatever marks that."""
    given = list(map(str, tokens))
    if any(each.startswith("##") for each in given):
        return [each.removeprefix("##") if each.startswith("##") else _beginning(each) for each in given]
    return [BLANK + each[1:] if each.startswith("Ġ") and len(each) > 1 else each for each in given]


def _beginning(token: str) -> str:
    return token if token[:1] + token[-1:] in ("[]", "<>") else BLANK + token
