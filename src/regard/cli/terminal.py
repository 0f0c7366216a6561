"""Standard streams, which are always open, and messages, which contain no control characters."""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from regard.errors import escape_controls

if TYPE_CHECKING:
    from regard.viz.attention_map import AttentionMap

MAX_LENGTH = 900  # Maximum number of characters in a message. The middle of longer messages is omitted.

EXPLORER = "http://127.0.0.1:8137/"  # Default address of `regard show`, to which reports link


def print_message(message: str) -> None:
    sys.stderr.write(f"regard: {one_line(message)}\n")


@contextmanager
def resumable() -> Iterator[None]:
    """Exit with status 130 and a message if Ctrl-C stops the block, whose results are stored one by one."""
    try:
        yield
    except KeyboardInterrupt:
        print_message("stopped; repeat the command to continue")
        sys.exit(130)


def one_line(message: str) -> str:
    """Return a message as one printable line: whitespace is collapsed, other characters are escaped."""
    words = " ".join(message.split())
    line = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in words)
    return line if len(line) <= MAX_LENGTH else f"{line[: MAX_LENGTH // 2]} … {line[-MAX_LENGTH // 3 :]}"


def open_streams() -> None:
    """Open the standard streams that are closed, so that a file opened later does not get their descriptors.

    A stream opened here reads nothing and drops all output. Standard error drops output that it cannot write,
    so a message that cannot be shown changes neither the results nor the exit status.
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
        io.BufferedWriter(_LossyFile(2, "w", closefd=False)),
        encoding=getattr(sys.stderr, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=True,
    )


class _LossyFile(io.FileIO):
    """A file that drops output it cannot write."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content) or 0
        except OSError:
            return len(content)


class _Escaping:
    """A text stream that escapes control characters; see `escape_controls`."""

    def __init__(self, raw: IO[str]) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        return self.raw.write(escape_controls(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def escape_output() -> Iterator[None]:
    """Escape all text that the block writes to standard output. `raw_output` bypasses this."""
    with redirect_stdout(_Escaping(sys.stdout)):
        yield


def raw_output() -> IO[str]:
    return sys.stdout.raw if isinstance(sys.stdout, _Escaping) else sys.stdout


def answer_output() -> IO[str]:
    return sys.stdout if sys.stdout.isatty() else raw_output()


def print_table(table: Any, most: int | None = None) -> None:
    """Print a table or another rich object to standard output, with its text escaped.

    `most`: width in characters where the output is no terminal, and at most in one; by default 80, and any.
    """
    from rich.console import Console, RenderHook
    from rich.segment import Segment, Segments

    from regard.result import Fitted  # imports NumPy

    console = Console(file=raw_output(), width=None if most is None else report_width(most), highlight=False)

    class Escape(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            drawn = (part for renderable in renderables for part in console.render(renderable))
            return [
                Segments(part if part.control else Segment(escape_controls(part.text), part.style) for part in drawn)
            ]

    console.push_render_hook(Escape())
    console.print(Fitted(table))


def report_width(most: int) -> int:
    """Return the width of a report in characters: that of the terminal, at most `most`."""
    return min(most, shutil.get_terminal_size((most, 24)).columns)


def print_paragraphs(texts: Iterable[str], width: int) -> None:
    for text in texts:
        sys.stdout.write(textwrap.fill(text, width, subsequent_indent="  ") + "\n")


def say_saved(*paths: Path) -> None:
    sys.stdout.write("".join(f"Saved {path}\n" for path in paths))


def save_files(content: Any, json: Path | None, html: Path | None, write_page: Callable[[Path], Path]) -> None:
    """Write a result as JSON and as a page to the files that are given, and print their names."""
    if json is not None:
        from regard.io import write_json  # not needed by `regard --help`

        write_json(json, content)
        say_saved(json)
    if html is not None:
        say_saved(write_page(html))


def save_and_print(attention: "AttentionMap", path: Path) -> None:
    attention.save(path)
    print_table(attention.table())
    say_saved(path)
    open_on_screen(path)


def open_on_screen(path: Path) -> None:
    """Open a picture or page if the output goes to a terminal and, on Linux, if a display is available."""
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    has_display = sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in displays)
    if sys.stdout.isatty() and has_display:
        import webbrowser  # a quarter of the command line's own import time

        webbrowser.open(path.resolve().as_uri())
