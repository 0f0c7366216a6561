"""Read lines from a file or standard input, with checks of their encoding."""

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from regard.cli.terminal import print_message
from regard.data.parallel import check_files, decompress, detect_encoding
from regard.errors import InputError
from regard.io import cannot_read

LENIENT_HINT = "; or read invalid bytes as unknown, with --lenient"
LINES_PER_CHUNK = 512
"""Number of lines read at once. Lines of similar length are then batched together, which reduces padding."""


@contextmanager
def open_lines(path: Path | None, *, lenient: bool | None = None) -> Iterator[BinaryIO]:
    """Open a file (plain or .gz), or standard input if `path` is None.

    `lenient` accepts invalid files (see `check_files`). None means that the command has no flag `--lenient`. Standard
    input and pipes can be read only once, so this function checks only their first bytes, and `read_line` later warns
    about each invalid line. Raises `InputError` if the file cannot be read or is invalid.
    """
    hint = LENIENT_HINT if lenient is False else ""
    if path is None:
        _check_begin(sys.stdin.buffer, "standard input", lenient=lenient)
        yield sys.stdin.buffer
        return
    if not lenient and path.exists():
        check_files([path], way_out=hint)
    try:
        file = path.open("rb")  # may be a pipe, such as the shell's <(...)
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error
    with file:
        if path.suffix != ".gz":
            if not path.is_file():
                _check_begin(file, repr(str(path)), lenient=lenient)
            yield file
            return
        try:
            with ExitStack() as stack:
                yield decompress(path, file, stack)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            reason = (isinstance(error, OSError) and error.strerror) or "it is not a complete gzip file"
            raise InputError(f"cannot read {str(path)!r}: {reason}; give another file") from None


def _check_begin(file: BinaryIO, name: str, *, lenient: bool | None) -> None:
    if lenient or not isinstance(file, BufferedReader):
        return
    if encoding := detect_encoding(file.peek(1)):
        raise InputError(f"{name} is {encoding}, not UTF-8: convert it first, with iconv -f {encoding} -t UTF-8")


def numbered_chunks(file: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    size = 1 if file.isatty() else LINES_PER_CHUNK
    numbered = enumerate(file, start=1)
    while lines := list(islice(numbered, size)):
        yield lines


def read_line(line: bytes, number: int) -> str:
    """Decode a line without its line break. Invalid bytes become unknown symbols, with a warning."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        print_message(f"line {number} is not UTF-8 at byte {error.start}: invalid bytes are read as unknown")
        text = line.decode(errors="replace")
    if "\0" in text:
        print_message(f"line {number} has zero bytes: they are read as unknown")
        text = text.replace("\0", "\ufffd")
    text = text.removeprefix("\ufeff") if number == 1 else text
    return text.rstrip("\r\n")


def read_lines(path: Path | None) -> list[str]:
    """Return the lines of a file, or of standard input. Raises `InputError` if the file cannot be read."""
    with open_lines(path) as file:
        return [read_line(line, number) for number, line in enumerate(file, start=1)]


def read_sentences(path: Path | None) -> list[str] | None:
    """Return the non-blank lines of a file; None without a file. Raises `InputError` if it cannot be read."""
    return None if path is None else [*filter(str.strip, read_lines(path))]
