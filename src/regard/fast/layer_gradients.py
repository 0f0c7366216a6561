"""Layers with their gradients written out, for what trains without autograd (`query_gradient`).

Each is a function that returns what it makes, and a function back, which takes the gradient of that to the
gradient of what it was made of, and puts those of its parameters into `grads` on the way. The layers themselves
say what is computed.

Letters: B samples, T steps, N steps of all samples, R rows, H heads, d width of a head, D width.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import Attention, FeedForward, MultiHeadAttention, product
from regard.attention.weights import LANES

Grads = dict[Tensor, Tensor]
"""Of each parameter."""
Back = Callable[[Tensor], Tensor]
"""From the gradient of what was made to that of what it was made of."""
Triple = tuple[Tensor, Tensor, Tensor]


class Rows(NamedTuple):
    """Some rows, and which of them stands at which step of every sample."""

    rows: Tensor
    """(R, D)"""
    picked: Tensor | None
    """(N,) int64; None where row n stands at step n."""

    def spread(self) -> Tensor:
        """Return what stands at every step, (N, D)."""
        return self.rows if self.picked is None else self.rows.index_select(0, self.picked)

    def gather(self, grad: Tensor) -> Tensor:
        """Return the gradient of all rows (R, any), of that of every step (N, any)."""
        if self.picked is None:
            return grad
        return grad.new_zeros(len(self.rows), grad.shape[1]).index_add_(0, self.picked, grad)


def fed_forward(layer: FeedForward, norm: nn.LayerNorm, states: Tensor, grads: Grads) -> tuple[Tensor, Back]:
    """Return norm(states + W2 relu(W1 states + b1) + b2), (N, D)."""
    inner = product(states, layer.inner.weight.t(), layer.inner.bias).relu_()
    outer = product(inner, layer.outer.weight.t(), layer.outer.bias)
    found, back_norm = normed(norm, outer.add_(states), grads)

    def back(grad: Tensor) -> Tensor:
        grad = back_norm(grad)
        to_inner = torch.ops.aten.threshold_backward(back_linear(layer.outer, inner, grad, grads), inner, 0)
        return grad.add_(back_linear(layer.inner, states, to_inner, grads))

    return found, back


def attended(
    layer: Attention | MultiHeadAttention, norm: nn.LayerNorm, states: Rows, shape: torch.Size, grads: Grads
) -> tuple[Tensor, Back]:
    """Return norm(states + attention(states, states, states)), (N, D), of samples with `shape` (B, T)."""
    here = states.spread()
    if isinstance(layer, MultiHeadAttention):
        context, back_context = _many_heads(layer, states, shape, grads)
    else:
        context, back_context = _one_head(here.view(*shape, -1))
    found, back_norm = normed(norm, context.add_(here), grads)

    def back(grad: Tensor) -> Tensor:
        grad = back_norm(grad)
        if isinstance(layer, MultiHeadAttention):
            return states.gather(grad).add_(back_context(grad))
        return states.gather(grad.add_(back_context(grad)))

    return found, back


def _one_head(states: Tensor) -> tuple[Tensor, Back]:
    """Return what one head without projections makes of states (B, T, D): (N, D)."""
    scaled = _scaled(states)
    weights, back_weights = softmax(scaled(states, states.mT))

    def back(grad: Tensor) -> Tensor:
        grad = grad.view_as(states)
        to_scores = back_weights(torch.bmm(grad, states.mT))
        # States are queries and keys alike, so two products are one with what both hand back.
        both = scaled(to_scores + to_scores.mT, states)
        return both.baddbmm_(weights.mT, grad).flatten(0, 1)

    return torch.bmm(weights, states).flatten(0, 1), back


def _many_heads(layer: MultiHeadAttention, states: Rows, shape: torch.Size, grads: Grads) -> tuple[Tensor, Back]:
    """Return what heads make of states, (N, D): all three projections in one product, side by side."""
    heads, width = layer.heads, layer.head_width
    weight = torch.cat([layer.query.weight, layer.key.weight, layer.value.weight])
    projected = product(states.rows, weight.t()).view(-1, 3 * heads, width).transpose(0, 1)  # (3 H, R, d)
    spread = projected if states.picked is None else projected.index_select(1, states.picked)
    query, key, value = spread.reshape(3, heads * shape[0], shape[1], width)
    context, back_context = _attention(query, key, value)
    joined = context.view(heads, -1, width).transpose(0, 1).reshape(-1, heads * width)

    def back(grad: Tensor) -> Tensor:
        grads[layer.output.weight] = product(grad.t(), joined)
        apart = product(grad, layer.output.weight).view(-1, heads, width).transpose(0, 1).reshape(context.shape)
        side = torch.stack(back_context(apart)).view(3 * heads, -1, width).transpose(0, 1)
        grad = states.gather(side.reshape(-1, 3 * heads * width))
        to_weights = product(grad.t(), states.rows).chunk(3)
        for part, each in zip((layer.query, layer.key, layer.value), to_weights, strict=True):
            grads[part.weight] = each
        return product(grad, weight)

    return product(joined, layer.output.weight.t()), back


def _attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Callable[[Tensor], Triple]]:
    """Return softmax(Q Kᵀ / √d) V of (any, T, d) each, and what takes its gradient back to all three."""
    scaled = _scaled(query)
    weights, back_weights = softmax(scaled(query, key.mT))

    def back(grad: Tensor) -> Triple:
        to_scores = back_weights(torch.bmm(grad, value.mT))
        return scaled(to_scores, key), scaled(to_scores.mT, query), torch.bmm(weights.mT, grad)

    return torch.bmm(weights, value), back


def _scaled(query: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what multiplies batches of matrices, and the product by 1 / √d of queries (any, T, d)."""
    return partial(torch.baddbmm, query.new_zeros(()), beta=0, alpha=query.shape[-1] ** -0.5)


def softmax(scores: Tensor) -> tuple[Tensor, Back]:
    """Return the softmax over the last dimension; short rows are filled up, as in `attention.weights`."""
    time, missing = scores.shape[-1], LANES - scores.shape[-1]
    full = (F.pad(scores, (0, missing), value=-torch.inf) if missing > 0 else scores).softmax(-1)

    def back(grad: Tensor) -> Tensor:
        filled = F.pad(grad, (0, missing)) if missing > 0 else grad
        found = torch._softmax_backward_data(filled, full, -1, full.dtype)
        return found[..., :time] if missing > 0 else found

    return full[..., :time] if missing > 0 else full, back


def normed(norm: nn.LayerNorm, states: Tensor, grads: Grads) -> tuple[Tensor, Back]:
    """Return a layer normalisation of states (N, D)."""
    found, mean, deviation = torch.native_layer_norm(
        states, norm.normalized_shape, norm.weight, norm.bias, norm.eps
    )

    def back(grad: Tensor) -> Tensor:
        to_states: Tensor
        to_states, grads[norm.weight], grads[norm.bias] = torch.ops.aten.native_layer_norm_backward(
            grad, states, norm.normalized_shape, mean, deviation, norm.weight, norm.bias, [True, True, True]
        )
        return to_states

    return found, back


def back_linear(layer: nn.Linear, states: Tensor, grad: Tensor, grads: Grads) -> Tensor:
    """Take the gradient of `layer(states)` (N, any) back to states (N, D)."""
    grads[layer.weight], grads[layer.bias] = product(grad.t(), states), grad.sum(0)
    return product(grad, layer.weight)


def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of logits (N, classes), and its gradient by them."""
    aten, classes = torch.ops.aten, logits.shape[1]
    believed = F.pad(logits, (0, max(LANES - classes, 0)), value=-torch.inf).log_softmax(1)
    how = (targets, None, 1, -100)  # the mean, without weights
    loss, count = aten.nll_loss_forward(believed, *how)
    grad = aten.nll_loss_backward(torch.ones_like(loss), believed, *how, count)
    return loss, torch._log_softmax_backward_data(grad, believed, 1, grad.dtype)[:, :classes]
