"""Parallel text for tests: a tiny subset of German with translations."""

from itertools import product
from pathlib import Path
from typing import Any

NOUNS = {"Hund": "dog", "Vogel": "bird", "Fuchs": "fox", "Esel": "donkey", "Hahn": "cock", "Wolf": "wolf"}
ADJECTIVES = {"kleine": "small", "alte": "old", "müde": "tired", "graue": "grey"}
VERBS = {"läuft": "runs", "schläft": "sleeps", "singt": "sings", "springt": "jumps"}
ADVERBS = {"heute": "today", "morgen": "tomorrow", "oft": "often"}


def sentences() -> list[tuple[str, str]]:
    """Return all 288 pairs in pseudo-random order."""
    found = [
        (f"{adverb.capitalize()} {verb} der {adjective} {noun}.", f"The {a} {n} {v} {when}.")
        for (noun, n), (adjective, a), (verb, v), (adverb, when) in product(
            NOUNS.items(), ADJECTIVES.items(), VERBS.items(), ADVERBS.items()
        )
    ]
    return [found[index * 89 % len(found)] for index in range(len(found))]


LINKS = "0-4 1-3 2-0 3-1 4-2"  # Word alignment of every pair, with words separated by spaces


def write(folder: Path) -> dict[str, Any]:
    """Write training, validation and test text, and return the flags with their paths."""
    pairs = sentences()
    parts = {"train": pairs[:240], "valid": pairs[240:264], "test": pairs[264:]}
    flags: dict[str, Any] = {}
    for name, part in parts.items():
        files = (folder / f"{name}.de", folder / f"{name}.en")
        for file, side in zip(files, zip(*part, strict=True), strict=True):
            file.write_text("".join(f"{sentence}\n" for sentence in side), encoding="utf-8")
        flags[name] = (str(files[0]), str(files[1]))
    return flags
