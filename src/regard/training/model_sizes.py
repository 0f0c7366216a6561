"""Sizes of a Transformer for translation (`--preset`). A size changes some defaults of the task."""

from regard.errors import InputError
from regard.tasks import AnyTask
from regard.tasks.base import Defaults

DEFAULT = "tiny"
TINY: Defaults = {"hidden": 128, "heads": 4, "inner": 256, "enc_layers": 4, "dec_layers": 4}
PRESETS: dict[str, Defaults] = {
    "tiny": {**TINY, "positions": "rotary", "dropout": 0.2, "steps": 4000},
    "tiny-r-drop": {**TINY, "positions": "rotary", "dropout": 0.2, "r_drop": 3.0, "steps": 7000},
    "marian": {**TINY, "lr": 0.001, "positions": "sinusoidal", "pre_norm": False},
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
"""Flags by size. tiny is the best model found for 29,000 pairs within 20 minutes of one core, tiny-r-drop within
two hours
(docs/explanation/results.md). base and big are those of Vaswani et al. 2017, table 3. marian has the size of tiny
and the layer form that `regard export --to huggingface` needs."""


def has_sizes(task: type[AnyTask], model: str) -> bool:
    """Return whether `preset` applies to a model on a task."""
    return model == "transformer" and not task.draws


def size_flags(task: type[AnyTask], model: str, preset: object = None) -> dict[str, object]:
    """Return the flags of a size; None selects the default size, which is empty for other models and tasks.

    Raises `InputError` for an unknown size, and for a model or task without sizes.
    """
    if preset is None:
        return {**PRESETS[DEFAULT]} if has_sizes(task, model) else {}
    if not isinstance(preset, str) or preset not in PRESETS or not has_sizes(task, model):
        raise InputError(
            f"preset {preset!r} does not fit model {model} on task {task.name}: choose {', '.join(PRESETS)} for "
            f"a transformer on translation"
        )
    return {**PRESETS[preset]}
