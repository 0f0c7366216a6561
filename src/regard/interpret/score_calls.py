"""Record the scores of Regard's own attention layers as products of query and key in the autograd graph.

`trace_layer` and not `regard.record`: the split of a score also needs the mask, and the parts of the layer that
scaled or changed the product.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.descriptions import part_name
from regard.attention.layer import AttentionLayer, LayerCall, attention_layers, trace_layer
from regard.attention.names import short_name
from regard.attention.parts import Forgetting, Selective, positions_of
from regard.attention.scores import Cosine, Dot, General, Scalable, ScaledDot, SoftCapped
from regard.viz.subject import Calls, ForwardPass, ScoreCall

BILINEAR = (Dot, ScaledDot, General, Scalable, Cosine, SoftCapped)
"""Scores that are products of query and key, times a factor that can be fixed."""


def own_forward_pass(model: nn.Module, run: Callable[[], Any]) -> ForwardPass:
    """Return the forward pass of one of Regard's models; `run` runs it on one input."""
    return ForwardPass(
        run=run,
        record=partial(record_calls, model),
        embeddings=frozenset(
            module
            for name, module in model.named_modules()
            if isinstance(module, nn.Embedding) or name.rpartition(".")[2] == "embedding"
        ),
    )


@contextmanager
def record_calls(model: nn.Module) -> Iterator[Calls]:
    """Record the calls of all attention layers of a model for one input inside the block."""
    calls: dict[str, list[ScoreCall]] = {}
    layers = attention_layers(model)
    with ExitStack() as stack:
        traces = {name: stack.enter_context(trace_layer(layer)) for name, layer in layers.items()}
        yield calls
    for name, traced in traces.items():
        if traced:
            calls[short_name(name)] = [make_call(layers[name], call) for call in traced]


def make_call(layer: AttentionLayer, trace: LayerCall) -> ScoreCall:
    """Return one call of a layer for one input, with the factors and additions that make its scores."""
    query, key, value = trace.query[0], trace.key[0], trace.value[0]
    weights, scores = trace.weights[0].detach(), trace.scores[0].detach()
    mask = None if trace.mask is None else trace.mask.expand_as(trace.scores)[0]
    refusal, additions = _refusal(layer), dict[str, Tensor]()
    if refusal:
        return ScoreCall(query, key, value, weights, scores, torch.ones(()), additions, mask, (), refusal)
    with torch.no_grad():
        products = query.double() @ key.double().transpose(-1, -2)
        factors, remarks = _factors(layer, query.double(), products)
        if layer.score.rescale(products[None], trace.mask) is not products:
            factors = factors * layer.score.rescale(torch.ones_like(products)[None], trace.mask)[0]
        if layer.bias is not None:
            additions[part_name(layer.bias)] = layer.bias(
                *positions_of(scores.shape[1], scores.shape[2], scores.device)
            ).double()
        if layer.combination is not None:
            before = factors * products + sum(additions.values())
            additions[part_name(layer.combination)] = scores.double() - before
            remarks = (*remarks, f"{part_name(layer.combination)} is fixed")
    return ScoreCall(query, key, value, weights, scores, factors, additions, mask, remarks)


def _refusal(layer: AttentionLayer) -> str:
    if layer.linear is not None:
        return f"{part_name(layer.linear)} has no scores: its weights are those that its recurrence implies"
    if layer.combination is not None and not isinstance(layer.combination, Forgetting | Selective):
        return f"{part_name(layer.combination)} combines several scores, so no score belongs to this weight alone"
    if type(layer.score) not in BILINEAR:
        return f"the score {part_name(layer.score)} is not a sum of products of query and key"
    return ""


def _factors(layer: AttentionLayer, query: Tensor, products: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """Return the factors between products of query and key (H, Tq, Tk) and scores, and what is fixed in them."""
    score = layer.score
    if isinstance(score, Cosine):
        lengths = query.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        return score.gain.double() / lengths, ("lengths of queries and keys are fixed (cosine)",)
    factors = torch.full((), score.scale(query.shape[-1]), dtype=torch.float64)
    if isinstance(score, SoftCapped):
        factors = torch.full((), query.shape[-1] ** -0.5, dtype=torch.float64)
        capped = score.cap * torch.tanh(products * factors / score.cap)
        ratio = torch.where(products == 0, 1.0, capped / (products * factors))
        return factors * ratio, ("the ratio of the capped score to the score is fixed (soft_capped)",)
    return factors, ()
