"""What an examination has found, as it was saved beside the model: for whoever shows the run later."""

from pathlib import Path
from typing import Any

from regard.errors import InputError
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


def importance_in(folder: Path) -> dict[str, list[float]]:
    """Return, for each layer, what `regard examine` found the loss to gain when each head is off, or nothing."""
    try:
        found = _read(folder)["importance"]["added"]
        return {str(layer): [float(each) for each in added] for layer, added in found.items()}
    except (KeyError, TypeError, AttributeError, ValueError):
        return {}


def _read(folder: Path) -> Any:
    """Return what was saved; nothing where it is not there, older than the model, or damaged."""
    path = folder / "examined.json"
    try:
        if path.stat().st_mtime < (folder / MODEL).stat().st_mtime:
            return {}
        return parse_json(read_bytes(path))
    except (InputError, DamageError, OSError):
        return {}
