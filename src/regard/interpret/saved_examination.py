"""Load the examination that was saved with a run: for pages that show the run, and instead of a new measurement.

An examination of another version of Regard, with other fields, is ignored.
"""

from typing import Any, NamedTuple

import msgspec

from regard.interpret.examination import Examination
from regard.interpret.importance import importance_by_layer
from regard.training.run_folder import RunFolder
from regard.version import __version__
from regard.viz.serialization import WorthData

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
    return _convert(stored)


def load_examination(run: RunFolder) -> SavedExamination:
    """Load the examination of a run; empty if the run has no examination, or if the model was trained further
    since.

    Raises `InputError` if the file is damaged, was edited, or belongs to another run.
    """
    examination, sentences = _convert(_read(run)), dict[str, list[str]]()
    if examination is None:
        return SavedExamination({}, {}, {})
    for head in examination.heads:
        sentences.setdefault(head.layer, []).append(head.sentence())
    roles = {} if examination.roles is None else examination.roles.by_layer()
    return SavedExamination(sentences, importance_by_layer(examination.importance), roles)


def _read(run: RunFolder) -> dict[str, Any]:
    """Return the content of the file; empty without a file, and if it is of an earlier model."""
    return run.read_derived(FILE, REMEDY) or {}


def _convert(stored: dict[str, Any]) -> Examination | None:
    """Return the examination in the content of a file; None for the fields of another version."""
    try:
        return msgspec.convert(stored, Examination)
    except msgspec.ValidationError:
        return None
