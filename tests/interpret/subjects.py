"""Small runs with random parameters, one of each family, for tests of explanation methods."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

import regard

TINY: dict[str, Any] = {"hidden": 16, "heads": 2, "steps": 1, "batchsize": 4, "progress": False}


def _scatter(run: Any) -> Any:
    """Draw parameters large enough that the answers of the model depend on its inputs."""
    torch.manual_seed(3)
    for parameter in run.model.eval().parameters():
        nn.init.normal_(parameter, std=0.7 if parameter.dim() > 1 else 0.3)
    return run


def query_run(folder: Path) -> Any:
    """Return a run of an encoder with learned queries (post-norm)."""
    run = regard.train("counting", multihead=True, enc_layers=1, pos_enc=True, max_len=8, savepath=folder, **TINY)
    return _scatter(run)


def language_run(folder: Path, **flags: Any) -> Any:
    """Return a run of a decoder-only model with two layers of two heads."""
    return _scatter(regard.train("induction", feed_forward=True, inner=24, savepath=folder, **flags, **TINY))


def pair_run(folder: Path) -> Any:
    """Return a run of an encoder-decoder."""
    options = {"model": "transformer", "inner": 24, "enc_layers": 1, "dec_layers": 2}
    return _scatter(regard.train("copy", savepath=folder, **options, **TINY))
