"""Parallel text on disk: two files with one sentence per line, or one file of tab-separated pairs.

Only a line feed ends a line, so that other separators do not change the number of lines. Pairs that cannot be
used for training are skipped and counted, or raise an error. A file is scanned once before it is used, for its
digest, its number of lines, and bytes that are not UTF-8 text.
"""

import codecs
import errno
import gzip
import hashlib
import io
import operator
import os
import shlex
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from regard.data.vocabulary import is_blank
from regard.errors import InputError, plural
from regard.io import check_file, is_file, is_folder

SKIP_REASONS = {  # Description of each reason for skipping a pair
    "empty": "with an empty side",
    "not_utf8": "not UTF-8",
    "without_partner": "without a partner",
    "too_long": "too long",
}
LENIENT = "; or skip such lines with --lenient"
READ = 1 << 16  # Number of bytes per read of a compressed file
MAX_EXPANSION = 100
"""Largest ratio of a decompressed text to its file. Text expands to about five times its size, zeros to 1,000."""
FREE_EXPANSION = 1 << 26  # Number of decompressed bytes without a limit


@dataclass(frozen=True, kw_only=True)
class TextDigest:
    """Digest that identifies the content of a text, independent of its path and compression."""

    lines: int
    sha256: str


MAX_BROKEN = 0.01
"""The largest accepted fraction of lines that are not UTF-8. A file in a different encoding must be converted,
because only some of its lines can be decoded as UTF-8."""
SCAN_BLOCK = 1 << 20  # Bytes per read of a scan
MARKS = {  # Byte order marks. UTF-32 comes before UTF-16, because the mark of UTF-32 begins with the mark of UTF-16
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
ZERO_SHARES = {"UTF-32LE": 3 / 4, "UTF-32BE": 3 / 4, "UTF-16LE": 1 / 8, "UTF-16BE": 1 / 8}
"""The smallest fraction of zero bytes for guessing an encoding without a byte order mark."""


@dataclass
class PairCounts:
    """The number of pairs that were read, and of pairs that were skipped.

    >>> str(PairCounts(pairs=3, empty=1) + PairCounts(pairs=2))
    '5 pairs; left out: 1 with an empty side'
    """

    pairs: int = 0
    empty: int = 0  # Pairs with an empty side
    not_utf8: int = 0  # Pairs with a side that is not UTF-8 or has a zero byte
    without_partner: int = 0
    """Lines without a tab in a file of pairs, or lines after the end of the shorter of two files."""
    too_long: int = 0  # Pairs with a side of too many tokens

    @property
    def skipped(self) -> int:
        return int(sum(astuple(self)) - self.pairs)

    def __add__(self, other: "PairCounts") -> "PairCounts":
        return PairCounts(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, other: "PairCounts") -> "PairCounts":
        return PairCounts(*map(operator.sub, astuple(self), astuple(other)))

    def __str__(self) -> str:
        reasons = zip(SKIP_REASONS.values(), astuple(self)[1:], strict=True)  # the fields have the same order
        skipped = [f"{count:,} {reason}" for reason, count in reasons if count]
        return plural(self.pairs, "pair") + (f"; left out: {', '.join(skipped)}" if skipped else "")


class PairSource(ABC):
    """Base class of parallel texts. A text can be iterated over repeatedly; each iteration resets `counts`.
    `strict`: raise `InputError` for the first pair that would be skipped. `lenient`: skip lines for which
    `check_files` would raise an error."""

    bytes: int  # The size of the text in bytes
    number = 0  # The line number of the last pair, counted from 1

    def __init__(self, *, strict: bool = False, lenient: bool = False) -> None:
        self.strict, self.lenient, self.counts = strict, lenient, PairCounts()
        self.on_bytes: Callable[[int], None] = lambda done: None
        """Called repeatedly with the number of bytes read."""

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[str, str]]: ...

    def identity(self) -> list[Any]:
        return [digest.sha256 for digest in self.digests()]

    @abstractmethod
    def digests(self) -> list[TextDigest]:
        """Return a digest of each file or other source of the text, which is read as a whole. Raises
        `InputError` if the text cannot be read."""

    @abstractmethod
    def locations(self) -> list[str]:
        """Return the paths or names of the text, which do not depend on its content."""

    def check(self) -> None:
        """Raise `InputError` if the text as a whole is broken (see `check_files`)."""
        return

    def skip(self, reason: str, where: str) -> None:
        """Count a skipped pair, or raise `InputError` if `strict`. `reason`: a field of `PairCounts`."""
        if self.strict:
            raise InputError(f"{where} is {SKIP_REASONS[reason]}: fix the line, or leave out --strict")
        setattr(self.counts, reason, getattr(self.counts, reason) + 1)


class ParallelText(PairSource):
    """The pairs of one TSV file, or of a source and a target file. Files may be compressed (`.gz`). Raises
    `InputError` if a file is missing or cannot be read."""

    def __init__(self, paths: Sequence[str | Path], *, strict: bool = False, lenient: bool = False) -> None:
        super().__init__(strict=strict, lenient=lenient)
        if len(paths) not in (1, 2):
            raise InputError(
                f"{len(paths)} files of parallel text ({', '.join(map(repr, map(str, paths)))}): give one file "
                f"of tab-separated pairs, or a source file and a target file"
            )
        self.paths = [Path(path) for path in paths]
        if len(self.paths) == 2 and self.paths[0].resolve() == self.paths[1].resolve():
            raise InputError(f"source and target are both {str(paths[0])!r}: give a source file and a target file")
        self.bytes = sum(map(_size, self.paths))
        self._checked = lenient or strict  # strict stops at the first broken line
        self.lines: tuple[bytes | None, ...] = ()  # The bytes of the last lines

    def check(self) -> None:
        if not self._checked:
            check_files(self.paths)
            self._checked = True

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.check()
        self.counts = PairCounts()
        with open_texts(self.paths) as (raws, files):
            stripped = ((line.rstrip(b"\r\n") for line in file) for file in files)
            for number, lines in enumerate(zip_longest(*stripped), start=1):
                self.number, self.lines = number, lines
                pair = self.pair(lines, number)
                if pair is not None:
                    self.counts.pairs += 1
                    yield pair
                if number % 1000 == 0:
                    self.on_bytes(sum(raw.tell() for raw in raws))

    def _where(self, number: int, side: int | None = None) -> str:
        paths = self.paths if side is None else [self.paths[min(side, len(self.paths) - 1)]]
        return f"line {number} of {' and '.join(repr(str(path)) for path in paths)}"

    def digests(self) -> list[TextDigest]:
        digests, before = list[TextDigest](), 0
        for path in self.paths:
            digests.append(file_digest(path, lambda done: self.on_bytes(before + done)))  # noqa: B023 (called at once)
            before += _size(path)
        return digests

    def locations(self) -> list[str]:
        return [str(path.absolute()) for path in self.paths]

    def pair(self, lines: tuple[bytes | None, ...], number: int) -> tuple[str, str] | None:
        """Return the pair formed by one line of each file, or None if the pair is skipped. `lines`: lines
        without line feeds; None for a file that has ended."""
        if len(lines) == 1 and lines[0] is not None:  # columns after the second are ignored
            lines = (*lines[0].split(b"\t"), None)[:2]
        if None in lines:
            self.skip("without_partner", self._where(number, 1 - lines.index(None)))
            return None
        for side, line in enumerate(lines):
            if line is None or not _is_text(line):
                self.skip("not_utf8", self._where(number, side))
                return None
        mark = "\ufeff" if number == 1 else ""
        source, target = (line.decode().removeprefix(mark).strip() for line in lines if line is not None)
        if is_blank(source) or is_blank(target):
            self.skip("empty", self._where(number))
            return None
        return source, target


class ConcatenatedText(PairSource):
    """The pairs of several texts, one text after another."""

    def __init__(self, texts: Sequence[PairSource]) -> None:
        super().__init__(lenient=all(text.lenient for text in texts))
        self.texts = texts
        self.bytes = sum(text.bytes for text in texts)

    def parts(self) -> Iterator[PairSource]:
        """Yield each text, whose progress continues that of the texts before it."""
        before = 0
        for text in self.texts:
            text.on_bytes = lambda done, before=before: self.on_bytes(before + done)  # type: ignore[misc]
            yield text
            before += text.bytes

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.counts = PairCounts()
        for text in self.parts():
            for pair in text:
                self.counts.pairs += 1
                yield pair

    def check(self) -> None:
        for text in self.texts:
            text.check()

    def identity(self) -> list[Any]:
        return [text.identity() for text in self.texts]

    def digests(self) -> list[TextDigest]:
        return [digest for text in self.parts() for digest in text.digests()]

    def locations(self) -> list[str]:
        return [name for text in self.texts for name in text.locations()]


@contextmanager
def open_texts(paths: Sequence[Path]) -> Iterator[tuple[list[BinaryIO], list[BinaryIO]]]:
    """Open text files. Yields them and their uncompressed content. Read errors become `InputError`."""
    try:
        with ExitStack() as stack:
            raws: list[BinaryIO] = [stack.enter_context(path.open("rb")) for path in paths]
            yield raws, [decompress(path, raw, stack) for path, raw in zip(paths, raws, strict=True)]
    except (OSError, EOFError, zlib.error) as error:
        reason = "its gzip data is damaged"
        if isinstance(error, OSError):
            reason = error.strerror or "it is not gzip"
        name = " and ".join(map(str, paths))
        raise InputError(
            f"cannot read {name!r}: {reason}; restore the file from a copy, or give another text"
        ) from error


def check_files(paths: Sequence[str | Path], *, way_out: str = LENIENT) -> None:
    """Raise `InputError` if a text file is broken as a whole, or two files have different numbers of lines. A broken
    file contains zero bytes, has an encoding other than UTF-8, or has more than 1 % of lines that are not UTF-8. Pipes
    are not checked, because pipes can be read only once. `way_out`: alternative to fixing the file, for the message."""
    counts = []
    for path in map(Path, paths):
        if not is_file(path):
            return
        scan = _scan_file(path)
        if scan.broken:
            raise InputError(scan.message(path, way_out))
        counts.append(scan.lines)
    if len(set(counts)) > 1:
        numbers = " and ".join(
            f"{str(path)!r} has {plural(count, 'line')}" for path, count in zip(paths, counts, strict=True)
        )
        raise InputError(
            f"{numbers}: line {min(counts) + 1:,} has no counterpart, and earlier lines may be misaligned; give "
            f"files with equal numbers of lines{way_out}"
        )


def decompress(path: Path, raw: BinaryIO, stack: ExitStack) -> BinaryIO:
    if path.suffix != ".gz":
        return raw
    # Add a buffer, because GzipFile reads lines with a slow Python function.
    return cast(BinaryIO, stack.enter_context(io.BufferedReader(_LimitedGzip(fileobj=raw), READ)))


class _LimitedGzip(gzip.GzipFile):
    """A gzip file that is refused if it expands to far more than text does. A pipe has no limit."""

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        file: Any = self.fileobj
        if file.seekable() and self.tell() > MAX_EXPANSION * file.tell() + FREE_EXPANSION:
            reason = f"it expands to more than {MAX_EXPANSION} times its size, as text never does"
            raise gzip.BadGzipFile(errno.EFBIG, reason)
        return content


def file_digest(path: Path, on_bytes: Callable[[int], None] = lambda done: None) -> TextDigest:
    """Return the number of lines and the SHA-256 of a file, computed from its uncompressed content. `on_bytes` is
    called with the number of bytes read."""
    _size(path)
    scan = _scan_file(path, on_bytes)
    return TextDigest(lines=scan.lines, sha256=scan.sha256)


class TextScan(NamedTuple):
    """The digest and the lines of a text, with those that are not text. Lines are counted from 1."""

    lines: int
    undecodable: int  # Lines that are not UTF-8
    zeros: int  # The number of other lines with a zero byte
    first: int  # The number of the first broken line, or 0
    encoding: str | None  # The guessed encoding if the beginning of the file suggests an encoding other than UTF-8
    sha256: str

    @property
    def broken(self) -> bool:
        return bool(self.encoding or self.zeros) or self.undecodable > MAX_BROKEN * self.lines

    def message(self, path: Path, way_out: str = "") -> str:
        """Return a one-line error message. `way_out`: an alternative to converting the file."""
        quoted, encoding = shlex.quote(str(path)), self.encoding or "ISO-8859-1"
        command = f"iconv -f {encoding} -t UTF-8 {quoted} > NEW"
        if path.suffix == ".gz":
            command = f"gunzip -c {quoted} | iconv -f {encoding} -t UTF-8 > NEW"
        if self.encoding is not None:
            problem, remedy = f"is {encoding}, not UTF-8", f"convert it ({command})"
        else:
            problem = "has zero bytes" if self.zeros else "is not UTF-8"
            remedy = f"if it is Latin-1, convert it ({command})"
            if self.zeros > self.undecodable:
                remedy = f"remove them (tr -d '\\000' < {quoted} > NEW)"
        broken = f"{self.undecodable + self.zeros:,} of {plural(self.lines, 'line')}"
        return f"{str(path)!r} {problem}: {broken}, the first is line {self.first}; {remedy}{way_out}"


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
        block = file.read(SCAN_BLOCK)
        digest.update(block)
        on_block()
        if at_start:
            encoding, at_start = detect_encoding(block[: SCAN_BLOCK // 16]), False
        whole, feed, rest = (rest + block).rpartition(b"\n") if block else (rest, b"", b"")
        content = whole + feed
        count = content.count(b"\n") + (1 if whole and not feed else 0)
        if not _is_text(content):  # search for broken lines only in a broken block
            for number, line in enumerate(content.split(b"\n")[:count], lines + 1):
                if not _is_text(line):
                    first = first or number
                    zeros, undecodable = zeros + (b"\0" in line), undecodable + (b"\0" not in line)
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


_scans: dict[tuple[object, ...], TextScan] = {}
"""Results of the scans of this process, by path and status: a training text is read only once."""


def _scan_file(path: Path, on_bytes: Callable[[int], None] = lambda done: None) -> TextScan:
    with open_texts([path]) as ([raw], [file]):
        status = os.fstat(raw.fileno())
        key = (path.absolute(), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if key not in _scans:
            _scans[key] = scan_text(file, lambda: on_bytes(raw.tell()))
        return _scans[key]


def _size(path: Path) -> int:
    if is_file(path):
        return check_file(path)
    problem = "is a folder" if is_folder(path) else "does not exist"
    noun = "" if is_folder(path) else "file "
    raise InputError(f"{noun}{str(path)!r} {problem}: give the path of a text file, plain or .gz")


def parse_glossary(lines: Iterable[str], name: str) -> dict[str, str]:
    """Return the translation of each term from lines with a source term, a tab and its translation.

    Blank lines are skipped. `name`: name of the file, for errors. Raises `InputError` for a line without two
    terms, for a source term with two translations, and if there are no terms.

    >>> parse_glossary(["Hund\\tdog", "", "alter Hund\\told dog"], "glossary.tsv")
    {'Hund': 'dog', 'alter Hund': 'old dog'}
    """
    glossary: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if is_blank(line):
            continue
        terms = [part.strip() for part in line.split("\t")]
        if len(terms) != 2 or any(map(is_blank, terms)):
            raise InputError(f"line {number} of {name!r} is {line!r}: give a source term, a tab and its translation")
        source, target = terms
        if glossary.setdefault(source, target) != target:
            raise InputError(
                f"line {number} of {name!r} translates {source!r} by {target!r}, but an earlier line by "
                f"{glossary[source]!r}: leave out one of them"
            )
    if not glossary:
        raise InputError(f"{name!r} has no terms: give lines with a source term, a tab and its translation")
    return glossary
