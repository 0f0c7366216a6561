"""What was computed of a run's model and is kept beside it, such as `alignment.json`, with digests."""

from typing import Any

from regard.io import write_json
from regard.io.reading import (
    DamageError,
    add_digest,
    damaged_file,
    has_valid_digest,
    is_file,
    parse_json,
    read_bytes,
)
from regard.training.folder import RunFolder


def write_kept(folder: RunFolder, name: str, content: dict[str, Any]) -> None:
    """Keep what was found of the model, as JSON; raises `MachineError` where the disk refuses."""
    write_json(
        folder.path / name, add_digest({**content, "of": folder.identity_of_model}), indent=1, allow_nan=False
    )


def read_kept(folder: RunFolder, name: str, mend: str) -> dict[str, Any] | None:
    """Return what `write_kept` has kept of the model as it is; None where there is nothing, or it is of an
    earlier step.

    Raises `InputError` where the file is damaged, was edited, or is another run's; `mend`: what to do then.
    """
    path = folder.path / name
    if not is_file(path):
        return None
    try:
        found = parse_json(read_bytes(path))
        if not isinstance(found, dict):
            raise DamageError("it is no object")
    except DamageError as error:
        raise damaged_file(path, error, mend) from error
    if "digest" not in found and not folder.has_digests:
        return found
    of = found.get("of")
    if not has_valid_digest(found):
        folder.refuse_edited(name, "it has changed since it was written", mend)
    elif not isinstance(of, dict) or of.get("config") != folder.identity_of_model["config"]:
        folder.refuse_edited(name, "it is of another run", mend)
    elif of != folder.identity_of_model:
        return None
    return {name: value for name, value in found.items() if name not in ("of", "digest")}
