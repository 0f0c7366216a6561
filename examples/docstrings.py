"""Pairs of sentences from the help texts of Python's library.

`python examples/docstrings.py pairs.tsv` writes 250 pairs: the first sentence of a docstring, and a later one, which
describes the same function or class. The same version of Python gives the same pairs.
"""

import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAIRS = 250
WORDS = range(5, 16)  # per sentence


def functions() -> Iterator[Any]:
    """Yield the classes and functions of all modules of Python's library, by name."""
    for name in sorted(sys.stdlib_module_names - {"antigravity", "this", "idlelib", "turtle", "turtledemo"}):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = importlib.import_module(name)
        except ImportError:
            continue  # Tk, or a module of another system
        for _, value in inspect.getmembers(module):
            if inspect.isroutine(value) or inspect.isclass(value):
                yield value
            if inspect.isclass(value):
                yield from (function for _, function in inspect.getmembers(value, inspect.isroutine))


def sentences(text: str) -> list[str]:
    """Return the sentences of a docstring that consist of words."""
    lines = [line for line in inspect.cleandoc(text).splitlines() if not line.startswith((" ", ">>>"))]
    found = re.split(r"(?<=[a-z)]\.)\s+", " ".join(lines))
    return [sentence.strip() for sentence in found if re.fullmatch(r"[A-Z][A-Za-z ,'-]+\.", sentence.strip())]


def pairs(count: int = PAIRS) -> list[tuple[str, str]]:
    """Return pairs of sentences of one docstring, spread evenly over the alphabet."""
    found: dict[str, str] = {}
    for value in functions():
        first, *others = sentences(inspect.getdoc(value) or "") or [""]
        near = [other for other in others if len(other.split()) in WORDS]
        if len(first.split()) in WORDS and near and near[0] not in found.values():
            found.setdefault(first, near[0])
    chosen = sorted(found.items(), key=lambda pair: pair[0])
    return [chosen[number * len(chosen) // count] for number in range(count)]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("".join(f"{first}\t{later}\n" for first, later in pairs()), encoding="utf-8")
