"""Attention weights as an explanation: weights of the last layer that reads the inputs, and confidence of heads.

    attention              mean over heads of a_hij
    value-weighted         mean over heads of || a_hij f_h(x_j) ||      f_h: value and output projection of head h
    attention x gradient   mean over heads of a_hij |d value / d a_hij|

A layer whose keys are states of a memory, as in an encoder-decoder, attributes the weight of a state to the input
at its position.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError
from regard.interpret.attribution.head_gradients import context_gradients
from regard.interpret.attribution.trial import Trial

UNKNOWN_VALUES = "its values are not known"
BEST_HEAD_INPUTS = 20
"""Other inputs on which the best head is chosen."""


def last_layer(trial: Trial[Any]) -> str:
    """Return the short name of the last layer in which outputs attend to inputs.

    Raises `InputError` for a model without such a layer, or if its weights were not recorded.
    """
    if not trial.probe.layers:
        raise InputError(f"{trial.subject.name} has no layer in which outputs attend to inputs: no attention")
    name = trial.probe.layers[-1]
    if name not in trial.records:
        raise InputError(f"the weights of {name} were not recorded: choose another method")
    return name


def last_weights(trial: Trial[Any]) -> np.ndarray:
    """Return the weights (H, S, Tk) of the last layer that reads the inputs, for the S explained output steps."""
    weights = trial.records[last_layer(trial)].weights[0].float().cpu().numpy()
    return of_outputs(trial, weights[..., trial.own_keys(weights.shape[-1])])


def query_rows(trial: Trial[Any], queries: int) -> list[list[int]]:
    """Return the rows that each explained step reads in a layer with `queries` rows: its own row, or all rows if
    outputs are not those of single queries, as in a classifier. A pooling model has one row."""
    if queries in (1, len(trial.logits)):
        return [[step] if queries > 1 else [0] for step in trial.steps]
    trial.remarks.append(
        f"The {len(trial.logits)} outputs are not those of the {queries} queries: mean over queries."
    )
    return [list(range(queries)) for _ in trial.steps]


def of_outputs(trial: Trial[Any], rows: np.ndarray) -> np.ndarray:
    groups = query_rows(trial, rows.shape[-2])
    return np.stack([rows[..., group, :].mean(-2) for group in groups], -2)


def mean_weights(trial: Trial[Any]) -> np.ndarray:
    """Return the weights (S, Tk) of the last layer that reads the inputs, averaged over heads."""
    mean: np.ndarray = last_weights(trial).mean(0)
    return mean


def best_head(trial: Trial[Any]) -> np.ndarray:
    """Return the weights (S, Tk) of the best head of the last layer that reads the inputs.

    The best head has the most attention on relevant inputs in 20 other inputs. If the relevant inputs are not
    known, it has the largest mean of the maximal weight, and a remark says so.
    """
    name, background = last_layer(trial), trial.background
    scores = background.cache.get(name)
    if scores is None:
        scores = background.cache[name] = np.mean(
            [_head_quality(trial, name, index) for index in range(min(BEST_HEAD_INPUTS, len(background.probes)))],
            0,
        )
    if background.probes[0].relevant is None:
        trial.remarks.append("The relevant inputs are not known: the head with the largest weights was chosen.")
    best: np.ndarray = last_weights(trial)[int(np.argmax(scores))]
    return best


def _head_quality(trial: Trial[Any], name: str, index: int) -> np.ndarray:
    """Return for each head (H,) its attention on relevant inputs in another input, or its mean maximal weight."""
    probe = trial.background.probes[index]
    with torch.no_grad(), trial.subject.recording([name]) as records:
        probe.run(1)
    weights = records[name].weights[0].float().cpu().numpy()
    quality: np.ndarray = weights.max(-1).mean(-1)
    if probe.relevant is not None:
        known = int(probe.relevant.any(1).sum())  # outputs with relevant inputs; an input can have none
        attended = weights[:, :, : probe.relevant.shape[1]] * probe.relevant
        quality = attended.sum((1, 2)) / max(known, 1)
    return quality


def weighted_values(trial: Trial[Any]) -> np.ndarray:
    """Return weights times norms of transformed values (S, Tk), averaged over heads (Kobayashi et al. 2020)."""
    name = last_layer(trial)
    norms = value_norms(trial, name)
    norms = norms[:, None, trial.own_keys(norms.shape[-1])]
    mean: np.ndarray = (last_weights(trial) * norms).mean(0)
    return mean


def value_norms(trial: Trial[Any], name: str) -> np.ndarray:
    """Return the norms (H, Tk) of a layer's values after the output projection; raises `InputError` if its values
    are not known."""
    outputs = trial.components.heads[name].outputs(known_values(trial, name).transpose(0, 1))
    norms: np.ndarray = outputs.float().norm(dim=-1).T.detach().cpu().numpy()
    return norms


def known_values(trial: Trial[Any], name: str) -> Tensor:
    """Return the values (H, Tk, Dv) of a layer; raises `InputError` if they are not known."""
    if name not in trial.attention_values:
        raise InputError(f"layer {name}: {UNKNOWN_VALUES}; choose another method")
    return trial.attention_values[name]


def weights_times_gradient(trial: Trial[Any]) -> np.ndarray:
    """Return weights times absolute gradients (S, Tk), averaged over heads (Barkan et al. 2021, with absolute
    values).

    The gradient with respect to a weight is the value of the key times the gradient of the context.
    """
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
    return {name: weights.max(-1).mean(-1) for name, weights in _all_weights(trial).items()}


def weighted_confidence(trial: Trial[Any]) -> dict[str, np.ndarray]:
    """Return the mean over queries of the largest weight times norm of value of each head (H,)."""
    scores = {}
    for name, weights in _all_weights(trial).items():
        if name in trial.attention_values:
            scores[name] = (weights * value_norms(trial, name)[:, None]).max(-1).mean(-1)
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


def _all_weights(trial: Trial[Any]) -> dict[str, np.ndarray]:
    """Return the weights (H, Tq, Tk) of all layers."""
    return {
        layer.name: trial.records[layer.name].weights[0].float().cpu().numpy()
        for layer in trial.subject.layers
        if layer.name in trial.records
    }
