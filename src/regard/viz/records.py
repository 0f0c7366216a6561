"""Records that can be looked at: in a notebook, as a page, as a picture.

with regard.record(model, query_labels=words, key_labels=words) as records:
    model(inputs)
maps = regard.maps_of(records)       # one for each input of the batch
maps.view()                          # a widget
maps.to_html("attention.html")       # one file, which opens offline
maps.plot("attention.pdf")           # a picture for a paper
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from regard.attention import Record, short_name
from regard.errors import InputError
from regard.result import Result
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import LayerMap

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.viz.widget import AttentionWidget


class Maps(Sequence[AttentionMap], Result):
    """Attention maps that are shown together."""

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
        """Return all maps as plain values."""
        return {"maps": [each.json() for each in self._maps]}

    def summary(self) -> str:
        """Say how many maps there are, of which layers."""
        return f"{len(self)} inputs, layers {', '.join(self._maps[0].layers)}"

    def __rich__(self) -> "RenderableType":
        return self.table()

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook; raises `InputError` where anywidget is not installed."""
        from regard.viz.widget import view

        return view(self._maps)

    def to_html(self, path: str | Path) -> Path:
        """Write one page, with all inputs and layers in it, that opens offline; see `regard.viz.page`."""
        from regard.viz.page import write_page

        return write_page(path, self._maps)

    def plot(self, path: str | Path, *, input: int = 0) -> Path:
        """Draw one input of the batch into a picture: .png, .svg or .pdf."""
        return self._maps[input].save(path)


def maps_of(records: Mapping[str, Record]) -> Maps:
    """Return an attention map for each input of the batch that was recorded.

    Queries and keys without labels are called by their number. Raises `InputError` where nothing is recorded.
    """
    if not records:
        raise InputError("nothing is recorded yet: run the model inside the block")
    found = {short_name(name): record for name, record in records.items()}
    inputs = max(len(record.weights) for record in found.values())
    return Maps(
        [
            AttentionMap(
                task="",
                input=f"input {index}" if inputs > 1 else "",
                prediction=None,
                truth=None,
                layers=layers_of_records(records, index),
                outputs=[],
                probabilities=[],
                interventions=tuple(
                    dict.fromkeys(said for each in found.values() for said in each.interventions)
                ),
            )
            for index in range(inputs)
        ]
    )


def layers_of_records(records: Mapping[str, Record], index: int) -> dict[str, LayerMap]:
    """Return the maps of one input of a batch that was recorded, by the short names of their layers."""
    found = {short_name(name): record for name, record in records.items()}
    return {name: _layer(name, record, index) for name, record in found.items() if index < len(record.weights)}


def _layer(name: str, record: Record, index: int) -> LayerMap:
    weights = record.weights[index].float().cpu().numpy()
    queries, keys = record.labels_of(index)
    return LayerMap(
        name=name,
        title=name,
        weights=weights,
        query_labels=_labels(queries, weights.shape[1]),
        key_labels=_labels(keys, weights.shape[2]),
        written=record.written,
        reads=record.kind,
    )


def _labels(given: Any, count: int) -> list[str]:
    """Return the labels of a record, or numbers where there are none, or they are of other steps."""
    return list(given) if given is not None and len(given) == count else [str(step) for step in range(count)]
