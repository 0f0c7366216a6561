"""What an examination has found, as it was saved beside the model: for whoever shows the run later."""

import json
from pathlib import Path


def sentences_in(folder: Path, *, model: str = "model.safetensors") -> dict[str, list[str]]:
    """Return, for each layer, what `regard examine` said of each head; nothing where the run was not examined, or
    its model is newer than that."""
    path = folder / "examined.json"
    try:
        if path.stat().st_mtime < (folder / model).stat().st_mtime:
            return {}
        kept = json.loads(path.read_text(encoding="utf-8"))
        found: dict[str, list[str]] = {}
        for head, said in zip(kept["heads"], kept["words"], strict=False):
            found.setdefault(head["layer"], []).append(str(said))
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # it is only there to be shown
    return found
