"""What an examination has found, as it was saved beside the model: for whoever shows the run later."""

from pathlib import Path

from regard.errors import InputError
from regard.reading import parse_json, read_bytes


def sentences_in(folder: Path, *, model: str = "model.safetensors") -> dict[str, list[str]]:
    """Return, for each layer, what `regard examine` said of each head; nothing where the run was not examined, or
    its model is newer than that."""
    path = folder / "examined.json"
    try:
        if path.stat().st_mtime < (folder / model).stat().st_mtime:
            return {}
        kept = parse_json(read_bytes(path))
        found: dict[str, list[str]] = {}
        for head, said in zip(kept["heads"], kept["words"], strict=False):
            found.setdefault(head["layer"], []).append(str(said))
    except (InputError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # it is only there to be shown
    return found
