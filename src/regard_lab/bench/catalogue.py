"""All models of the bench: compiled programs, traps, trained-in programs and learned tasks."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import unknown_choice
from regard.io import make_folder
from regard.runs.loading import load
from regard.runs.training import train
from regard_lab.bench.known_models import Kind, KnownModel, compiled_model, trap_model
from regard_lab.bench.trained_in import TRAINED_IN, trained_in_model
from regard_lab.programs.language import Family
from regard_lab.programs.library import PROGRAMS
from regard_lab.programs.traps import TRAPS

# Models that learn Regard's tasks, whose relevant inputs are known: trained once per seed and stored.
#
# What is known of a learned model is the relevance of its task: the inputs from which the right answer derives.
# Its heads and edges are not known. A task's relevance marks, for example, the letters that are counted; a
# changed letter that is not marked can change the answer too.


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


ALL = "all"
NAMES: dict[Kind, Iterable[str]] = {
    "compiled": PROGRAMS, "trap": TRAPS, "trained-in": TRAINED_IN, "learned": LEARNED
}  # fmt: skip
"""Names of the models of each kind."""
QUICK = (
    "trained-in/previous",
    "learned/counting",
    "learned/difference",
    "learned/signal",
    "learned/induction",
)
"""Trained models of the quick bench, besides all compiled models and traps: those that train quickly. With five
seeds, two cores need about 10 minutes."""


@dataclass(frozen=True)
class KnownModelChoice:
    """One model of the bench, which is built when it is measured."""

    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    def build(self, seed: int, folder: Path) -> KnownModel:
        """Return the model; a model that is trained is stored in `folder`, and read from there if it exists."""
        if self.kind == "learned":
            return learned_model(self.name, seed, folder / "models")
        if self.kind == "trained-in":
            return trained_in_model(self.name, seed, folder / "models")
        return (trap_model if self.kind == "trap" else compiled_model)(self.name, seed)


def choose_models(choice: str | Sequence[str] | None = None, *, quick: bool = False) -> list[KnownModelChoice]:
    """Return the chosen models, each once. None: all models, or with `quick` all except most trained models.

    A choice is "all", a kind (compiled, trap, trained-in, learned), the name of a model, KIND/NAME, or several of
    these separated by commas. A name that several kinds have chooses all of them. Raises `InputError` for an
    unknown name.

    >>> [str(model) for model in choose_models("learned/signal,dates")]
    ['learned/signal', 'learned/dates']
    """
    known = [KnownModelChoice(name, kind) for kind, names in NAMES.items() for name in names]
    if choice is None:
        return [model for model in known if not quick or model.kind in ("compiled", "trap") or str(model) in QUICK]
    texts = [text for part in ([choice] if isinstance(choice, str) else choice) for text in part.split(",")]
    chosen: dict[KnownModelChoice, None] = {}
    for text in texts:
        fitting = [model for model in known if text in (ALL, model.kind, model.name, str(model))]
        if not fitting:
            raise unknown_choice("model", text, [ALL, *NAMES, *dict.fromkeys(model.name for model in known)])
        chosen |= dict.fromkeys(fitting)
    return list(chosen)
