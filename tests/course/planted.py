"""Common mistakes as data (`planted.toml`): edits to correct solutions of learners, and solutions with faults."""

import tomllib
from pathlib import Path

Edit = tuple[str, str]
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _edits(row: dict[str, list[list[str]]]) -> list[Edit]:
    return [(old, new) for old, new in row["edits"]]


PLANTS: list[tuple[str, str, str, list[Edit]]] = [
    (row["file"], row["exercise"], row["mistake"], _edits(row)) for row in _TABLE["one"]
]
"""File, exercise, name of the mistake, edits."""
PAIRS: list[tuple[str, str, list[str], list[Edit]]] = [
    (row["file"], row["exercise"], row["mistakes"], _edits(row)) for row in _TABLE["two"]
]
"""Two mistakes in one file."""
SEARCHES: list[tuple[str, str, str, list[Edit]]] = [
    (row["file"], row["exercise"], row["quantity"], _edits(row)) for row in _TABLE["searches"]
]
"""Searches with a fault that is no known mistake, and the first quantity that differs."""
READERS: list[tuple[str, list[str], str]] = [tuple(row.values()) for row in _TABLE["readers"]]
"""Mistakes that readers of the exercises made, and relatives of them."""
