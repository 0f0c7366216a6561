"""Activation patching equals manual patching."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.interpret.patching import InputPair, compare_answers
from tests.external.any_models import TorchClassifier, draw_weights

pytestmark = pytest.mark.filterwarnings("ignore")
CLEAN, CORRUPTED = "the cat sat on the mat", "the dog sat on the mat"


def test_a_model_without_logits_is_refused(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    with pytest.raises(InputError, match="BertModel returns states and no logits: choose a model with an output layer"):
        regard.patch(regard.look(model_of("bert"), tokenizer), CLEAN, CORRUPTED)


@pytest.mark.parametrize(("causal", "answers", "step"), [(False, "12", 1), (False, "40", 3), (True, "12", 3)])
def test_answers_of_an_encoder_decoder_are_compared_where_they_are_predicted(
    causal: bool, answers: str, step: int
) -> None:
    """The clean run predicts the classes 0, 1, 2, 3; class 4 at no step."""
    subject: Any = SimpleNamespace(patchable=SimpleNamespace(answer_class=lambda text, size: int(text)), called=list)
    inputs = InputPair(None, None, causal)
    difference = compare_answers(subject, inputs, [torch.eye(4, 5), torch.arange(20.0).view(4, 5)], answers=(*answers,))
    assert difference.step == step


@torch.no_grad()
def test_pytorch_layers_are_patched() -> None:
    model: Any = draw_weights(TorchClassifier())
    clean, corrupted = torch.randint(60, (2, 1, 7), generator=torch.Generator().manual_seed(4))
    subject = regard.look(model, lambda each: each, inputs=[clean, corrupted])
    measure = lambda logits: logits[..., 0] - logits[..., 2]  # noqa: E731
    result = regard.patch(subject, clean, corrupted, metric=measure)
    assert list(result.heads) == ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]
    assert model.encoder.layers[0].self_attn.out_proj.bias.shape == (32,)  # unchanged
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
