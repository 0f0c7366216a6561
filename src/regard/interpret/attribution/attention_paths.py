"""Attention through several layers: rollout, flow and value zeroing.

    A_l = 1/2 mean over heads of W_l + 1/2 I        the residual connection passes on half of each state
    rollout   A_L ... A_1                           (Abnar and Zuidema 2020)
    flow      the maximum flow from an output to an input in the graph with capacities A_l (the same paper)
    value zeroing   C_L ... C_1; row i of C_l: distances of state i with the value of key j set to zero

If outputs attend to the inputs through cross-attention, the last factor is the last cross-attention, without a
residual connection, over the layers of the encoder. The decoder's own attention is not part of these scores.
"""

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from regard.errors import InputError
from regard.interpret.attribution.attention_weights import UNKNOWN_VALUES, last_layer, of_outputs, query_rows
from regard.interpret.attribution.trial import Trial
from regard.interpret.rollout import rollout as roll
from regard.viz.maps import CROSS

UNIT = 2**24
"""Units of a capacity of 1: maximum_flow needs integers of 32 bits."""
DECODER = "The attention between output steps is not part of the scores."


def stacked_layers(trial: Trial[Any]) -> tuple[list[str], str | None]:
    """Return the layers of self-attention in which states mix inputs, in order, and the last layer of
    cross-attention, if there is one."""
    last = last_layer(trial)
    layers = {layer.name: layer.kind for layer in trial.subject.layers if layer.name in trial.records}
    if layers.get(last) != CROSS:
        return [name for name, kind in layers.items() if kind != CROSS], None
    if any(kind == "decoder" for kind in layers.values()):
        trial.remarks.append(DECODER)
    return [name for name, kind in layers.items() if kind == "encoder"], last


def _weights(trial: Trial[Any], name: str) -> np.ndarray:
    return trial.records[name].weights[0].double().cpu().numpy()


def _square_weights(trial: Trial[Any], names: list[str]) -> list[np.ndarray]:
    """Return the weights (H, T, T) of layers of self-attention; raises `InputError` for another shape."""
    weights = [_weights(trial, name) for name in names]
    size = max([layer.shape[-1] for layer in weights] + [len(trial.embedding)])
    for name, layer in zip(names, weights, strict=True):
        if layer.shape[1:] != (size, size):
            raise InputError(f"layer {name} has {layer.shape[1:]} queries and keys, not {size}: no rollout")
    return weights


def rollout(trial: Trial[Any]) -> np.ndarray:
    """Return the rollout (S, Tk) from the explained output steps to the inputs."""
    own, cross = stacked_layers(trial)
    layers = _square_weights(trial, own)
    size = layers[0].shape[-1] if layers else len(trial.embedding)
    product = [np.eye(size), *roll(layers)][-1]
    rows: np.ndarray = product if cross is None else _weights(trial, cross).mean(0)[:, :size] @ product
    return of_outputs(trial, rows[:, trial.own_keys(size)])


def flow(trial: Trial[Any]) -> np.ndarray:
    """Return the maximum flow (S, Tk) from the explained output steps to the inputs, to a precision of 1e-7."""
    own, cross = stacked_layers(trial)
    capacities = [(weights.mean(0) + np.eye(weights.shape[-1])) / 2 for weights in _square_weights(trial, own)]
    size = capacities[0].shape[-1] if capacities else len(trial.embedding)
    if cross is not None:
        capacities.append(_weights(trial, cross).mean(0)[:, :size])
    graph, outputs = _flow_graph(capacities)
    groups, keys = query_rows(trial, len(capacities[-1])), range(size)[trial.own_keys(size)]
    flows = {
        row: [maximum_flow(graph, outputs + row, key).flow_value for key in keys]
        for row in sorted({row for group in groups for row in group})
    }
    return np.array([np.mean([flows[row] for row in group], axis=0) for group in groups]) / UNIT


def _flow_graph(capacities: list[np.ndarray]) -> tuple[csr_array, int]:
    """Return the graph with an edge from each state to each state of the layer below, and the number of the first
    state of the last layer. State j of layer l has the number j + the number of states below."""
    starts = np.cumsum([0, capacities[0].shape[1], *(matrix.shape[0] for matrix in capacities)])
    graph = np.zeros((int(starts[-1]),) * 2, dtype=np.int32)
    for layer, matrix in enumerate(capacities):
        below, above, end = starts[layer : layer + 3]
        graph[above:end, below:above] = np.rint(matrix * UNIT)
    return csr_array(graph), int(starts[len(capacities)])


def value_zeroing(trial: Trial[Any]) -> np.ndarray:
    """Return value zeroing (S, Tk), multiplied over layers (Mohebbi et al. 2023).

    The distance is one minus the cosine of the states after the block of the layer. Rows are divided by their
    sums.
    """
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
    """Return, for a layer, the distances (Tq, Tk) of each state when the value of one key is zero, in rows that
    sum to 1.

    Without a residual connection, the state is the context of the layer. Raises `InputError` if the values of the
    layer are not known.
    """
    if name not in trial.attention_values:
        raise InputError(f"layer {name}: {UNKNOWN_VALUES}; choose another method")
    weights, values = trial.records[name].weights[0], trial.attention_values[name]
    contexts = trial.contexts[name].to(values)
    lost = torch.einsum("hqk,hkd->kqhd", weights.to(values), values)
    states = _states(trial, name, torch.cat([contexts.unsqueeze(0), contexts - lost]))
    distances = (1 - torch.cosine_similarity(states[1:], states[:1], dim=-1)).clamp(min=0).T
    rows: np.ndarray = (distances / distances.sum(1, keepdim=True).clamp(min=1e-12)).double().cpu().numpy()
    return rows


def _states(trial: Trial[Any], name: str, contexts: Tensor) -> Tensor:
    """Return the states (N, Tq, D) after the block of a layer for contexts (N, Tq, H, Dv)."""
    block = trial.components.states.get(name)
    if block is None:
        return contexts.flatten(2).float()
    outputs: list[Tensor] = []

    def keep(module: object, args: object, output: Any) -> None:
        outputs.append((output if isinstance(output, Tensor) else output[0]).float())

    handle = block.register_forward_hook(keep)
    try:
        with trial.insert_contexts(name, contexts):
            trial.probe.run(len(contexts))
    finally:
        handle.remove()
    return outputs[-1]
