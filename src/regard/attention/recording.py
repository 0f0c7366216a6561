"""Recording: keep the weights of every attention layer while a model runs.

    with record(model) as records:
        model(inputs)
    records["decoder.0.cross"].weights        # (B, H, Tq, Tk)

Outside of `record` a layer takes the fused kernel. Inside, it works out its weights and hands them over; asked
for some heads or rows only, it takes the fused kernel for the output and works out just those rows beside it. The
model's signature never changes. Layers of PyTorch's own are recorded too: see `foreign`.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from torch import nn

from regard.attention.foreign import recording_foreign
from regard.attention.observing import layers_of, observing, with_recorder
from regard.attention.records import Recorder, Records, short_name
from regard.errors import InputError


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
    """Record the attention layers of `model`: yields a mapping from layer name to `Record`.

    It fills as the model runs; a layer that runs again replaces its record, or goes on with it where it takes
    one step after the other of the same sequences (in a search, as long as none of them has ended, and without a
    beam). `layers`, `heads` and `rows` (query steps) limit what is recorded, and nothing else is computed: a few
    rows of a long input cost a few rows. Labels travel with every record. Gradients flow as usual, and the
    outputs differ from the unrecorded ones by no more than the fused kernel's rounding (1e-5 in float32); with
    `heads` or `rows` they are identical. Raises `InputError` for a layer that the model has not, and, as it runs,
    for a head or row out of range; for a row, where steps come one by one, when the record is asked for.
    """
    recorder = Recorder(heads=heads, rows=rows, query_labels=query_labels, key_labels=key_labels)
    found = layers_of(model)
    with ExitStack() as stack:
        foreign = stack.enter_context(recording_foreign(model, recorder, layers, mixed=bool(found)))
        known = [*found, *foreign]
        for name in layers or ():
            if name.split("#")[0] not in (*known, *map(short_name, found)):
                raise InputError(f"layer {name!r} is not in the model: choose {', '.join(known) or 'none'}")
        stack.enter_context(
            observing(
                {
                    layer: with_recorder(layer.observer, recorder, name)
                    for name, layer in found.items()
                    if layers is None or name in layers or short_name(name) in layers
                }
            )
        )
        yield Records(recorder)
