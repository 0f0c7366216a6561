"""Load the examination that was saved with a run: for pages that show the run, and instead of a new measurement.

Pages leave out parts with an unexpected shape, from an older or newer version. Instead of a new measurement,
only an examination of this version is used.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from regard.interpret.estimates import Estimate
from regard.interpret.examination import Examination
from regard.interpret.importance import importance_data
from regard.interpret.roles import role_data
from regard.training import RunFolder
from regard.version import __version__
from regard.viz.data import WorthData

FILE = "examined.json"
REMEDY = "delete the file, or examine the run again"


class SavedExamination(NamedTuple):
    """The saved measurements of the heads by layer; each part may be empty."""

    sentences: dict[str, list[str]]
    """The sentences of `regard examine`."""
    worth: dict[str, list[WorthData]]
    """Importance of each head, from `importance_by_layer`."""
    roles: dict[str, list[dict[str, Any]]]
    """Role of each head, from `HeadRoles.by_layer`."""


def read_examination(run: RunFolder, samples: int, seed: int) -> Examination | None:
    """Return the saved examination of a run; None if there is none with this version of Regard, number of samples
    and seed, or if the model was trained further since.

    Raises `InputError` if the file is damaged, was edited, or belongs to another run.
    """
    stored = _read(run)
    if (stored.get("version"), stored.get("samples"), stored.get("seed")) != (__version__, samples, seed):
        return None
    try:
        return msgspec.convert(stored, Examination)
    except msgspec.ValidationError:
        return None


def load_examination(run: RunFolder) -> SavedExamination:
    """Load the examination of a run; empty if the run has no examination, or if the model was trained further
    since.

    Raises `InputError` if the file is damaged, was edited, or belongs to another run.
    """
    stored = _read(run)
    return SavedExamination(*(_part(read, stored) for read in (_sentences, _importance, _roles)))


def _read(run: RunFolder) -> dict[str, Any]:
    """Return the content of the file; empty without a file, and if it is of an earlier model."""
    stored = run.read_derived(FILE, REMEDY) or {}
    if stored and not run.has_digests and (run.path / FILE).stat().st_mtime < run.model_file.stat().st_mtime:
        return {}  # without digests, only the dates show that the model is newer
    return stored


def _part(read: Callable[[Any], dict[str, Any]], stored: Any) -> dict[str, Any]:
    """Return the result of `read` for the stored content; empty if the content has an unexpected shape."""
    try:
        return read(stored)
    except (KeyError, TypeError, AttributeError, ValueError):
        return {}


def _sentences(stored: Any) -> dict[str, list[str]]:
    layers: dict[str, list[str]] = {}
    for head, sentence in zip(stored["heads"], stored["words"], strict=False):
        layers.setdefault(head["layer"], []).append(str(sentence))
    return layers


def _importance(stored: Any) -> dict[str, list[WorthData]]:
    layers, intervals = {}, stored["importance"].get("intervals") or {}
    for layer, added in stored["importance"]["added"].items():
        known = [
            interval and Estimate(**{name: float(interval[name]) for name in ("mean", "low", "high")})
            for interval in intervals.get(layer) or ()
        ]
        layers[str(layer)] = importance_data([float(value) for value in added], known)
    return layers


def _roles(stored: Any) -> dict[str, list[dict[str, Any]]]:
    layers: dict[str, list[dict[str, Any]]] = {}
    for role in stored["roles"]["heads"]:
        data = role_data(role["role"], role["strength"], role["untrained"])
        layers.setdefault(role["layer"], []).append(data)
    return layers
