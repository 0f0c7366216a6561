"""Intervening in any model: change what heads attend to while it runs, and see what becomes of its answer.

    with regard.intervene(model, "encoder.layer.0.attention.self", heads=[2], to="uniform"):
        model(inputs)

Regard's own layers do it themselves (see `regard.attention`). Where a model asks Hugging Face's interface, or
calls PyTorch's attention, its weights are worked out, changed, and multiplied by the values; where it works by
hand, what comes out of its softmax is changed.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from regard.attention import Intervention, attention_layers, short_name
from regard.attention import intervene as intervene_in_own
from regard.attention.interventions import To, note_intervention
from regard.external.keeper import Toucher
from regard.external.passes import Passes
from regard.external.recording import check_layers, watching
from regard.external.wrappers import module_of


@contextmanager
def intervene(
    model: Any,
    layer: str,
    *,
    heads: Sequence[int] | None = None,
    to: To | float = "off",
    query: int | None = None,
    key: int | None = None,
    at: str | None = None,
) -> Iterator[None]:
    """Change what some `heads` of a layer attend to while the block runs (None: all of them).

    `model`: a module, or a subject that has one. `layer`: its name as in records; `.layers` may be left out.
    `to`: "off", "uniform", or, with `query` and `key`, the weight (0 to 1) of that query on that key, the others
    keeping their proportions. It holds for every input of a batch, and for every hypothesis of a search; where
    steps are generated one by one with a cache, `query` is the step. `at`: as in `record`, where `layer` is one
    of the modules that it names. Records show the changed weights, whichever block is inside the other. Gradients
    flow as usual. Raises `InputError` where the model has no such layer,
    and, as it runs, for a head or step that is not there; warns where the layer did not attend.
    """
    model, at = module_of(model, at)
    own = attention_layers(model)
    if layer in own or layer in map(short_name, own):
        with intervene_in_own(model, layer, heads=heads, to=to, query=query, key=key):
            yield
        return
    passes = Passes(model)
    change = Intervention(heads=None if heads is None else tuple(heads), to=to, query=query, key=key)
    toucher = Toucher(passes, layer, change)
    with watching(model, toucher, at=at) as likely, note_intervention(model, change.describe(layer)):
        check_layers([layer], passes, likely)
        yield
    if passes.ran and not toucher.done:
        warnings.warn(
            f"{type(model).__name__} ran, and {layer} did not attend, so nothing was changed: record the model to"
            " see which layers do",
            stacklevel=3,
        )
