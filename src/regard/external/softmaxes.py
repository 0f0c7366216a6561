"""Softmaxes of layers that work attention out by hand: what comes out of one can be changed.

What such layers do is recorded from what they return, see `outputs`, and from named places.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.external.capture_session import CaptureSession, InterventionSession
from regard.external.folding import heads_of

SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax)
BANDED = "one_sided_attn_window_size"
"""What layers have that attend in bands (see `bands`), their heads after their steps."""


def patch_softmax(looking: Sequence[CaptureSession], weights: Tensor, args: Any, kwargs: Any) -> Tensor:
    """Change what comes out of a softmax in a layer that works by hand."""
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if dim not in (-1, weights.dim() - 1) or weights.dim() < 3:
        return weights
    for session in looking:
        for layer in session.tracker.running[:-3:-1] if session.intervenes else ():
            if session.intervenes_on(layer):
                if session.next(layer) is not None:
                    weights = _by_hand(session, layer, weights)
                    if isinstance(session, InterventionSession):
                        session.after[id(session.tracker.module(layer))] = weights.detach()
                break
    return weights


def _by_hand(session: CaptureSession, layer: str, weights: Tensor) -> Tensor:
    """Change weights as a layer has them: (B, H, Tq, Tk), or (B H, Tq, Tk), or with heads after the steps."""
    module = session.tracker.module(layer)
    heads = heads_of(module) or 1
    if weights.dim() == 3:
        split = weights.unflatten(0, (-1, heads)) if len(weights) % heads == 0 else weights.unsqueeze(1)
        return session.changed(split, _seen(split)).reshape(weights.shape)
    if hasattr(module, BANDED):
        if session.intervened_key is not None:
            raise InputError(
                f"{layer} attends in bands, of which no single weight can be set: change whole heads"
            )
        split = weights.transpose(1, 2)
        return session.changed(split, _seen(split)).transpose(1, 2)
    if weights.dim() > 4:
        split = weights.reshape(-1, *weights.shape[-3:])
        return session.changed(split, _seen(split)).reshape(weights.shape)
    return session.changed(weights, _seen(weights))


def _seen(weights: Tensor) -> Tensor:
    return (weights != 0).any(1, keepdim=True)
