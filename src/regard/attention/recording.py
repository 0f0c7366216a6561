"""Recording: keep the weights of every attention layer while a model runs.

    with record(model) as records:
        model(inputs)
    records["cross"].weights        # (B, H, Tq, Tk)

Attention layers derive from `Recordable`. Outside of `record` they hold no recorder and take the fused
path; inside, they compute their weights explicitly and hand them over. The model's signature never changes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one attention layer did for one batch, in its last forward pass."""

    name: str
    """The layer's dotted name in the model."""
    weights: Tensor
    """(B, H, Tq, Tk), detached; every row sums to 1 over the keys it may see, or to 0 where it sees none."""
    mask: Tensor | None
    """What might be attended, True = yes, broadcastable to `weights`; None where everything might."""


class Recordable(nn.Module):
    """An attention layer whose weights can be recorded; `recorder` is set by `record` for its duration."""

    recorder: "dict[str, Record] | None" = None
    record_name: str = ""

    def keep(self, weights: Tensor, mask: Tensor | None) -> None:
        """Hand this forward pass's weights (B, H, Tq, Tk) to the recorder."""
        assert self.recorder is not None
        self.recorder[self.record_name] = Record(name=self.record_name, weights=weights.detach(), mask=mask)


@contextmanager
def record(model: nn.Module) -> Iterator[dict[str, Record]]:
    """Record the attention layers of `model`: yields a mapping from layer name to `Record`.

    It fills as the model runs; a layer that runs again replaces its record. Gradients flow as usual, and the
    outputs differ from the unrecorded ones by no more than the fused kernel's rounding (1e-5 in float32).
    """
    records: dict[str, Record] = {}
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, Recordable)]
    before = [(layer, layer.recorder, layer.record_name) for _, layer in layers]
    for name, layer in layers:
        layer.recorder, layer.record_name = records, name
    try:
        yield records
    finally:
        for layer, recorder, name in before:
            layer.recorder, layer.record_name = recorder, name
