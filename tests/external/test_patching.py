"""Activation patching equals manual patching."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")
CLEAN, CORRUPTED = "the cat sat on the mat", "the dog sat on the mat"


def test_a_model_without_logits_is_refused(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    with pytest.raises(InputError, match="BertModel returns states and no logits: choose a model with an output layer"):
        regard.patch(regard.look(model_of("bert"), tokenizer), CLEAN, CORRUPTED)


class TwoLayerModel(nn.Module):
    """Two PyTorch layers that take the fused fast path without a recording."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.answer = nn.Linear(12, 5)

    def forward(self, states: Tensor) -> Tensor:
        answers: Tensor = self.answer(self.encoder(states))
        return answers


@torch.no_grad()
def test_pytorch_layers_are_patched() -> None:
    torch.manual_seed(4)
    model = TwoLayerModel().eval()
    clean, corrupted = torch.randn(2, 1, 7, 12)
    subject = regard.look(model, lambda each: each, inputs=[clean, corrupted])
    measure = lambda logits: logits[-1, 0] - logits[-1, 3]  # noqa: E731
    result = regard.patch(subject, clean, corrupted, metric=measure)
    assert list(result.heads) == ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]
    assert model.encoder.layers[0].self_attn.out_proj.bias.shape == (12,)  # unchanged
    differences = [float(measure(model(states)[0])) for states in (clean, corrupted)]
    assert (result.difference_clean, result.difference_corrupted) == pytest.approx(differences, abs=1e-5)
    # After the last block, nothing of the corrupted input is left.
    assert result.states["encoder.layers.1"] == pytest.approx(1, abs=1e-4)


def test_contexts_with_a_convolution_are_left_out(model_of: Callable[[str], Any]) -> None:
    """ConvBERT's output projection also reads a convolution, so its input is not the contexts of the heads."""
    from regard.external.model_components import UNKNOWN_PROJECTION

    for name, separable in (("convbert", False), ("bert-mlm", True), ("llama", True)):
        model = model_of(name)
        subject = regard.look(model, lambda tokens: tokens, inputs=[torch.tensor([[5, 6, 7]])])
        components = subject.components
        assert bool(components.heads) == separable, name
        assert separable or set(components.left_out.values()) == {UNKNOWN_PROJECTION}, name
