"""Lines from a file or from standard input, whatever bytes they hold."""

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from regard.cli.words import say
from regard.errors import InputError
from regard.reading import cannot_read

LINES = 512
"""Lines that are read before they are answered: those of like length go through the model together."""


@contextmanager
def open_lines(path: Path | None) -> Iterator[BinaryIO]:
    """Open a file, plain or .gz, or standard input for None; raises `InputError` where it cannot be read."""
    if path is None:
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")  # a pipe too, as the shell's <(...) is one
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error
    with file:
        if path.suffix != ".gz":
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(BinaryIO, unpacked)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise InputError(f"{str(path)!r} is no whole gzip file: give another, or unpack it first") from None


def numbered_chunks(file: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lines with their numbers, from 1, as many at once as are answered together; what is typed, one by
    one."""
    size = 1 if file.isatty() else LINES
    numbered = enumerate(file, start=1)
    while lines := list(islice(numbered, size)):
        yield lines


def read_line(line: bytes, number: int) -> str:
    """Return a line, counted from 1, without its end; bytes that are not UTF-8 become unknown, and are told."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        say(f"line {number} is not UTF-8 at byte {error.start}: what cannot be read is taken as unknown")
        text = line.decode(errors="replace")
    text = text.removeprefix("\ufeff") if number == 1 else text
    return text.rstrip("\r\n")


def sentences_in(path: Path) -> list[str]:
    """Return the lines of a file that are not blank; raises `InputError` where it cannot be read."""
    with open_lines(path) as file:
        lines = [read_line(line, number) for number, line in enumerate(file, start=1)]
    return [line for line in lines if line.strip()]
