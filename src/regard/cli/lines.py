"""Lines from a file or from standard input, whatever bytes they hold."""

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from regard.cli.words import say
from regard.data.parallel import check_files
from regard.data.text_encoding import detect_encoding
from regard.errors import InputError
from regard.io.reading import cannot_read

LENIENT_LINES = "; or take what cannot be read as unknown, with --lenient"
LINES = 512
"""Lines that are read before they are answered: those of like length go through the model together."""


@contextmanager
def open_lines(path: Path | None, *, lenient: bool | None = None) -> Iterator[BinaryIO]:
    """Open a file, plain or .gz, or standard input for None; raises `InputError` where it cannot be read.

    Also where it is broken (see `check_files`), unless `lenient`; None: the command has no such flag. Standard
    input and pipes can be read once only: they are refused where their beginning shows another encoding than
    UTF-8, and other broken lines are told one by one.
    """
    way_out = LENIENT_LINES if lenient is False else ""
    if path is None:
        _check_begin(sys.stdin.buffer, "standard input", lenient=lenient)
        yield sys.stdin.buffer
        return
    if not lenient and path.exists():
        check_files([path], way_out=way_out)
    try:
        file = path.open("rb")  # a pipe too, as the shell's <(...) is one
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error
    with file:
        if path.suffix != ".gz":
            if not path.is_file():
                _check_begin(file, repr(str(path)), lenient=lenient)
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(BinaryIO, unpacked)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise InputError(f"{str(path)!r} is no whole gzip file: give another, or unpack it first") from None


def _check_begin(file: BinaryIO, name: str, *, lenient: bool | None) -> None:
    """Raise `InputError` where the beginning of a stream shows another encoding than UTF-8."""
    if lenient or not isinstance(file, BufferedReader):
        return
    if encoding := detect_encoding(file.peek(1)):
        raise InputError(f"{name} is {encoding}, not UTF-8: convert it first, by iconv -f {encoding} -t UTF-8")


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
    if "\0" in text:
        say(f"line {number} has zero bytes: they are taken as unknown")
        text = text.replace("\0", "\ufffd")
    text = text.removeprefix("\ufeff") if number == 1 else text
    return text.rstrip("\r\n")


def sentences_in(path: Path) -> list[str]:
    """Return the lines of a file that are not blank; raises `InputError` where it cannot be read."""
    with open_lines(path) as file:
        lines = [read_line(line, number) for number, line in enumerate(file, start=1)]
    return [line for line in lines if line.strip()]
