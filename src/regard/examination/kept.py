"""What an examination has found, as it was saved beside the model: for whoever shows the run later."""

from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.examination.estimates import Estimate
from regard.examination.importance import worth_data
from regard.inspection.data import WorthData
from regard.reading import DamageError, parse_json, read_bytes

MODEL = "model.safetensors"


def sentences_in(folder: Path) -> dict[str, list[str]]:
    """Return, for each layer, what `regard examine` said of each head; nothing where the run was not examined, or
    its model is newer than that."""
    kept = _read(folder)
    found: dict[str, list[str]] = {}
    try:
        for head, said in zip(kept["heads"], kept["words"], strict=False):
            found.setdefault(head["layer"], []).append(str(said))
    except (KeyError, TypeError, AttributeError):
        return {}  # it is only there to be shown
    return found


def roles_in(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return, for each layer, what `regard examine` found each head to do, as `HeadRoles.by_layer` has it, or
    nothing."""
    kept = _read(folder)
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        for each in kept["roles"]["heads"]:
            told = {"role": each["role"], "strength": each["strength"], "untrained": each["untrained"]}
            found.setdefault(each["layer"], []).append(told)
    except (KeyError, TypeError, AttributeError):
        return {}
    return found


def importance_in(folder: Path) -> dict[str, list[WorthData]]:
    """Return, for each layer, what `regard examine` found each head to be worth, as `worth_by_layer` has it, or
    nothing."""
    try:
        kept = _read(folder)["importance"]
        intervals = kept.get("intervals") or {}
        return {str(layer): _worth(added, intervals.get(layer, [])) for layer, added in kept["added"].items()}
    except (KeyError, TypeError, AttributeError, ValueError):
        return {}


def _worth(added: Any, intervals: Any) -> list[WorthData]:
    names = ("mean", "low", "high")
    known = [each and Estimate(**{name: float(each[name]) for name in names}) for each in intervals]
    return worth_data([float(each) for each in added], known)


def _read(folder: Path) -> Any:
    """Return what was saved; nothing where it is not there, older than the model, or damaged."""
    path = folder / "examined.json"
    try:
        if path.stat().st_mtime < (folder / MODEL).stat().st_mtime:
            return {}
        return parse_json(read_bytes(path))
    except (InputError, DamageError, OSError):
        return {}
