"""Figures for papers: a picture at its printed width, its caption, and its data.

The style is the sheet `paper.mplstyle`. The user's own rcParams (a matplotlibrc, or values set in Python)
override this style, and a style sheet that the user names overrides both.
"""

import csv
import io
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import rc_context, rc_params_from_file
from matplotlib.figure import Figure

from regard.arguments import public
from regard.errors import InputError
from regard.io.writing import write_file
from regard.result import Result, to_plain
from regard.viz.attention_map import PICTURES, check_extension
from regard.viz.figure import COLOURS, figure_bytes

SHEET = Path(__file__).with_name("paper.mplstyle")
COLUMN, PAGE_WIDTH = 3.3, 6.9
"""Width of one column and of both columns of a two-column page, in inches."""
WIDTHS = (COLUMN, PAGE_WIDTH)
DISPLAY = ("backend", "interactive", "toolbar", "tk.", "webagg.", "savefig.", "figure.")
"""Prefixes of rcParams that describe the display, not the style. A notebook sets some of these rcParams."""

Row = Mapping[str, str | float | None]


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class PaperFigure(Result):
    """A figure for a paper. `save` writes it; a notebook shows it."""

    kind: str
    caption: str
    """A caption with the content of the figure, its inputs, and omitted parts."""
    data: Sequence[Row] | dict[str, Any]
    """The numbers of the figure: rows of a table, or a dict with matrices."""
    width: float
    """Printed width in inches."""
    draw: Callable[[], Figure]
    """Function that draws the figure with the current rcParams of matplotlib."""
    style: str | Path | None = None

    def figure(self) -> Figure:
        """Return the matplotlib figure, which can be changed by hand."""
        with figure_style(self.style):
            return self.draw()

    def save(self, path: str | Path) -> Path:
        """Write the figure (.pdf, .svg or .png), and its caption and its data to separate files in the same
        folder.

        `fig.pdf` comes with `fig.caption.txt` and with `fig.data.csv` or `fig.data.json`. Fonts are embedded.
        Raises `InputError` for another extension, or a path that cannot be written.
        """
        path = Path(path)
        check_extension(path, PICTURES)
        write_file(path, self._bytes(path.suffix.lower()[1:]))
        caption, data = self.files_beside(path)
        write_file(caption, f"{self.caption}\n".encode())
        write_file(data, self._data_bytes())
        return path

    def files_beside(self, path: str | Path) -> tuple[Path, Path]:
        """Return the paths of caption and data that `save(path)` writes."""
        kind = "json" if isinstance(self.data, dict) else "csv"
        return Path(path).with_suffix(".caption.txt"), Path(path).with_suffix(f".data.{kind}")

    def json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "caption": self.caption,
            "width": self.width,
            "data": to_plain(self.data if isinstance(self.data, dict) else [dict(row) for row in self.data]),
        }

    def summary(self) -> str:
        return f"{self.kind}, {self.width} inches wide"

    def __str__(self) -> str:
        return self.caption

    def _repr_png_(self) -> bytes:
        return self._bytes("png")

    def _bytes(self, format: str) -> bytes:
        with figure_style(self.style):
            return figure_bytes(self.draw(), format, {"caption": self.caption}, dpi=None)

    def _data_bytes(self) -> bytes:
        if isinstance(self.data, dict):
            return (json.dumps(to_plain(self.data), ensure_ascii=False) + "\n").encode()
        file = io.StringIO()
        writer = csv.DictWriter(file, list(self.data[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.data)
        return file.getvalue().encode()


@contextmanager
def figure_style(style: str | Path | None = None) -> Iterator[None]:
    """Apply `paper.mplstyle`, the user's rcParams and a style sheet inside the block, in increasing order of
    precedence.

    `style`: a file, or the name of one of matplotlib's styles. Raises `InputError` if the style sheet cannot be
    read.
    """
    if COLOURS.name not in matplotlib.colormaps:
        matplotlib.colormaps.register(COLOURS)
    defaults: Any = matplotlib.rcParamsDefault
    own: dict[str, Any] = {
        name: value
        for name, value in matplotlib.rcParams.items()
        if not name.startswith(DISPLAY) and value != defaults[name]
    }
    settings: Any = _read_sheet(SHEET) | own | ({} if style is None else _read_sheet(style))
    with rc_context(settings):
        yield


def _read_sheet(style: str | Path) -> dict[str, Any]:
    from matplotlib import style as styles

    library: Any = styles.library
    if str(style) in library:
        return dict(library[str(style)])
    log, messages = logging.getLogger("matplotlib"), BufferingHandler(100)
    log.addHandler(messages)
    propagates, log.propagate = log.propagate, False
    try:
        sheet: Any = rc_params_from_file(style, use_default_template=False)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InputError(
            f"style {str(style)!r} cannot be read: {reason}; give a matplotlib style sheet"
        ) from error
    finally:
        log.removeHandler(messages)
        log.propagate = propagates
    if messages.buffer:
        reason = " ".join(messages.buffer[0].getMessage().split())
        raise InputError(f"style {str(style)!r} is not a matplotlib style sheet: {reason}")
    return {name: value for name, value in sheet.items() if not name.startswith(DISPLAY[:-2])}
