"""`regard data NAME`: fetch a data set."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from regard.cli.parsing import first_word, parse, wants_help
from regard.data.datasets import DATA_SETS, fetch
from regard.data.parallel import check_files

PROG = "regard data"
DESCRIPTION = (
    "Download a data set and verify its checksums. Files that exist with the right checksum are not downloaded "
    f"again. NAME: {', '.join(DATA_SETS)}."
)
PARTS = {"train": "train", "valid": "val", "test": "test"}
"""What a training calls the parts of a data set, and how the names of their files begin."""


@dataclass(frozen=True, kw_only=True)
class DataFlags:
    """All flags of the command."""

    languages: tuple[str, ...] = ()
    """Codes of source and target, such as: de en. Default: de en; multi30k also has fr and cs."""
    savepath: Path = Path("data")
    """Folder of data sets; this one goes into a folder of its name there."""
    lenient: bool = False
    """Do not stop where the files have not as many lines, or are not UTF-8."""
    url: str | None = None
    """Another address with the same files."""


def run(argv: list[str]) -> None:
    """Fetch as `argv` asks, and say how to train on it."""
    if wants_help(argv[:1]):
        parse(DataFlags(), argv, prog=f"{PROG} NAME", description=DESCRIPTION)
    name, argv = first_word(argv, what="data set", prog=PROG, example="multi30k")
    flags = parse(DataFlags(), argv, prog=f"{PROG} {name}", description=DESCRIPTION)
    files = fetch(name, flags.savepath, languages=flags.languages, url=flags.url)
    texts = {
        part: [str(file) for file in files if file.name.startswith(begins)] for part, begins in PARTS.items()
    }
    for names in texts.values():
        if not flags.lenient:
            check_files(names)
    words = [word for part, names in texts.items() for word in (f"--{part}", *names)]
    sys.stdout.write(f"The {len(files)} files are there. Train on them with\n")
    sys.stdout.write(f"regard train translation {shlex.join(words)}\n")
