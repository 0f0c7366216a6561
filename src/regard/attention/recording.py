"""Recording of Regard's own attention layers.

`regard.record` records any model (see `regard.external`) and uses this module for Regard's layers. A layer that
is not recorded calls the fused kernel.

A recorded layer computes its weights explicitly. If only some heads or rows are recorded, the output comes from
the fused kernel, and the layer computes only these weights in addition. The signature of the model never
changes.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from torch import nn

from regard.attention.descriptions import describe_weights
from regard.attention.hooks import AttentionLayer, attach_hooks, attention_layers, disable_compile, with_recorder
from regard.attention.interventions import active_interventions
from regard.attention.names import find_name, known_name, layer_name
from regard.attention.records import Recorder, Records


@contextmanager
def record_own(
    model: nn.Module,
    *,
    layers: Collection[str] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Iterator[Records]:
    """Record the Regard attention layers in `model`. Yields a mapping from layer name to `Record`.

        with record_own(model) as records:
            model(inputs)
        records["cross"].weights

    Records are added to the mapping as the model runs. A second forward pass of a layer replaces its record.
    Stepwise decoding of the same sequences extends the record; greedy search extends the record only until a
    sequence ends.

    `layers`, `heads` and `rows` (query steps) select the weights to compute and record. Labels are attached to
    each record. Gradients are computed as usual. Recording changes the outputs of the model only by rounding
    (at most 1e-5 in float32). If `heads` or `rows` are given, the outputs do not change.

    Raises `InputError` for an unknown layer, and, when the model runs, for a head or row that is out of range.
    In stepwise decoding, the error for a row is raised when the record is requested.

    >>> import torch
    >>> from regard.attention.blocks import EncoderLayer
    >>> layer = EncoderLayer(12, 3, 24)
    >>> with record_own(layer) as records:
    ...     output = layer(torch.zeros(2, 5, 12))
    >>> records["self_attention"].weights.shape
    torch.Size([2, 3, 5, 5])
    """
    recorder = Recorder(heads=heads, rows=rows, query_labels=query_labels, key_labels=key_labels)
    recorder.interventions = partial(active_interventions, model)
    own = {layer_name(model, path): layer for path, layer in attention_layers(model).items()}
    for name in layers or ():
        known_name(name, own)
    with disable_compile(), record_layers(own, recorder, layers):
        yield Records(recorder)


@contextmanager
def record_layers(
    own: dict[str, AttentionLayer], recorder: Recorder, layers: Collection[str] | None
) -> Iterator[None]:
    """Attach a recorder to those layers of `own` whose names are in `layers`; None for all layers."""
    recorder.remarks |= {name: describe_weights(layer) for name, layer in own.items()}
    with attach_hooks(
        {
            layer: with_recorder(layer.hook, recorder, name)
            for name, layer in reversed(own.items())  # of several names of a layer, the first remains
            if layers is None or find_name(name, layers) is not None
        }
    ):
        yield
