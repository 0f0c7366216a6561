"""Standard streams of the command: there, and safe for a terminal, whatever a text holds."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import IO, Any

from regard.errors import escape_controls


def open_streams() -> None:
    """Give the process standard streams where some are closed, so that no file it opens later takes their place.

    A closed one reads nothing and drops what is written. What standard error cannot take is dropped: a message
    that nobody reads changes neither the work nor its exit status.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Forgiving(2, "w", closefd=False)),
        encoding=getattr(sys.stderr, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=True,
    )


class _Forgiving(io.FileIO):
    """A file that drops what it cannot write."""

    def write(self, content: Any) -> int:
        """Write, or drop."""
        try:
            return super().write(content) or 0
        except OSError:
            return len(content)


class _Escaping:
    """A text stream that writes control characters out, see `escape_controls`."""

    def __init__(self, raw: IO[str]) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write a text, escaped."""
        return self.raw.write(escape_controls(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def escaping() -> Iterator[None]:
    """Escape what is written on standard output in the block; see `raw_output` for what is not to be."""
    with redirect_stdout(_Escaping(sys.stdout)):
        yield


def raw_output() -> IO[str]:
    """Return standard output as it is, for texts that another program reads and for what rich has drawn."""
    return sys.stdout.raw if isinstance(sys.stdout, _Escaping) else sys.stdout


def answer_output() -> IO[str]:
    """Return where answers to texts go: as they are into a file or a pipe, escaped on a terminal."""
    return sys.stdout if sys.stdout.isatty() else raw_output()


def print_table(what: Any, width: int | None = None) -> None:
    """Print a table, or whatever else rich can print, on standard output; texts in it are escaped."""
    from rich.console import Console, RenderHook
    from rich.segment import Segment, Segments

    console = Console(file=raw_output(), width=width, highlight=False)

    class Escape(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            drawn = (part for each in renderables for part in console.render(each))
            return [
                Segments(
                    part if part.control else Segment(escape_controls(part.text), part.style) for part in drawn
                )
            ]

    console.push_render_hook(Escape())
    console.print(what)
