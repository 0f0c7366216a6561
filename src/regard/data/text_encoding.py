"""Scan a text file for its digest, its number of lines, and bytes that are not UTF-8 text.

A file is scanned once before it is used. A few broken lines can be skipped. A file in a different encoding must
be converted, because only some of its lines can be decoded as UTF-8.
"""

import codecs
import hashlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from regard.errors import plural

MAX_BROKEN = 0.01
"""The largest accepted fraction of lines that are not UTF-8."""
READ = 1 << 20
"""Bytes per read."""
MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Byte order marks. UTF-32 comes before UTF-16, because the mark of UTF-32 begins with the mark of UTF-16."""
ZERO_SHARES = {"UTF-32LE": 3 / 4, "UTF-32BE": 3 / 4, "UTF-16LE": 1 / 8, "UTF-16BE": 1 / 8}
"""The smallest fraction of zero bytes for guessing an encoding without a byte order mark."""


class TextScan(NamedTuple):
    """The result of `scan_text`. Lines are counted from 1."""

    lines: int
    undecodable: int
    """Lines that are not UTF-8."""
    zeros: int
    """The number of other lines with a zero byte."""
    first: int
    """The number of the first broken line, or 0."""
    encoding: str | None
    """The guessed encoding if the beginning of the file suggests an encoding other than UTF-8."""
    sha256: str
    """The digest of the content."""

    @property
    def broken(self) -> bool:
        """Whether the file cannot be used."""
        return bool(self.encoding or self.zeros) or self.undecodable > MAX_BROKEN * self.lines

    def message(self, path: Path, way_out: str = "") -> str:
        """Return a one-line error message. `way_out`: an alternative to converting the file."""
        encoding, broken = self.encoding, self.undecodable + self.zeros
        if encoding is not None:
            problem = f"is {encoding}, not UTF-8"
        elif self.zeros:
            problem = "has zero bytes"
        else:
            problem = "is not UTF-8"
        if encoding is None and self.zeros > self.undecodable:
            remedy = f"remove them (tr -d '\\000' < {shlex.quote(str(path))} > NEW)"
        elif encoding is None:
            remedy = f"if it is Latin-1, convert it ({_iconv(path, 'ISO-8859-1')})"
        else:
            remedy = f"convert it ({_iconv(path, encoding)})"
        counts = f"{broken:,} of {plural(self.lines, 'line')}, the first is line {self.first}"
        return f"{str(path)!r} {problem}: {counts}; {remedy}{way_out}"


def scan_text(file: BinaryIO, on_block: Callable[[], None] = lambda: None) -> TextScan:
    """Read an open file to its end. Memory contains at most one megabyte and the longest line.

    `on_block` is called after each megabyte.

    >>> from io import BytesIO
    >>> scan_text(BytesIO(b"good\\n\\xff\\n")).undecodable
    1
    """
    lines = undecodable = zeros = first = 0
    encoding: str | None = None
    rest, at_start, digest = b"", True, hashlib.sha256()
    while True:
        block = file.read(READ)
        digest.update(block)
        on_block()
        if at_start:
            encoding, at_start = detect_encoding(block[: READ // 16]), False
        whole, feed, rest = (rest + block).rpartition(b"\n") if block else (rest, b"", b"")
        content = whole + feed
        count = content.count(b"\n") + (1 if whole and not feed else 0)
        if not _is_text(content):  # search for broken lines only in a broken block
            for number, line in enumerate(content.split(b"\n")[:count], lines + 1):
                if _is_text(line):
                    continue
                first = first or number
                if b"\0" in line:
                    zeros += 1
                else:
                    undecodable += 1
        lines += count
        if not block:
            first = first or (1 if encoding else 0)
            return TextScan(lines, undecodable, zeros, first, encoding, digest.hexdigest())


def detect_encoding(content: bytes) -> str | None:
    """Guess the encoding from the byte order mark or the zero bytes at the beginning of a file.

    Returns None for UTF-8 and for encodings without a byte order mark or zero bytes.

    >>> detect_encoding("ein Hund".encode("utf-16")), detect_encoding("ein Hund".encode())
    ('UTF-16', None)
    """
    for mark, name in MARKS.items():
        if content.startswith(mark):
            return name
    zeros = content.count(0)
    for name, min_share in ZERO_SHARES.items():
        # Consider complete code units only: UTF-32 has 4 bytes per character.
        whole = content[: len(content) // 4 * 4]
        if zeros < min_share * len(content) or not whole:
            continue
        try:
            text = whole.decode(name)
        except UnicodeDecodeError:
            continue
        if all(character.isprintable() or character in "\r\n\t" for character in text):
            return name
    return None


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def _iconv(path: Path, encoding: str) -> str:
    quoted = shlex.quote(str(path))
    if path.suffix == ".gz":
        return f"gunzip -c {quoted} | iconv -f {encoding} -t UTF-8 > NEW"
    return f"iconv -f {encoding} -t UTF-8 {quoted} > NEW"
