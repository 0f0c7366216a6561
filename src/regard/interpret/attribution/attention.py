"""Attention weights as an explanation: of one layer, and through several layers.

    attention              mean over heads of a_hij
    value-weighted         mean over heads of || a_hij f_h(x_j) ||      f_h: value and output projection of head h
    attention x gradient   mean over heads of a_hij |d value / d a_hij|
    rollout   A_L ... A_1,  A_l = 1/2 mean over heads of W_l + 1/2 I     (Abnar and Zuidema 2020; the residual
              connection passes on half of each state; `viz/js/matrix.js` computes the same in a page)
    flow      the maximum flow from an output to an input in the graph with capacities A_l (the same paper)
    value zeroing   C_L ... C_1; row i of C_l: distances of state i with the value of key j set to zero

A layer whose keys are states of a memory, as in an encoder-decoder, attributes the weight of a state to the input
at its position. Through several layers, the last factor is then the last cross-attention, without a residual
connection, over the layers of the encoder. The decoder's own attention is not part of these scores.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.activations.components import replace_outputs
from regard.activations.weights import record_weights
from regard.errors import InputError
from regard.interpret.attribution.effects import context_gradients
from regard.interpret.attribution.trial import Trial
from regard.viz.maps import CROSS, LayerMap, Map, finite

UNKNOWN_VALUES = "its values are not known"
BEST_HEAD_INPUTS = 20  # Other inputs on which the best head is chosen
UNIT = 2**24  # Units of a capacity of 1: maximum_flow needs integers of 32 bits
DECODER = "The attention between output steps is not part of the scores."


def last_layer(trial: Trial[Any]) -> str:
    """Return the short name of the last layer in which outputs attend to inputs. Raises `InputError` for a model
    without such a layer, or if its weights were not recorded."""
    if not trial.probe.layers:
        raise InputError(f"{trial.subject.name} has no layer in which outputs attend to inputs: no attention")
    name = trial.probe.layers[-1]
    if name not in trial.records:
        raise InputError(f"the weights of {name} were not recorded: choose another method")
    return name


def weights_of(trial: Trial[Any], name: str, dtype: torch.dtype = torch.float32) -> np.ndarray:
    weights: np.ndarray = trial.records[name].weights[0].to(dtype).cpu().numpy()  # (H, Tq, Tk)
    return weights


def last_weights(trial: Trial[Any]) -> np.ndarray:
    """Return the weights (H, S, Tk) of the last layer that reads the inputs, for the S explained output steps."""
    weights = weights_of(trial, last_layer(trial))
    return of_outputs(trial, weights[..., trial.own_keys(weights.shape[-1])])


def query_rows(trial: Trial[Any], queries: int) -> list[list[int]]:
    """Return the rows that each explained step reads in a layer with `queries` rows: its own row, or all rows if
    outputs are not those of single queries, as in a classifier. A pooling model has one row."""
    if queries in (1, len(trial.logits)):
        return [[step] if queries > 1 else [0] for step in trial.steps]
    trial.remarks.append(f"The {len(trial.logits)} outputs are not those of the {queries} queries: mean over queries.")
    return [list(range(queries)) for _ in trial.steps]


def of_outputs(trial: Trial[Any], rows: np.ndarray) -> np.ndarray:
    groups = query_rows(trial, rows.shape[-2])
    return np.stack([rows[..., group, :].mean(-2) for group in groups], -2)


def best_head(trial: Trial[Any]) -> np.ndarray:
    """Return the weights (S, Tk) of the best head of the last layer that reads the inputs. The best head has the most
    attention on relevant inputs in 20 other inputs. If the relevant inputs are not known, it has the largest mean of
    the maximal weight, and a remark says so."""
    name, background = last_layer(trial), trial.background
    if name not in background.cache:
        qualities = []
        for probe in background.probes[:BEST_HEAD_INPUTS]:
            with torch.no_grad(), record_weights(trial.subject, layers=[name]) as records:
                probe.run(1)
            weights = records[name].weights[0].float().cpu().numpy()
            if probe.relevant is None:
                qualities.append(weights.max(-1).mean(-1))
            else:
                known = int(probe.relevant.any(1).sum())  # outputs with relevant inputs; an input can have none
                attended = weights[:, :, : probe.relevant.shape[1]] * probe.relevant
                qualities.append(attended.sum((1, 2)) / max(known, 1))
        background.cache[name] = np.mean(qualities, 0)
    if background.probes[0].relevant is None:
        trial.remarks.append("The relevant inputs are not known: the head with the largest weights was chosen.")
    best: np.ndarray = last_weights(trial)[int(np.argmax(background.cache[name]))]
    return best


def weighted_values(trial: Trial[Any]) -> np.ndarray:
    """Return weights times norms of transformed values (S, Tk), averaged over heads (Kobayashi et al. 2020)."""
    name = last_layer(trial)
    norms = value_norms(trial, name)
    norms = norms[:, None, trial.own_keys(norms.shape[-1])]
    mean: np.ndarray = (last_weights(trial) * norms).mean(0)
    return mean


def value_norms(trial: Trial[Any], name: str) -> np.ndarray:
    """Return the norms (H, Tk) of a layer's projected values; raises `InputError` if they are not known."""
    outputs = trial.components.heads[name].outputs(known_values(trial, name).transpose(0, 1))
    norms: np.ndarray = outputs.float().norm(dim=-1).T.detach().cpu().numpy()
    return norms


def known_values(trial: Trial[Any], name: str) -> Tensor:
    """Return the values (H, Tk, Dv) of a layer; raises `InputError` if they are not known."""
    if name not in trial.attention_values:
        raise InputError(f"layer {name}: {UNKNOWN_VALUES}; choose another method")
    return trial.attention_values[name]


def weights_times_gradient(trial: Trial[Any]) -> np.ndarray:
    """Return weights times absolute gradients (S, Tk), averaged over heads (Barkan et al. 2021, with absolute values).
    The gradient with respect to a weight is the value of the key times the gradient of the context."""
    name = last_layer(trial)
    values = known_values(trial, name)
    weights = trial.records[name].weights[0].to(values)
    gradients = context_gradients(trial)[name].to(values)  # (S, T, H, Dv)
    scores = [
        ((gradients[step, rows].transpose(0, 1) @ values.transpose(1, 2)).abs() * weights[:, rows]).mean((0, 1))
        for step, rows in enumerate(query_rows(trial, weights.shape[1]))
    ]
    return torch.stack(scores)[:, trial.own_keys(values.shape[1])].float().cpu().numpy()


def confidence(trial: Trial[Any]) -> dict[str, np.ndarray]:
    """Return the mean of the maximal weight of each head (H,) over queries (Voita et al. 2019)."""
    names = [layer.name for layer in trial.subject.layers if layer.name in trial.records]
    return {name: weights_of(trial, name).max(-1).mean(-1) for name in names}


def weighted_confidence(trial: Trial[Any]) -> dict[str, np.ndarray]:
    """Return the mean over queries of the largest weight times norm of value of each head (H,)."""
    scores = {}
    for name in (layer.name for layer in trial.subject.layers if layer.name in trial.records):
        if name in trial.attention_values:
            scores[name] = (weights_of(trial, name) * value_norms(trial, name)[:, None]).max(-1).mean(-1)
        else:
            trial.left_out[name] = UNKNOWN_VALUES
    return scores


def output_norms(trial: Trial[Any]) -> dict[str, np.ndarray]:
    """Return the mean norm over queries of what each head (H,) adds to the residual stream."""
    trial.left_out.update(trial.components.left_out)
    return {
        name: trial.components.heads[name].outputs(contexts).float().norm(dim=-1).mean(0).detach().cpu().numpy()
        for name, contexts in trial.contexts.items()
    }


def stacked_layers(trial: Trial[Any]) -> tuple[list[str], str | None]:
    """Return the layers of self-attention that mix inputs, in order, and the last layer of cross-attention."""
    last = last_layer(trial)
    layers = {layer.name: layer.kind for layer in trial.subject.layers if layer.name in trial.records}
    if layers.get(last) != CROSS:
        return [name for name, kind in layers.items() if kind != CROSS], None
    if any(kind == "decoder" for kind in layers.values()):
        trial.remarks.append(DECODER)
    return [name for name, kind in layers.items() if kind == "encoder"], last


def _square_weights(trial: Trial[Any], names: list[str]) -> list[np.ndarray]:
    """Return the weights (H, T, T) of layers of self-attention; raises `InputError` for another shape."""
    weights = [weights_of(trial, name, torch.float64) for name in names]
    size = max([layer.shape[-1] for layer in weights] + [len(trial.embedding)])
    for name, layer in zip(names, weights, strict=True):
        if layer.shape[1:] != (size, size):
            raise InputError(f"layer {name} has {layer.shape[1:]} queries and keys, not {size}: no rollout")
    return weights


def rollout(weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the rollout (T, T) after each layer, from the weights (H, T, T) of layers in order."""
    product = np.eye(weights[0].shape[1])  # before the first layer, each state is its own input
    products = []
    for layer in weights:
        product = (finite(layer).mean(0) + np.eye(len(product))) / 2 @ product
        products.append(product)
    return products


def map_rollout(attention: Map) -> dict[str, tuple[LayerMap, np.ndarray]]:
    """Return the rollout (Tq, Tk) of each layer that affects the outputs, by layer name. The decoder of an
    encoder-decoder has no rollout, because its states also depend on the weights of other layers. Raises `InputError`
    if no layer of the map has a rollout, or if a layer changes the number of steps."""
    layers = list(attention.layers.values())
    cross = [layer for layer in layers if layer.kind == CROSS]
    own = [layer for layer in layers if layer.kind != CROSS and (layer.kind == "encoder" or not cross)]
    if any(layer.rows is not None for layer in layers):
        raise InputError("rollout needs exact weights, for which this input is too long: give a shorter input")
    if len({layer.weights.shape[1:] for layer in own}) > 1 or any(np.ptp(layer.weights.shape[1:]) for layer in own):
        raise InputError(
            "rollout needs layers with equal numbers of queries and keys, but the numbers differ in these layers"
        )
    if not own or len(own) + len(cross) < 2:
        raise InputError(
            f"rollout needs two or more layers that attend to each other's states, and {attention.task} has"
            f" {', '.join(attention.layers) or 'none'}: choose a model with more layers of self-attention"
        )
    products = rollout([layer.weights for layer in own])
    if not cross:
        return {layer.name: (layer, product) for layer, product in zip(own, products, strict=True)}
    return {
        layer.name: (layer, finite(layer.weights).mean(0) @ products[-1][: layer.weights.shape[2]]) for layer in cross
    }


def input_rollout(trial: Trial[Any]) -> np.ndarray:
    """Return the rollout (S, Tk) from the explained output steps to the inputs."""
    own, cross = stacked_layers(trial)
    layers = _square_weights(trial, own)
    size = layers[0].shape[-1] if layers else len(trial.embedding)
    product = [np.eye(size), *rollout(layers)][-1]
    rows: np.ndarray = product if cross is None else weights_of(trial, cross, torch.float64).mean(0)[:, :size] @ product
    return of_outputs(trial, rows[:, trial.own_keys(size)])


def flow(trial: Trial[Any]) -> np.ndarray:
    """Return the maximum flow (S, Tk) from the explained output steps to the inputs, to a precision of 1e-7."""
    from scipy.sparse import csr_array  # SciPy takes long to import
    from scipy.sparse.csgraph import maximum_flow

    own, cross = stacked_layers(trial)
    capacities = [(weights.mean(0) + np.eye(weights.shape[-1])) / 2 for weights in _square_weights(trial, own)]
    size = capacities[0].shape[-1] if capacities else len(trial.embedding)
    if cross is not None:
        capacities.append(weights_of(trial, cross, torch.float64).mean(0)[:, :size])
    # State j of layer l has the number j + the number of states below, and an edge to each state of the layer below.
    starts = np.cumsum([0, capacities[0].shape[1], *(matrix.shape[0] for matrix in capacities)])
    edges = np.zeros((int(starts[-1]),) * 2, dtype=np.int32)
    for layer, matrix in enumerate(capacities):
        below, above, end = starts[layer : layer + 3]
        edges[above:end, below:above] = np.rint(matrix * UNIT)
    graph, outputs = csr_array(edges), int(starts[len(capacities)])
    groups, keys = query_rows(trial, len(capacities[-1])), range(size)[trial.own_keys(size)]
    flows = {
        row: [maximum_flow(graph, outputs + row, key).flow_value for key in keys]
        for row in sorted({row for group in groups for row in group})
    }
    return np.array([np.mean([flows[row] for row in group], axis=0) for group in groups]) / UNIT


def value_zeroing(trial: Trial[Any]) -> np.ndarray:
    """Return value zeroing (S, Tk), multiplied over layers (Mohebbi et al. 2023). The distance is one minus the cosine
    of the states after the block of the layer. Rows are divided by their sums."""
    own, cross = stacked_layers(trial)
    layers = [zeroing_distances(trial, name) for name in own]
    size = layers[0].shape[-1] if layers else len(trial.embedding)
    product = np.eye(size)
    for distances in layers:
        product = distances @ product
    rows: np.ndarray = product if cross is None else zeroing_distances(trial, cross)[:, :size] @ product
    return of_outputs(trial, rows[:, trial.own_keys(size)])


@torch.no_grad()
def zeroing_distances(trial: Trial[Any], name: str) -> np.ndarray:
    """Return, for a layer, the distances (Tq, Tk) of each state when the value of one key is zero, in rows that sum to
    1. Without a residual connection, the state is the context of the layer. Raises `InputError` if the values of the
    layer are not known."""
    values = known_values(trial, name)
    contexts = trial.contexts[name].to(values)
    lost = torch.einsum("hqk,hkd->kqhd", trial.records[name].weights[0].to(values), values)
    changed = torch.cat([contexts.unsqueeze(0), contexts - lost])  # (1 + Tk, Tq, H, Dv)
    states = [changed.flatten(2).float()]

    def keep(name: str, output: Tensor) -> Tensor:
        states.append(output.float())
        return output

    if name in trial.components.states:
        block = {name: trial.components.states[name]}
        with replace_outputs(block, keep), trial.insert_contexts(name, changed):
            trial.probe.run(len(changed))
    distances = (1 - torch.cosine_similarity(states[-1][1:], states[-1][:1], dim=-1)).clamp(min=0).T
    return (distances / distances.sum(1, keepdim=True).clamp(min=1e-12)).double().cpu().numpy()
