"""Sizes of a Transformer for translation, by name. What a size does not say is the task's own default."""

from regard.errors import InputError
from regard.tasks import AnyTask
from regard.tasks.base import Defaults

USUAL = "tiny"
TINY: Defaults = {"hidden": 128, "heads": 4, "inner": 256, "enc_layers": 4, "dec_layers": 4}
SOON: Defaults = {"positions": "rotary", "dropout": 0.2}
PRESETS: dict[str, Defaults] = {
    "tiny": {**TINY, **SOON, "steps": 4000},
    "tiny-r-drop": {**TINY, **SOON, "r_drop": 3.0, "steps": 7000},
    "marian": {
        **TINY,
        "lr": 0.001,
        "positions": "sinusoidal",
        "pre_norm": False,
    },
    "small": {"hidden": 256, "heads": 4, "inner": 1024, "enc_layers": 4, "dec_layers": 4, "lr": 0.002},
    "base": {
        "hidden": 512,
        "heads": 8,
        "inner": 2048,
        "enc_layers": 6,
        "dec_layers": 6,
        "lr": 0.001,
        "dropout": 0.1,
    },
    "big": {
        "hidden": 1024,
        "heads": 16,
        "inner": 4096,
        "enc_layers": 6,
        "dec_layers": 6,
        "lr": 0.0005,
        "dropout": 0.3,
    },
}
"""tiny is the best that 20 minutes of a core were found to make of 29,000 pairs, tiny-r-drop that of two hours
(docs/results.md); base and big are the paper's (Vaswani et al. 2017, table 3); marian is as wide and deep as
tiny, as `regard export --to huggingface` takes it."""


def sized(task: type[AnyTask], kind: str) -> bool:
    """Whether there are sizes for this model on this task."""
    return kind == "transformer" and not task.draws


def preset_of(task: type[AnyTask], kind: str, name: object = None) -> dict[str, object]:
    """Return the flags of the size called `name`, None for the usual one.

    Raises `InputError` where there is none of that name for this model and task.
    """
    if name is None:
        return {**PRESETS[USUAL]} if sized(task, kind) else {}
    if not isinstance(name, str) or name not in PRESETS or not sized(task, kind):
        raise InputError(
            f"preset {name!r} does not fit model {kind} on task {task.name}: choose {', '.join(PRESETS)} for a "
            f"transformer on translation"
        )
    return {**PRESETS[name]}
