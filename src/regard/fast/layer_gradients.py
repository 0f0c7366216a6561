"""Layers with explicit gradients, for `query_gradient`.

Replaces the forward pass of `FeedForward`, `Attention`, `MultiHeadAttention`, `nn.LayerNorm` and the
  cross-entropy, and the backward pass of autograd.
Gain and conditions: see `query_gradient`.

Each function returns its output and a function `backward`, which maps the gradient of the output to the
gradient of the input. `backward` also stores the gradients of the parameters in `grads`.

Letters: B samples, T steps, N steps of all samples, R rows, H heads, d width of a head, D width.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.fast.onednn import onednn_matmul
from regard.fast.softmax import LANES

Grads = dict[Tensor, Tensor]
"""Maps the name of a parameter to its gradient."""
Backward = Callable[[Tensor], Tensor]
"""Maps the gradient of an output to the gradient of the input."""


class FeedForwardLayer(Protocol):
    """Position-wise feed-forward network with ReLU."""

    inner: nn.Linear
    outer: nn.Linear


class Projections(Protocol):
    """Projections of multi-head attention, without biases."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    heads: int
    head_width: int


class Rows(NamedTuple):
    """Distinct rows, and the index of the row for each step. Equal inputs are processed once."""

    rows: Tensor
    """(R, D)"""
    indices: Tensor | None
    """(N,) int64, index of the row for each step; None if row n belongs to step n."""

    def expand(self) -> Tensor:
        return self.rows if self.indices is None else self.rows.index_select(0, self.indices)

    def sum_by_row(self, grad: Tensor) -> Tensor:
        if self.indices is None:
            return grad
        return grad.new_zeros(len(self.rows), grad.shape[1]).index_add_(0, self.indices, grad)


def feed_forward(
    layer: FeedForwardLayer, norm: nn.LayerNorm, states: Tensor, grads: Grads
) -> tuple[Tensor, Backward]:
    """Return norm(states + W2 relu(W1 states + b1) + b2), (N, D)."""
    inner = onednn_matmul(states, layer.inner.weight.t(), layer.inner.bias).relu_()
    outer = onednn_matmul(inner, layer.outer.weight.t(), layer.outer.bias)
    outputs, norm_backward = layer_norm(norm, outer.add_(states), grads)

    def backward(grad: Tensor) -> Tensor:
        grad = norm_backward(grad)
        to_inner = torch.ops.aten.threshold_backward(linear_backward(layer.outer, inner, grad, grads), inner, 0)
        return grad.add_(linear_backward(layer.inner, states, to_inner, grads))

    return outputs, backward


def self_attention(
    layer: Projections | None, norm: nn.LayerNorm, states: Rows, shape: torch.Size, grads: Grads
) -> tuple[Tensor, Backward]:
    """Return norm(states + attention(states, states, states)), (N, D), for samples with `shape` (B, T).

    `layer` is None for one head without projections.
    """
    residual = states.expand()
    if layer is None:
        context, context_backward = _single_head(residual.view(*shape, -1))
    else:
        context, context_backward = _multi_head(layer, states, shape, grads)
    outputs, norm_backward = layer_norm(norm, context.add_(residual), grads)

    def backward(grad: Tensor) -> Tensor:
        grad = norm_backward(grad)
        if layer is None:
            return states.sum_by_row(grad.add_(context_backward(grad)))
        return states.sum_by_row(grad).add_(context_backward(grad))

    return outputs, backward


def _single_head(states: Tensor) -> tuple[Tensor, Backward]:
    """Return the context (N, D) of a single head without projections over states (B, T, D)."""
    scaled_bmm = _scaled_bmm(states)
    weights, softmax_backward = softmax(scaled_bmm(states, states.mT))

    def backward(grad: Tensor) -> Tensor:
        grad = grad.view_as(states)
        to_scores = softmax_backward(torch.bmm(grad, states.mT))
        # The states are both queries and keys, so one product computes the sum of their gradients.
        to_states = scaled_bmm(to_scores + to_scores.mT, states)
        return to_states.baddbmm_(weights.mT, grad).flatten(0, 1)

    return torch.bmm(weights, states).flatten(0, 1), backward


def _multi_head(layer: Projections, states: Rows, shape: torch.Size, grads: Grads) -> tuple[Tensor, Backward]:
    """Return the output (N, D) of multi-head self-attention, with all three projections in one product."""
    heads, width = layer.heads, layer.head_width
    weight = torch.cat([layer.query.weight, layer.key.weight, layer.value.weight])
    projected = onednn_matmul(states.rows, weight.t()).view(-1, 3 * heads, width).transpose(0, 1)  # (3 H, R, d)
    by_step = projected if states.indices is None else projected.index_select(1, states.indices)
    query, key, value = by_step.reshape(3, heads * shape[0], shape[1], width)
    context, attention_backward = _attention(query, key, value)
    joined = context.view(heads, -1, width).transpose(0, 1).reshape(-1, heads * width)

    def backward(grad: Tensor) -> Tensor:
        grads[layer.output.weight] = onednn_matmul(grad.t(), joined)
        to_heads = onednn_matmul(grad, layer.output.weight).view(-1, heads, width).transpose(0, 1)
        to_parts = torch.stack(attention_backward(to_heads.reshape(context.shape)))
        by_position = to_parts.view(3 * heads, -1, width).transpose(0, 1)
        grad = states.sum_by_row(by_position.reshape(-1, 3 * heads * width))
        to_weights = onednn_matmul(grad.t(), states.rows).chunk(3)
        for projection, to_weight in zip((layer.query, layer.key, layer.value), to_weights, strict=True):
            grads[projection.weight] = to_weight
        return onednn_matmul(grad, weight)

    return onednn_matmul(joined, layer.output.weight.t()), backward


def _attention(
    query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
    """Return softmax(Q Kᵀ / √d) V for queries, keys and values (any, T, d), and a function that returns their
    gradients."""
    scaled_bmm = _scaled_bmm(query)
    weights, softmax_backward = softmax(scaled_bmm(query, key.mT))

    def backward(grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        to_scores = softmax_backward(torch.bmm(grad, value.mT))
        return scaled_bmm(to_scores, key), scaled_bmm(to_scores.mT, query), torch.bmm(weights.mT, grad)

    return torch.bmm(weights, value), backward


def _scaled_bmm(query: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return partial(torch.baddbmm, query.new_zeros(()), beta=0, alpha=query.shape[-1] ** -0.5)


def softmax(scores: Tensor) -> tuple[Tensor, Backward]:
    """Return the softmax over the last dimension, with short rows padded (see `fast.softmax`)."""
    time, missing = scores.shape[-1], LANES - scores.shape[-1]
    weights = (F.pad(scores, (0, missing), value=-torch.inf) if missing > 0 else scores).softmax(-1)

    def backward(grad: Tensor) -> Tensor:
        padded = F.pad(grad, (0, missing)) if missing > 0 else grad
        to_scores = torch._softmax_backward_data(padded, weights, -1, weights.dtype)
        return to_scores[..., :time] if missing > 0 else to_scores

    return weights[..., :time] if missing > 0 else weights, backward


def layer_norm(norm: nn.LayerNorm, states: Tensor, grads: Grads) -> tuple[Tensor, Backward]:
    """Return the layer normalization of states (N, D)."""
    outputs, mean, deviation = torch.native_layer_norm(
        states, norm.normalized_shape, norm.weight, norm.bias, norm.eps
    )

    def backward(grad: Tensor) -> Tensor:
        to_states: Tensor
        to_states, grads[norm.weight], grads[norm.bias] = torch.ops.aten.native_layer_norm_backward(
            grad, states, norm.normalized_shape, mean, deviation, norm.weight, norm.bias, [True, True, True]
        )
        return to_states

    return outputs, backward


def linear_backward(layer: nn.Linear, states: Tensor, grad: Tensor, grads: Grads) -> Tensor:
    grads[layer.weight], grads[layer.bias] = onednn_matmul(grad.t(), states), grad.sum(0)
    return onednn_matmul(grad, layer.weight)


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of logits (N, classes), and its gradient with respect to the logits."""
    aten, classes = torch.ops.aten, logits.shape[1]
    log_probabilities = F.pad(logits, (0, max(LANES - classes, 0)), value=-torch.inf).log_softmax(1)
    options = (targets, None, 1, -100)  # no class weights, mean, index to ignore
    loss, count = aten.nll_loss_forward(log_probabilities, *options)
    grad = aten.nll_loss_backward(torch.ones_like(loss), log_probabilities, *options, count)
    return loss, torch._log_softmax_backward_data(grad, log_probabilities, 1, grad.dtype)[:, :classes]
