"""Recording of Regard's own layers: keep the weights of every one while a model runs.

`regard.record` does this for any model (see `regard.external`); it, and the packages below it, are built on this
module.

Outside of a recording a layer takes the fused kernel. Inside, it works out its weights and hands them over; asked
for some heads or rows only, it takes the fused kernel for the output and works out just those rows beside it. The
model's signature never changes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from torch import nn

from regard.attention.intervening import interventions_in
from regard.attention.observing import AttentionLayer, layers_of, observing, uncompiled, with_recorder
from regard.attention.records import Recorder, Records, short_name
from regard.errors import InputError, unknown_choice


@contextmanager
def record_own(
    model: nn.Module,
    *,
    layers: Collection[str] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    inside: bool = False,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Iterator[Records]:
    """Record the attention layers of `model` that are Regard's: yields a mapping from layer name to `Record`.

    It fills as the model runs; a layer that runs again replaces its record, or goes on with it where it takes
    one step after the other of the same sequences (in a search, as long as none of them has ended, and without a
    beam). `layers`, `heads` and `rows` (query steps) limit what is recorded, and nothing else is computed: a few
    rows of a long input cost a few rows. `inside`: keep what the weights came of and led to as well (queries,
    keys, scores, values, contexts) in `Record.inside`; it goes with whole layers only. Labels travel with every
    record. Gradients flow as usual, and the outputs differ from the unrecorded ones by no more than the fused
    kernel's rounding (1e-5 in float32); with `heads` or `rows` they are identical. Raises `InputError` for a
    layer that the model has not, for heads or rows with `inside`, and, as it runs, for a head or row out of
    range; for a row, where steps come one by one, when the record is asked for.
    """
    recorder = recorder_of(heads, rows, query_labels, key_labels, inside=inside)
    recorder.interventions = partial(interventions_in, model)
    found = layers_of(model)
    for name in layers or ():
        if name not in (*found, *map(short_name, found)):
            raise unknown_choice("layer", name, map(short_name, found))
    with uncompiled(), recording_layers(found, recorder, layers):
        yield Records(recorder)


def recorder_of(
    heads: Sequence[int] | None,
    rows: Sequence[int] | None,
    query_labels: Sequence[str] | None,
    key_labels: Sequence[str] | None,
    *,
    inside: bool,
) -> Recorder:
    """Return what keeps as a recording was asked to; raises `InputError` for what does not go together."""
    if inside and not (heads is None and rows is None):
        raise InputError("inside goes with whole layers: leave heads and rows out")
    return Recorder(heads=heads, rows=rows, query_labels=query_labels, key_labels=key_labels, inside=inside)


@contextmanager
def recording_layers(
    found: Mapping[str, AttentionLayer], recorder: Recorder, layers: Collection[str] | None
) -> Iterator[None]:
    """Hand what those of a model's own layers do in the block that are asked for over to a recorder."""
    with observing(
        {
            layer: with_recorder(layer.observer, recorder, name)
            for name, layer in found.items()
            if layers is None or name in layers or short_name(name) in layers
        }
    ):
        yield
