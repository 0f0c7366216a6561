"""Recording of Regard's own attention layers. `regard.record` records any model, and uses this for these layers.

A layer that is not recorded calls the fused kernel. A recorded layer computes its weights explicitly. If only
some heads or rows are recorded, the output comes from the fused kernel, and the layer computes only these
weights in addition (`layer.attention_forward`). The signature of the model never changes.
"""

import dataclasses
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial

from torch import nn

from regard.attention.descriptions import describe_weights
from regard.attention.interventions import active_interventions
from regard.attention.layer import AttentionHook, AttentionLayer, attach_hooks, attention_layers, disable_compile
from regard.attention.names import find_name, known_name, layer_name
from regard.attention.records import Recorder, Records


@contextmanager
def record_own(model: nn.Module, *, layers: Collection[str] | None = None) -> Iterator[Records]:
    """Record the Regard attention layers in `model`. Yields a mapping from layer name to `Record`.

    It behaves as `regard.record` and opens in less time, because it does not track the modules that run: a layer
    that runs several times in a pass has the record of its last call.
    """
    recorder = Recorder(interventions=partial(active_interventions, model))
    own = {layer_name(model, path): layer for path, layer in attention_layers(model).items()}
    for name in layers or ():
        known_name(name, own)
    with disable_compile(), record_layers(own, recorder, layers):
        yield Records(recorder)


@contextmanager
def record_layers(own: dict[str, AttentionLayer], recorder: Recorder, layers: Collection[str] | None) -> Iterator[None]:
    """Attach a recorder to those layers of `own` whose names are in `layers`; None for all layers."""
    recorder.remarks |= {name: describe_weights(layer) for name, layer in own.items()}
    with attach_hooks(
        {
            layer: dataclasses.replace(layer.hook or AttentionHook(), recorder=recorder, name=name)
            for name, layer in reversed(own.items())  # of several names of a layer, the first remains
            if layers is None or find_name(name, layers) is not None
        }
    ):
        yield
