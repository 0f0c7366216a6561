"""Programs that solve a puzzle in another way, and programs with one planted mistake (`planted_programs.toml`).

The programs in `WRONG` were written before the diagnosis, those in `SECOND` and `THIRD` after it. At first, 25 of
37 and 19 of 34 of these were named: the general ideas and several repairs were added then. Each program has the
name of its puzzle, a pattern that the named mistake must match, and the code after the imports.
"""

import tomllib
from pathlib import Path

IMPORTS = (
    "import operator\n"
    "from regard_lab.programs.language import \\\n"
    "    aggregate, average, constant, elementwise, indices, select, select_all, tokens, width\n"
    "\n"
)
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WRONG, SECOND, THIRD = (
    [(row["puzzle"], row["pattern"], row["code"]) for row in _TABLE[name]] for name in ("wrong", "second", "third")
)
RIGHT: list[tuple[str, str]] = [(row["puzzle"], row["code"]) for row in _TABLE["right"]]
"""Puzzle and code of other right solutions."""
