"""`regard data NAME`: fetch a data set."""

import sys
from dataclasses import dataclass
from pathlib import Path

from regard.cli.parsing import first_word, parse, wants_help
from regard.text.download import DATA_SETS, fetch

PROG = "regard data"
DESCRIPTION = f"Fetch a data set, and check that it came whole. NAME: {', '.join(DATA_SETS)}."


@dataclass(frozen=True, kw_only=True)
class DataFlags:
    """All flags of the command."""

    savepath: Path = Path("data")
    """Folder of data sets; this one goes into a folder of its name there."""
    url: str | None = None
    """Where to fetch from instead: the address of a folder with the same files."""


def run(argv: list[str]) -> None:
    """Fetch as `argv` asks, and say how to train on it."""
    if wants_help(argv[:1]):
        parse(DataFlags(), argv, prog=f"{PROG} NAME", description=DESCRIPTION)
    name, argv = first_word(argv, what="data set", prog=PROG, example="multi30k")
    flags = parse(DataFlags(), argv, prog=f"{PROG} {name}", description=DESCRIPTION)
    files = fetch(name, flags.savepath, url=flags.url)
    texts = {part: " ".join(str(file) for file in files if file.name.startswith(part)) for part in PARTS}
    sys.stdout.write(
        f"Fetched {len(files)} files. Train on them with\n"
        f"regard train translation --train {texts['train']} --valid {texts['val']} --test {texts['test']}\n"
    )


PARTS = ("train", "val", "test")
"""How the names of a data set's files begin."""
