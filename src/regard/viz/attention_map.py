"""An attention map that shows itself: as text, picture, page or widget.

    print(attention)                 the primer's printout
    attention.save("attention.html") a page of its own; .png, .svg and .pdf are pictures
    attention.view()                 a widget for a notebook

What it holds is plain data (`maps`); each way to show it is a module of its own that knows only that.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from regard.errors import check_range, unknown_choice
from regard.io import write_file
from regard.result import Result, to_plain
from regard.viz.endings import PAGE, PICTURES, check_ending
from regard.viz.maps import Map
from regard.viz.words import merge_words

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.viz.widget import AttentionWidget


@dataclass(frozen=True, kw_only=True, repr=False)
class AttentionMap(Map, Result):
    """One input, its prediction and truth, and the attention of every layer.

    `print(it)` shows it as text; in a notebook it shows itself as a picture.
    """

    def words(self) -> Self:
        """Return the map between words instead of their pieces: see `merge_words`."""
        layers = {name: merge_words(each) for name, each in self.layers.items()}
        return dataclasses.replace(self, layers=layers, sums=None)

    def chosen(self, *, layers: Sequence[str] | None = None, heads: Sequence[int] | None = None) -> Self:
        """Return the map of some layers and heads only; raises `InputError` for one that is not there."""
        names = list(self.layers) if layers is None else list(layers)
        for name in names:
            if name not in self.layers:
                raise unknown_choice("layer", name, self.layers)
        found = {name: self.layers[name] for name in names}
        if heads is not None:
            for name, layer in found.items():
                for head in heads:
                    check_range(f"head of {name}", head, 0, len(layer.weights) - 1)
                said = f"{layer.title}, heads {', '.join(map(str, heads))}"
                found[name] = dataclasses.replace(
                    layer, weights=layer.weights[list(heads)], numbers=tuple(heads), title=said
                )
        picked = self.picked or layers is not None
        return dataclasses.replace(self, layers=found, picked=picked, sums=self.sums if heads is None else None)

    def table(self) -> "RenderableType":
        """Return a heatmap of characters."""
        from regard.viz.terminal import heatmap

        return heatmap(self)

    def json(self) -> dict[str, Any]:
        """Return all as plain values, weights as lists (H, Tq, Tk)."""
        from regard.viz.page import as_json

        found: dict[str, Any] = to_plain(as_json(self))
        return found

    def summary(self) -> str:
        """Say what was answered, and how much was kept."""
        return f"{self.task} {self.input!r}, prediction {self.prediction!r}, {len(self.layers)} layers"

    def __str__(self) -> str:
        from regard.viz.terminal import describe

        return describe(self)

    def __rich__(self) -> "RenderableType":
        return self.table()

    def _repr_png_(self) -> bytes:
        from regard.viz.picture import draw

        return draw(self, "png")

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook; raises `InputError` where anywidget is not installed."""
        from regard.viz.widget import view

        return view([self])

    def save(self, path: str | Path) -> Path:
        """Write the map to a file by its ending: .png, .svg or .pdf (a picture), .html (a page of its own).

        Raises `InputError` for another ending, a path that cannot be written, or a map without attention.
        """
        path = Path(path)
        check_ending(path)
        if not self.layers:
            _ = self.cross
        if path.suffix.lower() == PAGE:
            return self.to_html(path)
        return self.plot(path)

    def to_html(self, path: str | Path) -> Path:
        """Write a page of its own, which opens offline; raises `MachineError` where that cannot be."""
        from regard.viz.page import write_page

        return write_page(path, [self])

    def plot(self, path: str | Path) -> Path:
        """Draw a picture, .png, .svg or .pdf; raises `InputError` for another ending."""
        from regard.viz.picture import draw

        path = Path(path)
        check_ending(path, PICTURES)
        write_file(path, draw(self, path.suffix.lower()[1:]))
        return path
