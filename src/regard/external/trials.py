"""An input of a model that was not built here, ready to be probed: run again with its embedding changed."""

from collections.abc import Sequence

from torch import Tensor, nn

from regard.external.families import Family, Fed, called
from regard.viz import Layer, ProbeInput


def trial_of(model: nn.Module, family: Family, layers: Sequence[Layer], input: Fed) -> ProbeInput | None:
    """Return an input ready to be probed; None for a model without outputs step by step."""
    embedding = family.embedding(model)
    given = family.plain(model, input)
    if family.reads is None or embedding is None or not isinstance(given, dict):
        return None

    def run(count: int) -> Tensor:
        copies = {name: each.expand(count, *each.shape[1:]) for name, each in given.items()}
        logits = family.logits(called(model, copies))
        assert logits is not None
        return logits

    return ProbeInput(run, embedding, [each.name for each in layers if each.kind == family.reads], None)
