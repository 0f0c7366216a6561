"""Loss and gradient of a query model without autograd.

Replaces `QueryModel.forward` with the layers that it calls, the cross-entropy and `backward()` in a training
step. Gain: training Signal 2 takes 1.8 times as long without it (docs/dev/benchmarks.md, "Fast paths"). Losses agree
with autograd's to 3e-7 in the first 25 steps. The fast path is not used while attention is recorded or changed, for
padded batches, `vary_len`, frozen parameters, several processes, other devices, scores other than `scaled_dot`, custom
layers or positions, or with `REGARD_REFERENCE=1` (see `QueryModel.fast_gradient`).

The models are so small that most of the time of a training step is the overhead of autograd for many small
operations. Three properties of the model save computations that autograd would repeat:

- The inputs have few distinct rows: one for each letter, or for each letter at each step. Each distinct row is
projected once.
- Without encoder and positions, a sample is a vector of letter counts, and the memory consists of the letters.
- The queries are the same for every sample. The key projection is applied to the query instead of the memory,
q · K m = (Kᵀ q) · m, and the value projection is applied to the weighted sum, Σ w (V m) = V (Σ w m).

The functions of layers return the output and a function `backward`, which maps the gradient of the output to the
gradient of the input, and stores the gradients of the parameters in `grads`.

Letters: B samples, T input steps, To output steps, N steps of all samples, R distinct rows, H heads, d width of a
head, D width.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.fast.onednn import onednn_matmul
from regard.fast.softmax import LANES

Grads = dict[Tensor, Tensor]  # Maps the name of a parameter to its gradient
Backward = Callable[[Tensor], Tensor]  # Maps the gradient of an output to the gradient of the input
PooledBackward = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Maps the gradient of pooled rows to the gradients of the keys (H To, D) and of the rows of the memory."""


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

    rows: Tensor  # (R, D)
    indices: Tensor | None  # (N,) int64, index of the row for each step; None if row n belongs to step n

    def expand(self) -> Tensor:
        return self.rows if self.indices is None else self.rows.index_select(0, self.indices)

    def sum_by_row(self, grad: Tensor) -> Tensor:
        if self.indices is None:
            return grad
        return grad.new_zeros(len(self.rows), grad.shape[1]).index_add_(0, self.indices, grad)


def feed_forward(layer: Any, norm: nn.LayerNorm, states: Tensor, grads: Grads) -> tuple[Tensor, Backward]:
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
    """Return norm(states + attention(states, states, states)), (N, D), for samples with `shape` (B, T). `layer`
    is None for one head without projections."""
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
    """Return softmax(Q Kᵀ / √d) V for queries, keys and values (any, T, d), and a function that returns gradients."""
    scaled_bmm = _scaled_bmm(query)
    weights, softmax_backward = softmax(scaled_bmm(query, key.mT))

    def backward(grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        to_scores = softmax_backward(torch.bmm(grad, value.mT))
        return scaled_bmm(to_scores, key), scaled_bmm(to_scores.mT, query), torch.bmm(weights.mT, grad)

    return torch.bmm(weights, value), backward


def _scaled_bmm(query: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return partial(torch.baddbmm, query.new_zeros(()), beta=0, alpha=query.shape[-1] ** -0.5)


def softmax(scores: Tensor) -> tuple[Tensor, Backward]:
    """Return the softmax over the last dimension, with short rows padded (see `regard.fast.softmax`)."""
    time, missing = scores.shape[-1], LANES - scores.shape[-1]
    weights = (F.pad(scores, (0, missing), value=-torch.inf) if missing > 0 else scores).softmax(-1)

    def backward(grad: Tensor) -> Tensor:
        padded = F.pad(grad, (0, missing)) if missing > 0 else grad
        to_scores = torch._softmax_backward_data(padded, weights, -1, weights.dtype)
        return to_scores[..., :time] if missing > 0 else to_scores

    return weights[..., :time] if missing > 0 else weights, backward


def layer_norm(norm: nn.LayerNorm, states: Tensor, grads: Grads) -> tuple[Tensor, Backward]:
    """Return the layer normalization of states (N, D)."""
    outputs, mean, deviation = torch.native_layer_norm(states, norm.normalized_shape, norm.weight, norm.bias, norm.eps)

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


class QueryGradient:
    """Loss, logits and gradient of a query model that satisfies the conditions in the docstring of this module.
    `layers`: all attention layers of the model."""

    def __init__(self, model: Any, layers: Iterable[Any]) -> None:
        self.model, self.layers = model, list(layers)

    @property
    def hooked(self) -> bool:
        return any(layer.hook is not None for layer in self.layers)

    @torch.inference_mode()
    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Grads]:
        """Return the mean cross-entropy in nats, logits (B, To, classes), and the gradient of every parameter.
        inputs (B, T) and targets (B, To), int64."""
        model, grads, backwards = self.model, Grads(), list[Backward]()
        states, backward = _embed(model, inputs, grads)
        backwards.append(backward)
        for layer in model.encoder:
            layers, norms = projections(layer.self_attention), (layer.attention_residual, layer.feed_forward_residual)
            inner, attention_backward = self_attention(layers, norms[0].norm, states, inputs.shape, grads)
            outputs, backward = feed_forward(layer.feed_forward, norms[1].norm, inner, grads)
            states = Rows(outputs, None)
            backwards += [attention_backward, backward]
        outputs, backward = self._cross_attention(states, inputs, grads)
        backwards.append(backward)
        if model.self_attention is not None:
            layer, norm = projections(model.self_attention), model.self_attention_norm
            outputs, backward = self_attention(layer, norm, Rows(outputs, None), targets.shape, grads)
            backwards.append(backward)
        logits = torch.addmm(model.output.bias, outputs, model.output.weight.t())
        loss, grad = cross_entropy(logits, targets.flatten())
        grad = linear_backward(model.output, outputs, grad, grads)
        for backward in reversed(backwards):
            grad = backward(grad)
        return loss, logits.view(*targets.shape, -1), grads

    def _cross_attention(self, states: Rows, inputs: Tensor, grads: Grads) -> tuple[Tensor, Backward]:
        """Return norm(queries + attention(queries, memory)), (B To, D)."""
        model = self.model
        cross = projections(model.cross)
        keys, keys_backward = _project_queries(cross, model.queries, grads)
        if model.encoder or model.positions is not None:
            pooled, pooled_backward = _pool_steps(keys, states, inputs.shape)
        else:
            counts = model.one_hot.index_select(0, inputs.flatten()).view(*inputs.shape, -1).sum(1)
            pooled, pooled_backward = _pool_letters(keys, states.rows, counts)
        context, context_backward = _project_pooled(cross, pooled, grads)
        outputs, norm_backward = layer_norm(model.cross_norm, context.add(model.queries).flatten(0, 1), grads)

        def backward(grad: Tensor) -> Tensor:
            grad = norm_backward(grad).view(context.shape)
            grads[model.queries] = grad.sum(0)
            to_keys, to_states = pooled_backward(context_backward(grad))
            keys_backward(to_keys)
            return to_states

        return outputs, backward


def projections(layer: nn.Module) -> Projections | None:
    """Return the layer if it has projections (multi-head attention), otherwise None."""
    return cast(Projections, layer) if hasattr(layer, "output") else None


def _embed(model: Any, inputs: Tensor, grads: Grads) -> tuple[Rows, Backward]:
    """Return a row for each letter, or for each letter at each step, and the row index of each input in (B, T)."""
    embedding, positions, time = model.embedding, model.positions, inputs.shape[1]
    rows, indices = embedding.weight.t().contiguous() + embedding.bias, inputs
    if positions is not None:
        rows = positions(rows.unsqueeze(1).expand(-1, time, -1)).flatten(0, 1)
        indices = inputs * time + torch.arange(time)

    def backward(grad: Tensor) -> Tensor:
        if positions is not None:
            by_step = grad.view(-1, time, grad.shape[1])
            grad = by_step.sum(1)
            learned = getattr(positions, "weight", None)
            if learned is not None:
                grads[learned] = F.pad(by_step.sum(0), (0, 0, 0, len(learned) - time))
        grads[embedding.weight], grads[embedding.bias] = grad.t().contiguous(), grad.sum(0)
        return grad

    return Rows(rows, indices.flatten()), backward


def _project_queries(
    layer: Projections | None, queries: Tensor, grads: Grads
) -> tuple[Tensor, Callable[[Tensor], None]]:
    """Return Kᵀ q (H To, D) for the queries q of all heads; its product with the memory gives the scores."""
    if layer is None:
        scale = float(queries.shape[1] ** -0.5)

        def single_backward(grad: Tensor) -> None:
            grads[queries].add_(grad, alpha=scale)

        return queries * scale, single_backward
    heads, scale = layer.heads, float(layer.head_width**-0.5)
    key_weights = layer.key.weight.unflatten(0, (heads, -1))  # (H, d, D)
    projected = (queries @ layer.query.weight.t()).unflatten(1, (heads, -1)).transpose(0, 1) * scale  # (H, To, d)

    def backward(grad: Tensor) -> None:
        by_head = grad.unflatten(0, (heads, -1))  # (H, To, D)
        grads[layer.key.weight] = torch.bmm(projected.mT, by_head).flatten(0, 1)
        to_projected = torch.bmm(by_head, key_weights.mT).mul_(scale).transpose(0, 1).flatten(1)  # (To, H d)
        grads[layer.query.weight] = to_projected.t() @ queries
        grads[queries].addmm_(to_projected, layer.query.weight)

    return torch.bmm(projected, key_weights).flatten(0, 1), backward


def _pool_letters(keys: Tensor, letters: Tensor, counts: Tensor) -> tuple[Tensor, PooledBackward]:
    """Return the weighted sums (B, H To, D) of letters (R, D) with `counts` (B, R), for keys (H To, D). The
    weight of a letter that occurs n times in a sample is multiplied by n: softmax(score + log n)."""
    # Rows are padded once, so that the softmax does not pad them at each call.
    missing = max(LANES - len(letters), 0)
    rows, shape = F.pad(letters, (0, 0, 0, missing)), (len(counts), len(keys), -1)
    log_counts = F.pad(counts.log_(), (0, missing), value=-torch.inf).unsqueeze(1)
    weights, softmax_backward = softmax(log_counts + keys @ rows.t())
    flat = weights.flatten(0, 1)  # (B H To, R)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        grad = grad.flatten(0, 1)
        to_scores = softmax_backward((grad @ rows.t()).view(shape)).sum(0)
        return to_scores @ rows, (flat.t() @ grad).addmm_(to_scores.t(), keys)[: len(letters)]

    return (flat @ rows).view(shape), backward


def _pool_steps(keys: Tensor, states: Rows, shape: torch.Size) -> tuple[Tensor, PooledBackward]:
    """Return the weighted sums (B, H To, D) of the steps of each sample, for keys (H To, D)."""
    flat = states.expand()
    memory = flat.view(*shape, -1)
    weights, softmax_backward = softmax((keys @ flat.t()).view(-1, *shape))  # (H To, B, T)
    by_sample = weights.transpose(0, 1)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        to_scores = softmax_backward(torch.bmm(grad, memory.mT).transpose(0, 1)).flatten(1)
        to_memory = torch.bmm(by_sample.mT, grad).flatten(0, 1)
        return to_scores @ flat, states.sum_by_row(to_memory.addmm_(to_scores.t(), keys))

    return torch.bmm(by_sample, memory), backward


def _project_pooled(layer: Projections | None, pooled: Tensor, grads: Grads) -> tuple[Tensor, Backward]:
    """Return the context (B, To, D) for the weighted sums of the memory, (B, H To, D)."""
    if layer is None:
        return pooled, lambda grad: grad
    heads, batch = layer.heads, len(pooled)
    values = layer.value.weight.unflatten(0, (heads, -1))  # (H, d, D)
    by_head = pooled.unflatten(1, (heads, -1)).transpose(0, 1).flatten(1, 2)  # (H, B To, D)
    joined = torch.bmm(by_head, values.mT).transpose(0, 1).flatten(1)  # (B To, H d)

    def backward(grad: Tensor) -> Tensor:
        grad = grad.flatten(0, 1)
        grads[layer.output.weight] = grad.t() @ joined
        to_heads = (grad @ layer.output.weight).unflatten(1, (heads, -1)).transpose(0, 1)  # (H, B To, d)
        grads[layer.value.weight] = torch.bmm(to_heads.mT, by_head).flatten(0, 1)
        to_pooled = torch.bmm(to_heads, values).view(heads, batch, -1, values.shape[2])
        return to_pooled.transpose(0, 1).flatten(1, 2)

    return (joined @ layer.output.weight.t()).view(batch, -1, len(layer.output.weight)), backward
