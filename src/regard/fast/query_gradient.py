"""The loss of a query model and its gradient, written out: how the primer's models train while nobody looks on.

The models are so small that autograd's account of many small operations is most of a step; `layer_gradients` says
in which form it is done without. `QueryModel.forward` is what is computed, and the two are tested to agree. Three
things help that autograd cannot know:

    What is read first is one of R rows: one for each letter, or for each letter at each step. They are projected
    once each, and picked for every sample then.
    Without encoder and positions, a sample is so many of each letter: that is all its memory.
    Queries are the same for every sample. So a query is brought to where the memory is, q · K m = (Kᵀ q) · m, and
    what it finds is projected after it has been weighed, Σ w (V m) = V (Σ w m).

Letters: B samples, T input steps, To output steps, N steps of all samples, H heads, d width of a head, D width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention import (
    Attention,
    EncoderLayer,
    LearnedPositions,
    MultiHeadAttention,
    ScaledDot,
    Sinusoidal,
    attention_layers,
)
from regard.attention.weights import LANES
from regard.fast.layer_gradients import (
    Back,
    Grads,
    Rows,
    attended,
    back_linear,
    cross_entropy,
    fed_forward,
    normed,
    softmax,
)
from regard.models.answer import AnswerModel
from regard.models.query import QueryModel

BackToBoth = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From the gradient of what was found to that of what was wanted, (H To, D), and of the memory's rows."""


class QueryGradient:
    """What makes the loss and the gradient of one query model."""

    def __init__(self, model: QueryModel) -> None:
        self.model, self.layers = model, list(attention_layers(model).values())

    @classmethod
    def of(cls, model: AnswerModel) -> "QueryGradient | None":
        """Return what knows the gradient of a model; None for models, scores, positions or layers of other kinds,
        and for those that are not trained whole, or not on a CPU."""
        if type(model) is not QueryModel or model.rest is not None:
            return None
        known = (
            (model.positions is None or type(model.positions) in (LearnedPositions, Sinusoidal))
            and all(type(layer) is EncoderLayer for layer in model.encoder)
            and all(type(layer.score) is ScaledDot for layer in attention_layers(model).values())
            and all(each.requires_grad and each.device.type == "cpu" for each in model.parameters())
        )
        return cls(model) if known else None

    @property
    def observed(self) -> bool:
        """Whether anybody records the model's attention, or intervenes in it: then it has to be worked out."""
        return any(layer.hook is not None for layer in self.layers)

    @torch.inference_mode()
    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Grads]:
        """Return the mean cross-entropy in nats, logits (B, To, classes), and the gradient of every parameter.

        inputs (B, T) and targets (B, To), int64.
        """
        model, grads, backs = self.model, Grads(), list[Back]()
        states, back = _embedded(model, inputs, grads)
        backs.append(back)
        for layer in model.encoder:
            assert isinstance(layer, EncoderLayer)
            made, back = _encoder_layer(layer, states, inputs.shape, grads)
            states = Rows(made, None)
            backs.append(back)
        found, back = _crossed(model, states, inputs, grads)
        backs.append(back)
        if model.self_attention is not None and model.self_attention_norm is not None:
            found, back = attended(
                model.self_attention, model.self_attention_norm, Rows(found, None), targets.shape, grads
            )
            backs.append(back)
        logits = torch.addmm(model.output.bias, found, model.output.weight.t())
        loss, grad = cross_entropy(logits, targets.flatten())
        grad = back_linear(model.output, found, grad, grads)
        for back in reversed(backs):
            grad = back(grad)
        return loss, logits.view(*targets.shape, -1), grads


def _embedded(model: QueryModel, inputs: Tensor, grads: Grads) -> tuple[Rows, Back]:
    """Return a row for each letter, or for each letter at each step, and which of them the inputs (B, T) are."""
    embedding, positions, time = model.embedding, model.positions, inputs.shape[1]
    rows, picked = embedding.weight.t().contiguous() + embedding.bias, inputs
    if positions is not None:
        rows = positions(rows.unsqueeze(1).expand(-1, time, -1)).flatten(0, 1)
        picked = inputs * time + torch.arange(time)

    def back(grad: Tensor) -> Tensor:
        if positions is not None:
            steps = grad.view(-1, time, grad.shape[1])
            grad = steps.sum(1)
            if isinstance(positions, LearnedPositions):
                grads[positions.weight] = F.pad(steps.sum(0), (0, 0, 0, len(positions.weight) - time))
        grads[embedding.weight], grads[embedding.bias] = grad.t().contiguous(), grad.sum(0)
        return grad

    return Rows(rows, picked.flatten()), back


def _encoder_layer(layer: EncoderLayer, states: Rows, shape: torch.Size, grads: Grads) -> tuple[Tensor, Back]:
    """Return self-attention and feed-forward over states, (N, D), each in its residual."""
    seen, back_seen = attended(layer.self_attention, layer.attention_residual.norm, states, shape, grads)
    made, back_made = fed_forward(layer.feed_forward, layer.feed_forward_residual.norm, seen, grads)
    return made, lambda grad: back_seen(back_made(grad))


def _crossed(model: QueryModel, states: Rows, inputs: Tensor, grads: Grads) -> tuple[Tensor, Back]:
    """Return norm(queries + attention(queries, memory)), (B To, D)."""
    wanted, back_wanted = _wanted(model, grads)
    if model.encoder or model.positions is not None:
        pooled, back_pooled = _among_steps(wanted, states, inputs.shape)
    else:
        often = model.one_hot.index_select(0, inputs.flatten()).view(*inputs.shape, -1).sum(1)
        pooled, back_pooled = _among_letters(wanted, states.rows, often)
    context, back_context = _projected(model.cross, pooled, grads)
    found, back_norm = normed(model.cross_norm, context.add(model.queries).flatten(0, 1), grads)

    def back(grad: Tensor) -> Tensor:
        grad = back_norm(grad).view(context.shape)
        grads[model.queries] = grad.sum(0)
        to_wanted, to_states = back_pooled(back_context(grad))
        back_wanted(to_wanted)
        return to_states

    return found, back


def _among_letters(wanted: Tensor, letters: Tensor, often: Tensor) -> tuple[Tensor, BackToBoth]:
    """Return what (H To, D) finds among letters (R, D), of which each sample has so many (B, R): (B, H To, D).

    A letter that stands n times in a sample has n shares of the weight, softmax(score + log n), and none for 0.
    """
    # As many as a vector register holds, so that no softmax has to fill up its rows.
    missing = max(LANES - len(letters), 0)
    rows, shape = F.pad(letters, (0, 0, 0, missing)), (len(often), len(wanted), -1)
    shares = F.pad(often.log_(), (0, missing), value=-torch.inf).unsqueeze(1)
    weights, back_weights = softmax(shares + wanted @ rows.t())
    flat = weights.flatten(0, 1)  # (B H To, R)

    def back(grad: Tensor) -> tuple[Tensor, Tensor]:
        grad = grad.flatten(0, 1)
        to_scores = back_weights((grad @ rows.t()).view(shape)).sum(0)
        return to_scores @ rows, (flat.t() @ grad).addmm_(to_scores.t(), wanted)[: len(letters)]

    return (flat @ rows).view(shape), back


def _among_steps(wanted: Tensor, states: Rows, shape: torch.Size) -> tuple[Tensor, BackToBoth]:
    """Return what (H To, D) finds in the steps of each sample: (B, H To, D)."""
    flat = states.spread()
    memory = flat.view(*shape, -1)
    weights, back_weights = softmax((wanted @ flat.t()).view(-1, *shape))  # (H To, B, T)
    there = weights.transpose(0, 1)

    def back(grad: Tensor) -> tuple[Tensor, Tensor]:
        to_scores = back_weights(torch.bmm(grad, memory.mT).transpose(0, 1)).flatten(1)
        to_memory = torch.bmm(there.mT, grad).flatten(0, 1)
        return to_scores @ flat, states.gather(to_memory.addmm_(to_scores.t(), wanted))

    return torch.bmm(there, memory), back


def _wanted(model: QueryModel, grads: Grads) -> tuple[Tensor, Callable[[Tensor], None]]:
    """Return what the queries look for in the memory as it is, (H To, D), the heads one after the other."""
    layer, queries = model.cross, model.queries
    if not isinstance(layer, MultiHeadAttention):
        scale = layer.score.scale(queries.shape[1])

        def back_one(grad: Tensor) -> None:
            grads[queries].add_(grad, alpha=scale)

        return queries * scale, back_one
    heads, scale = layer.heads, layer.score.scale(layer.head_width)
    keys = layer.key.weight.unflatten(0, (heads, -1))  # (H, d, D)
    each = (queries @ layer.query.weight.t()).unflatten(1, (heads, -1)).transpose(0, 1) * scale  # (H, To, d)

    def back(grad: Tensor) -> None:
        apart = grad.unflatten(0, (heads, -1))  # (H, To, D)
        grads[layer.key.weight] = torch.bmm(each.mT, apart).flatten(0, 1)
        projected = torch.bmm(apart, keys.mT).mul_(scale).transpose(0, 1).flatten(1)  # (To, H d)
        grads[layer.query.weight] = projected.t() @ queries
        grads[queries].addmm_(projected, layer.query.weight)

    return torch.bmm(each, keys).flatten(0, 1), back


def _projected(layer: Attention | MultiHeadAttention, pooled: Tensor, grads: Grads) -> tuple[Tensor, Back]:
    """Return the context (B, To, D) of what every head's queries found in the memory, (B, H To, D)."""
    if not isinstance(layer, MultiHeadAttention):
        return pooled, lambda grad: grad
    heads, batch = layer.heads, len(pooled)
    values = layer.value.weight.unflatten(0, (heads, -1))  # (H, d, D)
    found = pooled.unflatten(1, (heads, -1)).transpose(0, 1).flatten(1, 2)  # (H, B To, D)
    joined = torch.bmm(found, values.mT).transpose(0, 1).flatten(1)  # (B To, H d)

    def back(grad: Tensor) -> Tensor:
        grad = grad.flatten(0, 1)
        grads[layer.output.weight] = grad.t() @ joined
        apart = (grad @ layer.output.weight).unflatten(1, (heads, -1)).transpose(0, 1)  # (H, B To, d)
        grads[layer.value.weight] = torch.bmm(apart.mT, found).flatten(0, 1)
        to_found = torch.bmm(apart, values).view(heads, batch, -1, values.shape[2])
        return to_found.transpose(0, 1).flatten(1, 2)

    return (joined @ layer.output.weight.t()).view(batch, -1, len(layer.output.weight)), back
