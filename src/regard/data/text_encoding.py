"""What is wrong with the bytes of a text file: another encoding than UTF-8, or zero bytes.

A file is read once before anything is made of it. A few broken lines among many can be left out; a file in
another encoding has to be converted, for what is left of it would not be the text.
"""

import codecs
import shlex
from pathlib import Path
from typing import BinaryIO, NamedTuple

MOST_BAD = 0.01
"""Share of lines that are not UTF-8 above which a file is refused."""
READ = 1 << 20
"""Bytes that are read at a time."""
MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Byte order marks; that of UTF-32 begins as that of UTF-16 does, and comes first."""
GUESSED = {"UTF-32LE": 3 / 4, "UTF-32BE": 3 / 4, "UTF-16LE": 1 / 8, "UTF-16BE": 1 / 8}
"""Encodings without a byte order mark, with the least share of zero bytes that is taken for them."""


class EncodingReport(NamedTuple):
    """What was found in a file; lines are counted from 1."""

    lines: int
    undecodable: int
    """Lines that are not UTF-8."""
    zeros: int
    """Other lines with a zero byte."""
    first: int
    """The first of both; 0 where there is none."""
    encoding: str | None
    """Another encoding that the file seems to have, by its beginning."""

    @property
    def broken(self) -> bool:
        """Whether the file is to be refused."""
        return bool(self.encoding or self.zeros) or self.undecodable > MOST_BAD * self.lines

    def fault(self, path: Path, way_out: str = "") -> str:
        """Return what is wrong with the file, in one line. `way_out`: what can be done besides converting it."""
        encoding, share = self.encoding, self.undecodable + self.zeros
        if encoding is not None:
            what = f"is {encoding}, not UTF-8"
        elif self.zeros:
            what = "has zero bytes"
        else:
            what = "is not UTF-8"
        if encoding is None and self.zeros > self.undecodable:
            mend = f"remove them (tr -d '\\000' < {_quoted(path)} > NEW)"
        elif encoding is None:
            mend = f"if it is Latin-1, convert it ({_iconv(path, 'ISO-8859-1')})"
        else:
            mend = f"convert it ({_iconv(path, encoding)})"
        counted = f"{share:,} of {self.lines:,} lines, the first is line {self.first}"
        return f"{str(path)!r} {what}: {counted}; {mend}{way_out}"


def scan_lines(file: BinaryIO) -> EncodingReport:
    """Return what is in a file that is open at its beginning; memory holds a megabyte, and the longest line.

    with open("train.de", "rb") as file:
        look_through(file).broken
    """
    lines = undecodable = zeros = first = 0
    encoding: str | None = None
    rest, begin = b"", True
    while True:
        block = file.read(READ)
        if begin:
            encoding, begin = detect_encoding(block[: READ // 16]), False
        whole, feed, rest = (rest + block).rpartition(b"\n") if block else (rest, b"", b"")
        content = whole + feed
        count = content.count(b"\n") + (1 if whole and not feed else 0)
        if not _is_plain(content):
            for number, line in enumerate(content.split(b"\n")[:count], lines + 1):
                if _is_plain(line):
                    continue
                first = first or number
                if b"\0" in line:
                    zeros += 1
                else:
                    undecodable += 1
        lines += count
        if not block:
            return EncodingReport(lines, undecodable, zeros, first or (1 if encoding else 0), encoding)


def detect_encoding(content: bytes) -> str | None:
    """Return the encoding that the beginning of a file shows by its byte order mark or its zero bytes; None for
    UTF-8, and where it does not show."""
    for mark, name in MARKS.items():
        if content.startswith(mark):
            return name
    zeros = content.count(0)
    for name, least in GUESSED.items():
        whole = content[: len(content) // 4 * 4]
        if zeros < least * len(content) or not whole:
            continue
        try:
            text = whole.decode(name)
        except UnicodeDecodeError:
            continue
        if all(each.isprintable() or each in "\r\n\t" for each in text):
            return name
    return None


def _is_plain(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def _iconv(path: Path, encoding: str) -> str:
    if path.suffix == ".gz":
        return f"gunzip -c {_quoted(path)} | iconv -f {encoding} -t UTF-8 > NEW"
    return f"iconv -f {encoding} -t UTF-8 {_quoted(path)} > NEW"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
