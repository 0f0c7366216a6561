"""The config of a run as its file holds it: formats, digests, and differences from the config in another file."""

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.io.reading import DamageError, canonical_json, has_valid_digest, parse_json
from regard.training.config import PARTS
from regard.training.tensors import TensorFile

FORMAT = "regard-run/7"
BEFORE = ("regard-run/6", "regard-run/5")
"""Earlier formats, which are read too. Neither has digests; 5 called the task's name `task`, and what is chosen
of it `size`."""
MOST_DIFFERENCES = 3
"""Differences between two configs that a message names."""
SHOWN = 24
"""Characters of a value in such a message."""
LARGEST_CONFIG = 1 << 20
"""Bytes of a config, at most."""


def digest(vocabularies: dict[str, str]) -> str:
    """Return what tells vocabularies, as JSON by name, from others."""
    return hashlib.sha256(json.dumps(vocabularies, sort_keys=True).encode()).hexdigest()


def renamed(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored config with today's names, if it has those of the format before."""
    if "size" not in stored:
        return stored
    others = {name: value for name, value in stored.items() if name not in ("task", "size")}
    return {**others, "on": stored.get("task"), "task": stored["size"]}


def differences(stored: Mapping[str, Any], in_file: str, name: str) -> str:
    """Say in which values config.json, as plain data, and the config in another file, as JSON, differ; nothing
    where they are the same, or the latter is no config."""
    try:
        found = parse_json(in_file, finite=False)
    except DamageError:
        return ""
    one, other = dict(_values("", without_digest(stored))), dict(_values("", found))
    names = [each for each in {**one, **other} if one.get(each) != other.get(each)]
    if names == ["initial"]:
        return "it began with other parameters than config.json says"
    names = [each for each in names if each != "initial"]  # which follows from the others
    said = [
        f"{each} is {_shown(one.get(each))} in config.json, {_shown(other.get(each))} in {name}" for each in names
    ]
    more = len(said) - MOST_DIFFERENCES
    return "; ".join(said[:MOST_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")


def _values(name: str, content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects by the last name that leads to each, which for flags is their name."""
    if isinstance(content, Mapping) and content:
        for inner, value in content.items():
            yield from _values(f"{name}.{inner}" if name and name not in PARTS else inner, value)
    else:
        yield name, content


def _shown(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def is_intact(stored: dict[str, Any]) -> bool:
    """Whether what config.json holds has its digest; earlier formats have none."""
    return has_valid_digest(stored) or (stored["format"] in BEFORE and "digest" not in stored)


def mixed(found: TensorFile, stored: dict[str, Any], name: str) -> str | None:
    """Say how the config in a file of tensors differs from config.json; None where it does not."""
    if found.digest is None:  # earlier files hold a CRC-32 of today's names, or nothing
        total = zlib.crc32(json.dumps(todays(stored), sort_keys=True).encode())
        return None if found.config in ("", f"{total:08x}") else "it was trained with another config.json"
    if found.config == canonical_json(without_digest(stored)):
        return None
    return differences(stored, found.config, name) or "it names no config"


def without_digest(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored config without its digest."""
    return {name: value for name, value in stored.items() if name != "digest"}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def todays(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored config alone, with today's names."""
    return renamed({name: value for name, value in stored.items() if name not in ("format", "digest")})


def unknown_format(stored: Any) -> str:
    """Say what is wrong with the format of a config that this version does not read."""
    found = stored.get("format") if isinstance(stored, dict) else None
    named = f"format {found!r}"[:60] if isinstance(found, str) else "no format"
    known = ", ".join((FORMAT, *BEFORE))
    return f"config.json names {named}, this version of Regard reads {known}; a newer run needs a newer version"
