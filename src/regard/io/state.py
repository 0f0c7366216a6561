"""Where Regard keeps what belongs to a user and to no run."""

import os
from pathlib import Path


def state_folder() -> Path:
    """Return the folder, which need not be there yet: as the XDG Base Directory Specification has it, `regard` in
    $XDG_STATE_HOME or ~/.local/state."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "regard"
