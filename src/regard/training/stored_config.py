"""Stored configs: formats, digests, reading, and differences between two configs.

config.json and every tensor file contain a SHA-256 digest of their content, and every tensor file also contains
the config. Each file can therefore be checked separately and against config.json.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from regard.errors import InputError
from regard.io.reading import (
    DamageError,
    canonical_json,
    convert_json,
    parse_json,
    without_digest,
)
from regard.training.config import RunConfig, options_class
from regard.training.tensor_file import TensorFile

FORMAT = "regard-run/8"
"""Only format that is read. A run of another format is trained again: old formats have no digests to check."""
MOST_DIFFERENCES = 3
"""Largest number of differences in a message."""
LONGEST_VALUE = 24
"""Largest number of characters of a value in a message."""
LARGEST_CONFIG = 1 << 20
"""Largest size of config.json in bytes."""


def vocabulary_digest(vocabularies: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(vocabularies, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def config_from_json(stored: Mapping[str, Any]) -> RunConfig:
    """Return the config for the result of `RunConfig.json`. Raises `InputError` for invalid data."""
    names = {option.name for option in dataclasses.fields(RunConfig)}
    if set(stored) != names:
        raise InputError(f"config needs exactly {', '.join(sorted(names))}")
    hints = get_type_hints(RunConfig)
    try:
        parts = {name: convert_json(stored[name], hints[name]) for name in names if name != "options"}
        values = convert_json(stored["options"], dict[str, Any])
    except DamageError as error:
        raise InputError(f"config: {error}") from None
    options = options_class(parts["on"], parts["kind"])
    if set(values) != {*options.flag_names()}:
        raise InputError(f"config 'options' needs exactly {', '.join(sorted(options.flag_names()))}")
    return RunConfig(**parts, options=options(**values))


def config_mismatch(file: TensorFile, stored: dict[str, Any], name: str) -> str | None:
    """Return a description of the differences between the config in a tensor file and config.json, or None if
    equal."""
    if file.config == canonical_json(without_digest(stored)):
        return None
    return differences(stored, file.config, name) or "it names no config"


def differences(stored: Mapping[str, Any], config: str, name: str) -> str:
    """Return a description of the differences between config.json (plain data) and the config (JSON) in the
    file `name`.

    Returns an empty string for equal configs, and for JSON that is not a config.
    """
    try:
        other = parse_json(config, finite=False)
    except DamageError:
        return ""
    mine, theirs = dict(_values("", without_digest(stored))), dict(_values("", other))
    names = [option for option in {**mine, **theirs} if mine.get(option) != theirs.get(option)]
    if names == ["initial"]:
        return "training began with different parameters than config.json states"
    names = [option for option in names if option != "initial"]  # determined by the other options
    changes = [
        f"{option} is {_shorten(mine.get(option))} in config.json, {_shorten(theirs.get(option))} in {name}"
        for option in names
    ]
    more = len(changes) - MOST_DIFFERENCES
    return "; ".join(changes[:MOST_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")


def unknown_format(stored: Any) -> str:
    """Return a description of the format of a config that this version cannot read."""
    name = stored.get("format") if isinstance(stored, dict) else None
    named = f"format {name!r}"[:60] if isinstance(name, str) else "no format"
    return (
        f"config.json names {named}, but this version of Regard reads {FORMAT}; train it again, or use the "
        "version of Regard that wrote it"
    )


def _values(name: str, content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects with the last key of their path, which is the name of the flag."""
    if isinstance(content, Mapping) and content:
        for inner, value in content.items():
            yield from _values(f"{name}.{inner}" if name not in ("", "options") else inner, value)
    else:
        yield name, content


def _shorten(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
