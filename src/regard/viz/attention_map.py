"""Attention maps, which can be displayed as text, a figure, a page or a notebook widget.

    print(attention)                 text
    attention.save("attention.html") a self-contained page; .png, .svg and .pdf are figures
    attention.view()                 a widget for a notebook

`AttentionMap` holds one input, `Maps` several inputs, and `Playback` one input at several steps of training.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

from regard.arguments import public
from regard.attention.names import known_name
from regard.errors import InputError, check_range
from regard.io.writing import write_file
from regard.result import Result, to_plain
from regard.viz.labels import merge_words
from regard.viz.maps import Map

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.viz.widget import AttentionWidget

PICTURES = (".png", ".svg", ".pdf")
PAGE = ".html"


def check_extension(path: Path, extensions: Sequence[str] = (*PICTURES, PAGE)) -> None:
    """Raise `InputError` unless the extension of `path` is one of `extensions`, in upper or lower case."""
    if path.suffix.lower() not in extensions:
        raise InputError(f"plot {str(path)!r} has no known extension: choose one of {', '.join(extensions)}")


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class AttentionMap(Map, Result):
    """One input, its prediction and truth, and the attention of every layer.

    `print` shows it as text. A notebook shows the map as a figure.
    """

    def words(self) -> Self:
        """Return the map with words instead of word pieces; see `merge_words`."""
        layers = {name: merge_words(layer) for name, layer in self.layers.items()}
        return dataclasses.replace(self, layers=layers, sums=None)

    def select(self, *, layers: Sequence[str] | None = None, heads: Sequence[int] | None = None) -> Self:
        """Return a map with only some layers and heads; raises `InputError` for an unknown layer or head."""
        names = list(self.layers) if layers is None else [known_name(name, self.layers) for name in layers]
        selection = {name: self.layers[name] for name in names}
        if heads is not None:
            for name, layer in selection.items():
                for head in heads:
                    check_range(f"head of {name}", head, 0, len(layer.weights) - 1)
                title = f"{layer.title}, heads {', '.join(map(str, heads))}"
                selection[name] = dataclasses.replace(
                    layer, weights=layer.weights[list(heads)], head_numbers=tuple(heads), title=title
                )
        return dataclasses.replace(
            self,
            layers=selection,
            layers_selected=self.layers_selected or layers is not None,
            sums=self.sums if heads is None else None,
        )

    def table(self) -> "RenderableType":
        from regard.viz.terminal import heatmap

        return heatmap(self)

    def json(self) -> dict[str, Any]:
        """Return the map as plain values, with weights as lists (H, Tq, Tk)."""
        from regard.viz.serialization import map_data

        data: dict[str, Any] = to_plain(map_data(self))
        return data

    def summary(self) -> str:
        return f"{self.task} {self.input!r}, prediction {self.prediction!r}, {len(self.layers)} layers"

    def __str__(self) -> str:
        from regard.viz.terminal import describe

        return describe(self)

    def __rich__(self) -> "RenderableType":
        return self.table()

    def _repr_png_(self) -> bytes:
        from regard.viz.heatmap import draw_map

        return draw_map(self, "png")

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook; raises `InputError` if anywidget is not installed."""
        from regard.viz.widget import view

        return view([self])

    def save(self, path: str | Path) -> Path:
        """Write the map to a file: a figure for .png, .svg or .pdf, a self-contained page for .html.

        Raises `InputError` for another extension, a path that cannot be written, or a map without attention.
        """
        path = Path(path)
        check_extension(path)
        if not self.layers:
            _ = self.cross  # raises an error with advice
        if path.suffix.lower() == PAGE:
            return self.to_html(path)
        return self.plot(path)

    def to_html(self, path: str | Path) -> Path:
        """Write a self-contained page that opens offline; raises `MachineError` if the file cannot be written."""
        from regard.viz.page import write_page

        return write_page(path, [self])

    def plot(self, path: str | Path) -> Path:
        """Write a figure to a file: .png, .svg or .pdf; raises `InputError` for another extension."""
        from regard.viz.heatmap import draw_map

        path = Path(path)
        check_extension(path, PICTURES)
        write_file(path, draw_map(self, path.suffix.lower()[1:]))
        return path


@public
class Maps(Sequence[AttentionMap], Result):
    """Attention maps of several inputs, displayed together."""

    def __init__(self, maps: Sequence[AttentionMap]) -> None:
        self._maps = list(maps)

    @overload
    def __getitem__(self, index: int) -> AttentionMap: ...
    @overload
    def __getitem__(self, index: slice) -> "Maps": ...
    def __getitem__(self, index: int | slice) -> "AttentionMap | Maps":
        return Maps(self._maps[index]) if isinstance(index, slice) else self._maps[index]

    def __len__(self) -> int:
        return len(self._maps)

    def table(self) -> "RenderableType":
        """Return a heatmap of the first input, for `rich.print` in a terminal."""
        return self._maps[0].table()

    def json(self) -> dict[str, Any]:
        return {"maps": [attention.json() for attention in self._maps]}

    def summary(self) -> str:
        return f"{len(self)} inputs, layers {', '.join(self._maps[0].layers)}"

    def __rich__(self) -> "RenderableType":
        return self.table()

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook; raises `InputError` if anywidget is not installed."""
        from regard.viz.widget import view

        return view(self._maps)

    def to_html(self, path: str | Path) -> Path:
        """Write a page with all inputs and layers, which opens offline; see `regard.viz.page`."""
        from regard.viz.page import write_page

        return write_page(path, self._maps)

    def plot(self, path: str | Path, *, input: int = 0) -> Path:
        """Write a figure of one input of the batch to a file: .png, .svg or .pdf."""
        return self._maps[input].save(path)


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Playback(Result):
    """Attention maps of one input at several training steps."""

    steps: list[int]
    """Training step of each snapshot."""
    frames: list[AttentionMap]
    """The map of each snapshot."""
    losses: list[tuple[int, float]]
    """Pairs of a training step and the loss of the training batch at this step."""

    def table(self) -> "RenderableType":
        from rich.table import Table

        table = Table("step", "prediction", "largest weights", box=None, pad_edge=False)
        for step, frame in zip(self.steps, self.frames, strict=True):
            largest = (f"{layer.name} {layer.weights.max():.3f}" for layer in frame.layers.values())
            table.add_row(f"{step:,}", str(frame.prediction), ", ".join(largest))
        return table

    def summary(self) -> str:
        return f"{len(self.frames)} frames, steps {self.steps[0]:,} to {self.steps[-1]:,}"

    def data(self) -> dict[str, Any]:
        """Return the fields as a dictionary, which `regard.viz.page` takes as `playback`."""
        return {"steps": self.steps, "losses": self.losses, "frames": self.frames}

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook; raises `InputError` if anywidget is not installed."""
        from regard.viz.widget import view

        return view(self.frames[-1:], playback=self.data())

    def to_html(self, path: str | Path) -> Path:
        """Write a page with a slider over the training steps, which opens offline."""
        from regard.viz.page import write_page

        return write_page(path, self.frames[-1:], playback=self.data())
