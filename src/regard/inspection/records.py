"""Records that can be looked at: in a notebook, as a page, as a picture.

with regard.record(model, query_labels=words, key_labels=words) as records:
    model(inputs)
records.view()                       # a widget
records.to_html("attention.html")    # one file, which opens offline
records.plot("attention.pdf")        # a picture for a paper
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from regard import attention
from regard.attention import Record, short_name
from regard.errors import InputError
from regard.inspection.attention_map import AttentionMap
from regard.inspection.maps import LayerMap

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.inspection.widget import AttentionWidget


class Records(Mapping[str, Record]):
    """What the attention layers of a model did, by the layer's name; `.layers` may be left out of a name."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        self._records = records

    def __getitem__(self, name: str) -> Record:
        for each, record in self._records.items():
            if name in (each, short_name(each)):
                return record
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def maps(self) -> list[AttentionMap]:
        """Return an attention map for each input of the batch.

        Queries and keys without labels are called by their number. Raises `InputError` where nothing is
        recorded.
        """
        if not self._records:
            raise InputError("nothing is recorded yet: run the model inside the block")
        inputs = max(len(record.weights) for record in self._records.values())
        return [
            AttentionMap(
                task="",
                input=f"input {index}" if inputs > 1 else "",
                prediction=None,
                truth=None,
                layers={
                    short_name(name): _layer(short_name(name), record, index)
                    for name, record in self._records.items()
                    if index < len(record.weights)
                },
                outputs=[],
                probabilities=[],
            )
            for index in range(inputs)
        ]

    def __rich__(self) -> "RenderableType":
        """Return a heatmap of the first input, for `rich.print` in a terminal."""
        return self.maps()[0].__rich__()

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook; raises `InputError` where anywidget is not installed."""
        from regard.inspection.widget import view

        return view(self.maps())

    def to_html(self, path: str | Path) -> Path:
        """Write one page, with all inputs and layers in it, that opens offline; see `regard.inspection.page`."""
        from regard.inspection.page import write_page

        return write_page(path, self.maps())

    def plot(self, path: str | Path, *, input: int = 0) -> Path:
        """Draw one input of the batch into a picture: .png, .svg or .pdf."""
        return self.maps()[input].save(path)


def _layer(name: str, record: Record, index: int) -> LayerMap:
    weights = record.weights[index].float().cpu().numpy()
    return LayerMap(
        name=name,
        title=name,
        weights=weights,
        query_labels=_labels(record.query_labels, weights.shape[1]),
        key_labels=_labels(record.key_labels, weights.shape[2]),
    )


def _labels(given: Any, count: int) -> list[str]:
    """Return the labels of a record, or numbers where there are none, or they are of other steps."""
    return list(given) if given is not None and len(given) == count else [str(step) for step in range(count)]


@contextmanager
def record(
    model: nn.Module,
    *,
    layers: Collection[str] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Iterator[Records]:
    """Record the attention layers of `model` as `regard.attention.record` does, which says what the limits and
    labels are, to be looked at."""
    with attention.record(
        model, layers=layers, heads=heads, rows=rows, query_labels=query_labels, key_labels=key_labels
    ) as records:
        yield Records(records)
