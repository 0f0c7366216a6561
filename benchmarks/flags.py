"""Types of command-line flags. A value that a program cannot use is an error of one line."""

import argparse
from pathlib import Path


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def existing(text: str) -> Path:
    """Return the path of a file or folder that exists."""
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text!r} does not exist")
    return path


def new_file(text: str) -> Path:
    """Return the path of a file to write, in a folder that exists."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"folder {str(path.parent)!r} does not exist")
    return path


def multi30k(text: str) -> Path:
    """Return the folder of Multi30k's files."""
    path = Path(text)
    if not (path / "train.de.gz").exists():
        raise argparse.ArgumentTypeError(f"{text!r} has no train.de.gz: create it with `regard data multi30k`")
    return path
