"""Whose code a run may run.

A run can name code: the Python file of its task, or `module:Class` as its model, its score or another part. Who
loads somebody else's run must not run somebody else's code by that. So code runs only where its user has trained
with it on this machine, which is noted when a training begins, or where he says so (`trust_code`). The note is of
the file's path and content together: a file that has changed, or another one of that name, is code that nobody
has trained with.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from regard.errors import InputError, RegardError
from regard.io import state_folder, write_file
from regard.plugins import find_plugin, plugin_module

_trusted_here: set[str] = set()
"""What this process has been told to trust, or has trained with."""


def trust(stored: Mapping[str, Any]) -> None:
    """Trust the code that a config, as plain data, names: from now on, and in this user's processes to come.

    Where the note cannot be kept, as on a disk that only reads, the trust ends with this process.
    """
    new = {_digest(file) for _, file, _ in _code_of(stored)} - _noted()
    _trusted_here.update(new)
    if new:
        try:
            note = _note()
            note.parent.mkdir(parents=True, exist_ok=True)
            write_file(note, "".join(f"{each}\n" for each in sorted(_noted() | new)).encode())
        except (OSError, RegardError):
            pass


def check_trusted(stored: Mapping[str, Any], run: Path, *, trust_code: bool) -> None:
    """Raise `InputError` where a run, whose config is `stored`, names code that is not trusted; with
    `trust_code`, trust it in this process."""
    unknown = [
        (said, file)
        for said, file, loaded in _code_of(stored)
        if not loaded and _digest(file) not in _trusted_here | _noted()
    ]
    if trust_code:
        _trusted_here.update(_digest(file) for _, file in unknown)
    elif unknown:
        named = " and ".join(f"{said} ({str(file)!r})" for said, file in unknown)
        raise InputError(
            f"run {str(run)!r} would run code that nobody has trained with here, or that has changed since: "
            f"{named}; read it, and if you trust it add --trust_code (in Python trust_code=True)"
        )


def _code_of(stored: Mapping[str, Any]) -> Iterator[tuple[str, Path, bool]]:
    """Yield what a config names that would run code, with the file of each, and whether that is loaded already.

    Regard's own modules, and those that nobody finds, run nothing of anybody's.
    """
    on, model = stored.get("on"), stored.get("model")
    if isinstance(on, str) and on.endswith(".py") and Path(on).is_file():
        yield f"task file {on!r}", Path(on).resolve(), False
    parts = {"model": stored.get("kind"), **(model if isinstance(model, dict) else {})}
    for part, name in parts.items():
        module = plugin_module(name) if isinstance(name, str) else None
        if module is not None and module.partition(".")[0] != "regard":
            file = _file_of(module)
            if file is not None:
                yield f"{part} {name!r}", file, module in sys.modules


def _file_of(module: str) -> Path | None:
    """Return the file of a module, found without running anything; None where there is none."""
    first, *names = module.split(".")
    spec = find_plugin(first)  # of a module inside another one, this would run the outer one
    for depth in range(len(names)):
        if spec is None:
            return None
        spec = PathFinder.find_spec(".".join([first, *names[: depth + 1]]), spec.submodule_search_locations)
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


def _digest(file: Path) -> str:
    try:
        content = file.read_bytes()
    except OSError:
        content = b""
    return hashlib.sha256(f"{file}\0".encode(errors="surrogateescape") + content).hexdigest()


def _note() -> Path:
    return state_folder() / "trusted"


def _noted() -> set[str]:
    try:
        return set(_note().read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return set()
