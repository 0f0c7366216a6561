"""Models that learn Regard's tasks, whose relevant inputs are known: trained once per seed and stored.

What is known of a learned model is the relevance of its task: the inputs from which the right answer derives. Its
heads and edges are not known. A task's relevance marks, for example, the letters that are counted; a changed
letter that is not marked can change the answer too.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.io.writing import make_folder
from regard.runs.loading import load
from regard.runs.training import train
from regard_lab.bench.known_models import KnownModel
from regard_lab.programs.program import Family


@dataclass(frozen=True)
class LearnedModel:
    """A task of Regard and the flags of its training."""

    task: str
    family: Family
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Flags of `regard train`; the defaults of the task apply to all others."""


SMALL_TRANSFORMER: dict[str, Any] = {
    "model": "transformer",
    "max_len": 8,
    "vocab_size": 8,
    "hidden": 64,
    "enc_layers": 1,
    "dec_layers": 1,
    "inner": 128,
    "steps": 800,
    "lr": 0.003,
}
"""Flags with which a Transformer learns a reordering task in 10 to 20 s of CPU time."""
LEARNED: dict[str, LearnedModel] = {
    "counting": LearnedModel("counting", "encoder"),
    "difference": LearnedModel("difference", "encoder", {"self_att": True}),
    "signal": LearnedModel("signal", "encoder", {"pos_enc": True}),
    "signal2": LearnedModel("signal2", "encoder"),
    "dates": LearnedModel("dates", "encoder-decoder", {"steps": 400}),
    "copy": LearnedModel("copy", "encoder-decoder", SMALL_TRANSFORMER),
    "reverse": LearnedModel("reverse", "encoder-decoder", {**SMALL_TRANSFORMER, "steps": 1500}),
    "sort": LearnedModel("sort", "encoder-decoder", {**SMALL_TRANSFORMER, "enc_layers": 2}),
    "induction": LearnedModel("induction", "decoder-only"),
    "mqar": LearnedModel("mqar", "decoder-only"),
    "dyck": LearnedModel("dyck", "decoder-only"),
}
"""Learned models by name. All of them answer at least 95 % of unseen inputs of their task correctly."""


def learned_model(name: str, seed: int, folder: Path) -> KnownModel:
    """Return a learned model, trained with `seed` if `folder` does not contain it.

    An interrupted training continues where it stopped. Raises `InputError` for a damaged run.
    """
    spec = LEARNED[name]
    flags = {**spec.flags, "seed": seed}
    digest = hashlib.sha256(json.dumps([spec.task, flags], sort_keys=True).encode()).hexdigest()[:8]
    savepath = folder / f"{name}-seed-{seed}-{digest}"
    path = savepath / spec.task
    run = load(path) if (path / "config.json").exists() else None
    if run is None or run.step < run.config.training.steps:
        make_folder(savepath)
        run = train(spec.task, savepath=savepath, resume=run is not None, progress=False, **flags)
    return KnownModel(name=name, kind="learned", family=spec.family, seed=seed, subject=run, circuit=None)
