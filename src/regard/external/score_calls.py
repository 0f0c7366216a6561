"""Record the scores of external models as products of query and key in the autograd graph.

Queries and keys are those that a layer passes to the attention interface of transformers, or to
`F.scaled_dot_product_attention`: after rotary positions, norms and biases of its projections.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.records import Recorder
from regard.external.adapters import call_model
from regard.external.attention_call import AttentionCall, AttentionInputs
from regard.external.capture_session import CaptureSession
from regard.external.forward_tracker import ForwardTracker
from regard.external.model_input import find_input
from regard.external.recording import capture
from regard.external.torch_attention import mask_from_bias
from regard.viz.forward_pass import Calls, ForwardPass, ScoreCall

AGREEMENT = 1e-2
"""Largest accepted difference between the logarithms of weights and scores, up to a constant of the row."""
BIAS = "position bias"
"""Name of a bias that a model adds to its scores."""
SMALL = 1e-4
"""Weights below this are not compared: their logarithms are rounded."""


def make_forward_pass(subject: Any, input: str) -> ForwardPass:
    """Return the pass of an `ExternalModel` on an input."""
    model = subject.model
    answer = subject.adapter.answer(model, find_input(subject.inputs, input), subject.generate)
    return ForwardPass(
        run=partial(call_model, model, answer.prepared.arguments),
        record=partial(record_calls, model),
        embeddings=token_embeddings(model),
    )


def token_embeddings(model: nn.Module) -> frozenset[nn.Module]:
    """Return the modules that embed tokens: those with as many rows as the input embedding."""
    getter: Any = getattr(model, "get_input_embeddings", None)
    try:
        embedding = None if getter is None else getter()
    except NotImplementedError:
        embedding = None
    if not isinstance(embedding, nn.Embedding):
        return frozenset()
    rows = embedding.num_embeddings
    modules = (module for module in model.modules() if isinstance(module, nn.Embedding))
    return frozenset(module for module in modules if module.num_embeddings == rows)


@contextmanager
def record_calls(model: nn.Module) -> Iterator[Calls]:
    session = _InputSession(ForwardTracker(model))
    with capture(session):
        yield session.calls


class _InputSession(CaptureSession):
    """A session that keeps queries, keys and values with their gradients."""

    def __init__(self, tracker: ForwardTracker) -> None:
        super().__init__(Recorder(), tracker, None)
        self.calls: dict[str, list[ScoreCall]] = {}

    def record_call(self, name: str, call: AttentionCall) -> None:
        if call.inputs is not None:
            weights, mask = call.rows(slice(None))
            made = make_call(call.inputs(), weights.detach(), mask)
            self.calls.setdefault(name.partition("#")[0], []).append(made)


def make_call(inputs: AttentionInputs, weights: Tensor, mask: Tensor | None) -> ScoreCall:
    """Return one call for one input, with the factors and additions that make its scores.

    `weights` (B, H, Tq, Tk) and `mask` are those of the call. The scores are compared with the weights.
    """
    with torch.enable_grad():
        query, key, value = inputs.query[0], inputs.key[0], inputs.value[0]
    with torch.no_grad():
        heads = len(query)
        keys = key.double().repeat_interleave(heads // len(key), 0)
        products = query.double() @ keys.transpose(-1, -2) * inputs.scale
        factors, remarks = torch.full((), inputs.scale, dtype=torch.float64), []
        scores = products
        if inputs.cap is not None:
            scores = inputs.cap * torch.tanh(products / inputs.cap)
            factors = factors * torch.where(products == 0, 1.0, scores / products)
            remarks = ["the ratio of the capped score to the score is fixed"]
        allowed = None if mask is None else mask.expand(weights.shape)[0]
        additions: dict[str, Tensor] = {}
        for bias in inputs.biases:
            values = bias[0, ..., : scores.shape[-1]].double()
            values = torch.where(mask_from_bias(bias)[0, ..., : scores.shape[-1]], values, 0.0)
            if values.any():
                additions[BIAS] = additions[BIAS] + values if BIAS in additions else values
        scores = sum(additions.values(), scores)
        refusal = (
            ""
            if _agree(weights[0].double(), scores)
            else ("its weights are not a softmax of products of query and key, so its scores cannot be split")
        )
    return ScoreCall(query, key, value, weights[0], scores, factors, additions, allowed, tuple(remarks), refusal)


def _agree(weights: Tensor, scores: Tensor) -> bool:
    """Return whether weights (H, Tq, Tk) are proportional to the exponentials of the scores in each row."""
    large = weights > SMALL
    difference = torch.where(large, weights.clamp(min=SMALL).log() - scores, torch.nan)
    spread = difference.nan_to_num(-torch.inf).amax(-1) - difference.nan_to_num(torch.inf).amin(-1)
    return bool((spread.nan_to_num(0.0) <= AGREEMENT).all())
