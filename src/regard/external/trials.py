"""An input of a model that was not built here, ready to be probed: run again with its embedding changed."""

from collections.abc import Sequence

from torch import Tensor, nn

from regard.external.adapters import Adapter, PreparedInput, called
from regard.viz import Layer, Trial


def make_trial(model: nn.Module, adapter: Adapter, layers: Sequence[Layer], input: PreparedInput) -> Trial | None:
    """Return an input ready to be probed; None for a model without outputs step by step."""
    embedding = adapter.embedding(model)
    given = adapter.plain(model, input)
    if adapter.reads is None or embedding is None or not isinstance(given, dict):
        return None

    def run(count: int) -> Tensor:
        copies = {name: each.expand(count, *each.shape[1:]) for name, each in given.items()}
        logits = adapter.logits(called(model, copies))
        assert logits is not None
        return logits

    return Trial(run, embedding, [each.name for each in layers if each.kind == adapter.reads], None)
