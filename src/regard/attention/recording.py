"""Recording of Regard's own attention layers.

`regard.record` records any model (see `regard.external`). `regard.record` and the packages below
`regard.external` use this module.

Outside of a recording, a layer calls the fused kernel. A recorded layer computes its weights explicitly.
If only some heads or rows are recorded, the output comes from the fused kernel, and the layer computes only these
weights in addition. The signature of the model never changes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from torch import nn

from regard.attention.hooks import (
    AttentionLayer,
    attach_hooks,
    attention_layers,
    disable_compile,
    with_recorder,
)
from regard.attention.interventions import active_interventions
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
    """Record Regard's attention layers in `model`: yields a mapping from layer name to `Record`.

        with record_own(model) as records:
            model(inputs)
        records["cross"].weights

    The mapping fills as the model runs. A layer that runs again replaces its record. A layer that decodes the
    same sequences step by step continues its record; in a search without a beam, it does so until one of the
    sequences ends.

    `layers`, `heads` and `rows` (query steps) select what is recorded, and nothing else is computed. `inside`:
    also store queries, keys, scores, values and contexts in `Record.inside`, of whole layers only. Labels are
    attached to each record. Gradients flow as usual. The model's outputs differ from those without recording by
    the rounding of the fused kernel at most (1e-5 in float32), and not at all with `heads` or `rows`.

    Raises `InputError` for an unknown layer, for heads or rows with `inside`, and, when the model runs, for a
    head or row out of range. In stepwise decoding, a row that is out of range raises an error when the record is
    requested.

    >>> import torch
    >>> from regard.attention import EncoderLayer
    >>> layer = EncoderLayer(12, 3, 24)
    >>> with record_own(layer) as records:
    ...     output = layer(torch.zeros(2, 5, 12))
    >>> records["self_attention"].weights.shape
    torch.Size([2, 3, 5, 5])
    """
    recorder = make_recorder(heads, rows, query_labels, key_labels, inside=inside)
    recorder.interventions = partial(active_interventions, model)
    own = attention_layers(model)
    for name in layers or ():
        if name not in (*own, *map(short_name, own)):
            raise unknown_choice("layer", name, map(short_name, own))
    with disable_compile(), record_layers(own, recorder, layers):
        yield Records(recorder)


def make_recorder(
    heads: Sequence[int] | None,
    rows: Sequence[int] | None,
    query_labels: Sequence[str] | None,
    key_labels: Sequence[str] | None,
    *,
    inside: bool,
) -> Recorder:
    """Return a recorder with these options; raises `InputError` if options exclude each other."""
    if inside and not (heads is None and rows is None):
        raise InputError("inside records whole layers: leave heads and rows out")
    return Recorder(heads=heads, rows=rows, query_labels=query_labels, key_labels=key_labels, inside=inside)


@contextmanager
def record_layers(
    own: Mapping[str, AttentionLayer], recorder: Recorder, layers: Collection[str] | None
) -> Iterator[None]:
    """Attach a recorder to the layers in `own` that `layers` names; None for all of them."""
    with attach_hooks(
        {
            layer: with_recorder(layer.hook, recorder, name)
            for name, layer in own.items()
            if layers is None or name in layers or short_name(name) in layers
        }
    ):
        yield
