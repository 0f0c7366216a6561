"""A model as it would be before its training: what a head is compared with, before anything is said of it."""

import copy
from typing import Any

import torch
from torch import nn


def random_init(model: nn.Module, seed: int) -> nn.Module:
    """Return a model with parameters as they are drawn before training, or where nobody knows how, with its own
    in another order."""
    config, kind = getattr(model, "config", None), type(model)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if config is not None and hasattr(kind, "_from_config"):
            automatic: Any = kind
            drawn: nn.Module = automatic._from_config(copy.deepcopy(config))
            return drawn
        found = copy.deepcopy(model)
        for each in found.parameters():
            each.data = each.data.flatten()[torch.randperm(each.numel())].reshape(each.shape)
        return found
