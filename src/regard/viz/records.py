"""Build attention maps from recorded weights.

with regard.record(model, query_labels=words, key_labels=words) as records:
    model(inputs)
maps = regard.make_maps(records)     # one for each input of the batch
maps.view()                          # a widget
maps.to_html("attention.html")       # a self-contained page
maps.plot("attention.pdf")           # a figure
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from torch import nn

from regard.arguments import public
from regard.attention.descriptions import describe_model
from regard.attention.interventions import active_interventions, suspend_interventions
from regard.attention.records import Record, describe_remarks
from regard.errors import InputError
from regard.viz.attention_map import AttentionMap, Maps
from regard.viz.maps import LayerMap

_original_wanted = ContextVar("_original_wanted", default=True)


@public
def make_maps(records: Mapping[str, Record]) -> Maps:
    """Build an attention map for each input of the recorded batch.

    Queries and keys without labels are labeled with their index. Raises `InputError` if the records are empty.
    """
    if not records:
        raise InputError("nothing is recorded yet: run the model inside the block")
    inputs = max(len(record.weights) for record in records.values())
    interventions = tuple(dict.fromkeys(text for record in records.values() for text in record.interventions))
    return Maps(
        [
            AttentionMap(
                task="",
                input=f"input {index}" if inputs > 1 else "",
                prediction=None,
                truth=None,
                layers=make_layer_maps(records, index),
                outputs=[],
                probabilities=[],
                interventions=interventions,
                note=describe_remarks({name: record.remark for name, record in records.items()}),
            )
            for index in range(inputs)
        ]
    )


def make_layer_maps(records: Mapping[str, Record], index: int) -> dict[str, LayerMap]:
    return {name: _layer(name, record, index) for name, record in records.items() if index < len(record.weights)}


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
        kind_override=record.kind,
    )


def _labels(labels: Sequence[str] | None, count: int) -> list[str]:
    """Return the recorded labels, or indices if no labels of the right number were recorded."""
    return list(labels) if labels is not None and len(labels) == count else [str(step) for step in range(count)]


@contextmanager
def skip_original() -> Iterator[None]:
    """Skip the map without interventions inside the block, for code that observes the model's forward pass."""
    token = _original_wanted.set(False)
    try:
        yield
    finally:
        _original_wanted.reset(token)


def attach_original(
    model: nn.Module, where: str, attend: Callable[[], AttentionMap], *, wanted: bool = True
) -> AttentionMap:
    """Return the map that `attend` computes, with the active interventions and the map without them.

    The note says what distinguishes the weights from those of a softmax.

    `where`: path or name of the model. With an active intervention `attend` runs twice, except inside
    `skip_original` or if the original is not `wanted`.

        with regard.intervene(model, "cross", heads=[1]):
            attention = attach_original(model, "models/counting", attend)
        attention.interventions          # ("cross: head 1 off",)
        attention.original.prediction
    """
    interventions = active_interventions(model)
    attention = attend()
    note = "; ".join(filter(None, (attention.note, describe_model(model))))
    attention = dataclasses.replace(attention, model=where, interventions=interventions, note=note)
    if not interventions or not wanted or not _original_wanted.get():
        return attention
    with suspend_interventions():
        return dataclasses.replace(attention, original=dataclasses.replace(attend(), model=where))
