"""Trust in the custom code that a run refers to.

A config can refer to code: the Python file of its task, or `module:Class` as model, score or another part. Loading a
run of a different user must not execute this code. Custom code is executed only if the user has trained with it on this
machine or allows it with `trust_code`. The start of a training run is recorded. The record contains digests of the path
and of all code that the file can import, so changed code, or a different file with the same name, is not trusted.
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from regard.attention.mechanism import custom_parts
from regard.errors import InputError, is_own
from regard.machine import read_state, state_folder, write_state
from regard.plugins import code_digest, find_plugin, plugin_module

_trusted_here: set[str] = set()  # Digests of code that this process trusts


def trust(stored: Mapping[str, Any]) -> None:
    """Trust the code that a config (as plain data) refers to, in this process and in later processes of this user.

    If the record cannot be written, for example on a read-only disk, the code is trusted only in this process.
    """
    new = {_digest(file) for _, file, _ in _named_code(stored)}
    if not new or not (new := new - _recorded()):
        return
    _trusted_here.update(new)
    write_state(_record(), "".join(f"{digest}\n" for digest in sorted(_recorded() | new)))


def check_trusted(stored: Mapping[str, Any], run: Path, *, trust_code: bool) -> None:
    """Raise `InputError` if the config of a run refers to untrusted code. With `trust_code`, trust the code in
    this process."""
    unknown = [
        (name, file)
        for name, file, loaded in _named_code(stored)
        if not loaded and _digest(file) not in _trusted_here | _recorded()
    ]
    if trust_code:
        _trusted_here.update(_digest(file) for _, file in unknown)
    elif unknown:
        named = " and ".join(f"{name} ({str(file)!r})" for name, file in unknown)
        raise InputError(
            f"run {str(run)!r} uses code that was never used for training on this machine, or that has "
            f"changed since: {named}; read the code, and if you trust it, add --trust_code (in Python "
            f"trust_code=True)"
        )


def code_digests(stored: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of the code to which a config refers, by description (see `regard.plugins.code_digest`).

    >>> code_digests({"on": "counting", "kind": "attention", "options": {}})
    {}
    """
    return {name: code_digest(file) for name, file, _ in _named_code(stored)}


def _named_code(stored: Mapping[str, Any]) -> Iterator[tuple[str, Path, bool]]:
    """Yield the code to which a config refers: its description, its file, and whether it is already loaded.

    Modules of Regard and missing modules are omitted, because they execute no code of other users.
    """
    on, options = stored.get("on"), stored.get("options")
    if isinstance(on, str) and on.endswith(".py") and Path(on).is_file():
        yield f"task file {on!r}", Path(on).resolve(), False
    options = options if isinstance(options, dict) else {}
    parts = [("model", stored.get("kind"))]
    parts += [(name, options.get(name)) for name in ("score", "positions", "layer")]
    if isinstance(mechanism := options.get("attention"), str):
        parts += [("attention part", name) for name in custom_parts(mechanism)]
    for part, name in parts:
        module = plugin_module(name) if isinstance(name, str) and ":" in name else None
        if module is not None and not is_own(module):
            file = _file_of(module)
            if file is not None:
                yield f"{part} {name!r}", file, module in sys.modules


def _file_of(module: str) -> Path | None:
    """Return the file of a module without importing the module, or None if the file is not found."""
    first, *names = module.split(".")
    spec = find_plugin(first)  # `find_spec` of a submodule would import its package
    for depth in range(len(names)):
        if spec is None:
            return None
        spec = PathFinder.find_spec(".".join([first, *names[: depth + 1]]), spec.submodule_search_locations)
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


def _digest(file: Path) -> str:
    return hashlib.sha256(f"{file}\0{code_digest(file)}".encode(errors="surrogateescape")).hexdigest()


def _record() -> Path:
    return state_folder() / "trusted"


def _recorded() -> set[str]:
    return set(read_state(_record()).split())
