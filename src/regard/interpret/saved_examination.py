"""What an examination has found, as it was saved beside the model: for whoever shows the run later.

It is only there to be shown: what a newer or older version has put otherwise is left out.
"""

from typing import Any, NamedTuple

from regard.interpret.estimates import Estimate
from regard.interpret.importance import importance_data
from regard.training import RunFolder
from regard.training.kept import read_kept
from regard.viz.data import WorthData

FILE = "examined.json"
MEND = "delete it, or examine the run again"
UNREADABLE = (KeyError, TypeError, AttributeError, ValueError)
"""What comes of a shape that is not the expected one."""


class Examined(NamedTuple):
    """What is known of the heads of each layer; each part may be empty."""

    sentences: dict[str, list[str]]
    """What `regard examine` said."""
    worth: dict[str, list[WorthData]]
    """What they are worth, as `importance_by_layer` has it."""
    roles: dict[str, list[dict[str, Any]]]
    """What they do, as `HeadRoles.by_layer` has it."""


def load_examination(run: RunFolder) -> Examined:
    """Return what was found of a run; nothing where it was not examined, or its model is newer than that.

    Raises `InputError` where the file is damaged, was edited, or is another run's.
    """
    kept = _read(run)
    return Examined(_sentences(kept), _worth(kept), _roles(kept))


def _sentences(kept: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    try:
        for head, said in zip(kept["heads"], kept["words"], strict=False):
            found.setdefault(head["layer"], []).append(str(said))
    except UNREADABLE:
        return {}
    return found


def _worth(kept: Any) -> dict[str, list[WorthData]]:
    found = {}
    names = ("mean", "low", "high")
    try:
        intervals = kept["importance"].get("intervals") or {}
        for layer, added in kept["importance"]["added"].items():
            some = intervals.get(layer) or ()
            known = [each and Estimate(**{name: float(each[name]) for name in names}) for each in some]
            found[str(layer)] = importance_data([float(each) for each in added], known)
    except UNREADABLE:
        return {}
    return found


def _roles(kept: Any) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        for each in kept["roles"]["heads"]:
            told = {"role": each["role"], "strength": each["strength"], "untrained": each["untrained"]}
            found.setdefault(each["layer"], []).append(told)
    except UNREADABLE:
        return {}
    return found


def _read(run: RunFolder) -> Any:
    """Return what was saved; nothing where it is not there, or is older than the model."""
    kept = read_kept(run, FILE, MEND) or {}
    if kept and not run.has_digests and (run.path / FILE).stat().st_mtime < run.model_file.stat().st_mtime:
        return {}
    return kept
