"""Measure how much attention is on the inputs that the answer depends on.

A task defines the inputs on which each output depends. The relevance of a head is its attention mass on these
inputs. For uniform attention, this mass equals the fraction of relevant inputs in the sequence. Output steps
that depend on no input of the sample (the count of a letter that does not occur) are left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import public
from regard.attention.functional import uniform_weights
from regard.attention.interventions import record_own
from regard.models.base import AnswerModel
from regard.tasks.base import Task
from regard.tasks.batch import Batch

Array = TypeVar("Array", Tensor, np.ndarray)


@public
@dataclass(frozen=True, kw_only=True)
class RelevanceShare:
    """Mean attention mass (0 to 1) on the relevant inputs."""

    heads: list[float]
    """Mean attention mass of each head."""
    uniform: float
    """Mean attention mass under uniform attention."""


def attention_mass(weights: Array, relevant: Array) -> Array:
    """Return the mass (..., Tq) of weights (..., Tq, Tk) on the keys where `relevant` (..., Tq, Tk) is True.

    >>> attention_mass(np.array([[0.5, 0.25, 0.25]]), np.array([[True, False, True]]))
    array([0.75])
    """
    mass: Array = (weights * relevant).sum(-1)
    return mass


def even_weights(shape: Sequence[int], causal: bool) -> np.ndarray:
    """Return uniform attention (Tq, Tk) to all keys, or, if `causal`, to those up to the query's position.

    >>> even_weights((2, 2), causal=True).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    visible = np.tri(shape[0], shape[1]) if causal else np.ones(shape)
    weights: np.ndarray = visible / visible.sum(1, keepdims=True)
    return weights


@torch.inference_mode()
def relevance_share(model: AnswerModel, task: Task, batches: Iterable[Batch]) -> RelevanceShare:
    """Return the relevance of each head, averaged over all output steps that depend on any input.

    Measures the first layer of the model in which outputs attend to inputs.
    """
    layer, heads, uniform = model.cross_layers[0], [], []
    for inputs, _, mask in batches:
        with record_own(model, layers=[layer]) as records:
            model(inputs, mask)
        cross = records[layer]
        relevant = pad_keys(task.relevance(inputs), cross.weights.shape[-1])
        counted = relevant.any(-1)
        heads.append(attention_mass(cross.weights, relevant.unsqueeze(1)).transpose(1, 2)[counted])
        uniform.append(attention_mass(uniform_weights(cross.weights, cross.mask)[:, 0], relevant)[counted])
    # The average is computed in float64, because a test has up to 10^8 output steps, more than float32 can count.
    return RelevanceShare(
        heads=torch.cat(heads).double().mean(0).tolist(), uniform=torch.cat(uniform).double().mean().item()
    )


def pad_keys(relevance: Tensor, keys: int) -> Tensor:
    """Extend relevance (B, To, T) to all keys of the memory; the added key of the rest step is not relevant.

    >>> pad_keys(torch.ones(1, 1, 2, dtype=torch.bool), 3)
    tensor([[[ True,  True, False]]])
    """
    return F.pad(relevance, (0, keys - relevance.shape[-1]), value=False)
