"""Parallel text on disk: two files with a line for each sentence, or one file of tab-separated pairs.

Lines end at a line feed and nowhere else, so that both files count alike whatever characters they hold. What
cannot be learned from is left out and counted, or refused.
"""

import gzip
import hashlib
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.data.text_encoding import scan_lines
from regard.data.vocabulary import is_blank
from regard.errors import InputError
from regard.io.reading import check_file, is_file, is_folder, json_digest

SKIP_REASONS = {
    "empty": "with an empty side",
    "not_utf8": "not UTF-8",
    "without_partner": "without a partner",
    "too_long": "too long",
}
"""How what is left out is told."""
LENIENT = "; or leave such lines out with --lenient"
READ = 1 << 20
"""Bytes of a file that are digested at a time."""


@dataclass(frozen=True, kw_only=True)
class TextDigest:
    """What tells the content of a text from other content, wherever it is and however it is compressed."""

    lines: int
    sha256: str


_digests: dict[tuple[object, ...], TextDigest] = {}
"""Digests that this process has computed, by path and status of the file."""


@dataclass
class PairCounts:
    """What was read, and what was left out."""

    pairs: int = 0
    empty: int = 0
    """Pairs of which a side is blank."""
    not_utf8: int = 0
    """Pairs of which a side is not valid UTF-8, or has a zero byte."""
    without_partner: int = 0
    """Lines without a tab in one file of pairs, or past the end of the shorter one of two files."""
    too_long: int = 0
    """Pairs of which a side has too many tokens."""

    @property
    def skipped(self) -> int:
        """How many there are that cannot be learned from."""
        return int(sum(getattr(self, each.name) for each in fields(self)) - self.pairs)

    def __add__(self, other: "PairCounts") -> "PairCounts":
        return PairCounts(
            **{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        )

    def __sub__(self, other: "PairCounts") -> "PairCounts":
        return PairCounts(
            **{each.name: getattr(self, each.name) - getattr(other, each.name) for each in fields(self)}
        )

    def __str__(self) -> str:
        left_out = [
            f"{getattr(self, name):,} {text}" for name, text in SKIP_REASONS.items() if getattr(self, name)
        ]
        return f"{self.pairs:,} pairs" + (f"; left out: {', '.join(left_out)}" if left_out else "")


class PairSource(ABC):
    """Pairs of sentences that can be read again and again; each time they are counted anew, in `counts`.

    `strict`: raise `InputError` at the first pair to leave out; `lenient`: leave out what `check_files` refuses.
    """

    bytes: int
    """Size of what is read."""

    number = 0
    """Line of the pair that was read last, from 1."""

    def __init__(self, *, strict: bool = False, lenient: bool = False) -> None:
        self.strict, self.lenient, self.counts = strict, lenient, PairCounts()
        self.on_bytes: Callable[[int], None] = lambda done: None
        """Called now and then with how much has been read."""

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[str, str]]: ...

    def identity(self) -> list[Any]:
        """Return what tells this text from others, and from itself changed: digests of its content."""
        return [each.sha256 for each in self.digests()]

    @abstractmethod
    def digests(self) -> list[TextDigest]:
        """Return a digest of each file, or of each other source of the text; all of it is read for that.

        Raises `InputError` where it cannot be read.
        """

    @abstractmethod
    def names(self) -> list[str]:
        """Return what stays when the text changes: where it is."""

    def check(self) -> None:
        """Raise `InputError` where the text is broken as a whole; see `check_files`."""
        return

    def skip(self, reason: str, where: str) -> None:
        """Count a pair that is left out, or refuse it; `reason`: a field of `PairCounts`."""
        if self.strict:
            raise InputError(f"{where} is {SKIP_REASONS[reason]}: mend it, or leave out --strict")
        setattr(self.counts, reason, getattr(self.counts, reason) + 1)


class ParallelText(PairSource):
    """The pairs of one TSV file, or of a source and a target file; each plain or `.gz`.

    Raises `InputError` where a file is missing or cannot be read.
    """

    def __init__(self, paths: Sequence[str | Path], *, strict: bool = False, lenient: bool = False) -> None:
        super().__init__(strict=strict, lenient=lenient)
        if len(paths) not in (1, 2):
            raise InputError(
                f"{len(paths)} files of parallel text ({', '.join(map(repr, map(str, paths)))}): give one of "
                f"tab-separated pairs, or a source and a target"
            )
        self.paths = [Path(path) for path in paths]
        self.bytes = sum(map(_size, self.paths))
        self._checked = lenient or strict  # which stops at the first line itself
        self.lines: tuple[bytes | None, ...] = ()
        """What was read last, as it is in the files."""

    def check(self) -> None:
        """Raise `InputError` where the files are broken as a whole, unless the text is lenient."""
        if not self._checked:
            check_files(self.paths)
            self._checked = True

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.check()
        self.counts = PairCounts()
        with read_errors(self.paths), ExitStack() as stack:
            raws = [stack.enter_context(path.open("rb")) for path in self.paths]
            files = [_lines(path, raw, stack) for path, raw in zip(self.paths, raws, strict=True)]
            for number, lines in enumerate(zip_longest(*files), start=1):
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
        """Return a digest of each file, as it is without compression."""
        found, before = [], 0
        for path in self.paths:
            found.append(file_digest(path, lambda done, before=before: self.on_bytes(before + done)))  # type: ignore[misc]
            before += _size(path)
        return found

    def names(self) -> list[str]:
        """Return the path of each file."""
        return [str(path.absolute()) for path in self.paths]

    def pair(self, lines: tuple[bytes | None, ...], number: int) -> tuple[str, str] | None:
        """Return the pair of a line of each file, without its end, None for a file that has ended; None where
        it is left out."""
        if len(lines) == 1 and lines[0] is not None:  # of further columns, nothing is known
            lines = (*lines[0].split(b"\t"), None)[:2]
        if None in lines:
            self.skip("without_partner", self._where(number, 1 - lines.index(None)))
            return None
        texts: list[str] = []
        try:
            for line in lines:
                assert line is not None
                texts.append(self._text(line, number))
        except UnicodeDecodeError:
            self.skip("not_utf8", self._where(number, len(texts)))
            return None
        source, target = texts
        if is_blank(source) or is_blank(target):
            self.skip("empty", self._where(number))
            return None
        return source, target

    @staticmethod
    def _text(line: bytes, number: int) -> str:
        text = line.decode()
        if "\0" in text:
            raise UnicodeDecodeError("utf-8", line, line.index(0), line.index(0) + 1, "zero byte")
        return (text.removeprefix("\ufeff") if number == 1 else text).strip()


class PairList(PairSource):
    """Pairs that are in memory."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.pairs = pairs
        self.bytes = len(pairs)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.counts = PairCounts()
        for pair in self.pairs:
            self.counts.pairs += 1
            yield pair

    def digests(self) -> list[TextDigest]:
        """Return a digest of all pairs."""
        return [TextDigest(lines=len(self.pairs), sha256=json_digest(list(self.pairs)))]

    def names(self) -> list[str]:
        """Return no name: they are nowhere else."""
        return []


class ConcatenatedText(PairSource):
    """The pairs of several texts, one after the other."""

    def __init__(self, texts: Sequence[PairSource]) -> None:
        super().__init__(lenient=all(each.lenient for each in texts))
        self.texts = texts
        self.bytes = sum(each.bytes for each in texts)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.counts, before = PairCounts(), 0
        for text in self.texts:
            text.on_bytes = lambda done, before=before: self.on_bytes(before + done)  # type: ignore[misc]
            for pair in text:
                self.counts.pairs += 1
                yield pair
            before += text.bytes

    def check(self) -> None:
        """Check all texts."""
        for text in self.texts:
            text.check()

    def identity(self) -> list[Any]:
        """Return those of all texts."""
        return [each.identity() for each in self.texts]

    def digests(self) -> list[TextDigest]:
        """Return those of all texts."""
        return [digest for each in self.texts for digest in each.digests()]

    def names(self) -> list[str]:
        """Return those of all texts."""
        return [name for each in self.texts for name in each.names()]


@contextmanager
def read_errors(paths: Sequence[Path]) -> Iterator[None]:
    """Raise `InputError` where the files of a text cannot be read in the block."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = (
            (error.strerror or "it is no gzip") if isinstance(error, OSError) else "it is cut short or damaged"
        )
        name = " and ".join(map(str, paths))
        raise InputError(f"cannot read {name!r}: {reason}; restore a copy, or give another text") from error


def check_files(paths: Sequence[str | Path], *, way_out: str = LENIENT) -> None:
    """Raise `InputError` where a file is in another encoding than UTF-8, has zero bytes, or has more than one
    line in a hundred that is not UTF-8, and where two files have not as many lines.

    Pipes are not checked, for they can be read once only. `way_out`: what the error offers besides mending the
    file.
    """
    counts = []
    for path in map(Path, paths):
        if not is_file(path):
            return
        with read_errors([path]), ExitStack() as stack:
            found = scan_lines(_unpacked(path, stack.enter_context(path.open("rb")), stack))
        if found.broken:
            raise InputError(found.fault(path, way_out))
        counts.append(found.lines)
    if len(set(counts)) > 1:
        told = " and ".join(f"{str(path)!r} has {count:,}" for path, count in zip(paths, counts, strict=True))
        raise InputError(
            f"{told} lines: line {min(counts) + 1:,} has no partner, and lines before it may belong to others; "
            f"give files of as many lines{way_out}"
        )


def _unpacked(path: Path, raw: BinaryIO, stack: ExitStack) -> BinaryIO:
    return cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=raw))) if path.suffix == ".gz" else raw


def _lines(path: Path, raw: BinaryIO, stack: ExitStack) -> Iterator[bytes]:
    """Yield the lines of a file without their ends."""
    for line in _unpacked(path, raw, stack):
        yield line.rstrip(b"\r\n")


def file_digest(path: Path, on_bytes: Callable[[int], None] = lambda done: None) -> TextDigest:
    """Return lines and SHA-256 of a file, plain or .gz, as it is without compression.

    `on_bytes` gets the number of bytes that have been read. Raises `InputError` where it cannot be read.
    """
    _size(path)
    with read_errors([path]), ExitStack() as stack:
        raw = stack.enter_context(path.open("rb"))
        status = os.fstat(raw.fileno())
        key = (path.absolute(), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if key not in _digests:
            file = _unpacked(path, raw, stack)
            digest, lines, end = hashlib.sha256(), 0, b"\n"
            while part := file.read(READ):
                digest.update(part)
                lines, end = lines + part.count(b"\n"), part[-1:]
                on_bytes(raw.tell())
            _digests[key] = TextDigest(lines=lines + (end != b"\n"), sha256=digest.hexdigest())
        return _digests[key]


def _size(path: Path) -> int:
    if is_file(path):
        return check_file(path)
    if is_folder(path):
        raise InputError(f"{str(path)!r} is a folder: give the path of a text file, plain or .gz")
    raise InputError(f"file {str(path)!r} does not exist: give the path of a text file, plain or .gz")
