"""`regard data NAME`: download a data set."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from regard.cli.parsing import read_command
from regard.data.datasets import DATA_SETS, fetch
from regard.data.parallel import check_files

PREFIXES = {"train": "train", "valid": "val", "test": "test"}
"""File name prefix of each part of a data set."""


@dataclass(frozen=True, kw_only=True)
class DataFlags:
    """Download a data set and verify its checksums. Existing files with the correct checksum are not
    downloaded again."""

    languages: tuple[str, ...] = ()
    """Language codes of source and target, such as: de en. Default: de en; multi30k also has fr and cs."""
    savepath: Path = Path("data")
    """Directory of the data sets. Each data set is stored in a subfolder with its name."""
    lenient: bool = False
    """Accept files with different numbers of lines, or with invalid UTF-8."""
    url: str | None = None
    """Address of a mirror to download the same files from."""


def run(argv: list[str]) -> None:
    """Download the data set and print the command that trains on it."""
    [name], flags = read_command(DataFlags, argv, "regard data DATA_SET", example="multi30k", choices=DATA_SETS)
    paths = fetch(name, flags.savepath, languages=flags.languages, url=flags.url)
    parts = {
        part: [str(path) for path in paths if path.name.startswith(prefix)] for part, prefix in PREFIXES.items()
    }
    for files in parts.values():
        if not flags.lenient:
            check_files(files)
    words = [word for part, files in parts.items() for word in (f"--{part}", *files)]
    sys.stdout.write(f"All {len(paths)} files exist. Train on them with\n")
    sys.stdout.write(f"regard train translation {shlex.join(words)}\n")
