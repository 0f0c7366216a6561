"""The output layer of a search equals the model's in float64."""

import copy
from typing import Any

import pytest
import torch

from regard.data.batch import collate
from regard.decoding.search import beam_search
from regard.fast import onednn
from regard.fast.onednn import MIN_PACKED, PackedLinear, packed_logits
from regard.models.base import Seq2Seq
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from regard.models.transformer import Transformer, TransformerConfig

WIDTH = 16
SYMBOLS = MIN_PACKED // WIDTH + 3


@pytest.fixture(autouse=True, params=["oneDNN", "MKL"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use each library, whichever is faster on this processor."""
    monkeypatch.setattr(onednn, "is_faster", lambda: request.param == "oneDNN")


@pytest.fixture(params=["recurrent", "transformer"])
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    """Return a model with a vocabulary just large enough for the fast path."""
    torch.manual_seed(0)
    symbols: Any = {"source_symbols": 9, "target_symbols": SYMBOLS}
    if request.param == "transformer":
        return Transformer(TransformerConfig(hidden=WIDTH, inner=8), longest=9, **symbols).eval()
    built = RecurrentSeq2Seq(RecurrentConfig(hidden=WIDTH, embedding=4), **symbols).eval()
    torch.nn.init.normal_(built.output.bias)  # a zero bias would hide mistakes
    return built


@pytest.mark.parametrize("shape", [(1,), (1, 5), (3, 5), (64, 5), (0, 5)])
def test_logits_equal_the_models(model: Seq2Seq, shape: tuple[int, ...]) -> None:
    states = torch.randn(*shape, WIDTH)
    with torch.inference_mode():
        expected = copy.deepcopy(model).double().logits(states.double())
        found = packed_logits(model)(states)
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)


def test_weights_are_packed_if_it_is_faster(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> None:
    assert packed_logits(model) != model.logits
    double = copy.deepcopy(model).double()
    assert packed_logits(double) == double.logits
    with torch.autocast("cpu", torch.bfloat16):
        assert packed_logits(model) == model.logits
    monkeypatch.setattr(onednn, "MIN_PACKED", SYMBOLS * WIDTH + 1)
    assert packed_logits(model) == model.logits


@pytest.mark.parametrize("rows", [1, 63, 64, 127, 128, 129, 300])
@pytest.mark.parametrize("bias", [False, True])
def test_small_matrix_and_many_rows(rows: int, bias: bool) -> None:
    """Many rows are multiplied by oneDNN after padding, few rows by MKL."""
    weight, states, sums = torch.randn(384, 128), torch.randn(rows, 128), torch.randn(rows, 384)
    offset = torch.randn(384) if bias else None
    made = PackedLinear(weight, offset)
    expected = states.double() @ weight.t().double() + (0 if offset is None else offset.double())
    torch.testing.assert_close(made(states), expected.float(), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(made.add_to(sums.clone(), states), (expected + sums).float(), atol=1e-4, rtol=1e-5)


def test_search_in_bfloat16(model: Seq2Seq) -> None:
    source = collate([[4, 5, 6], [7]])
    with torch.autocast("cpu", torch.bfloat16):
        [[found], [other]] = beam_search(model, source, source != 0, width=3, max_len=4)
    assert found.log_probability < 0 and other.log_probability < 0


def test_search_uses_the_current_parameters(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> None:
    source = collate([[4, 5, 6], [7]])

    def answers() -> list[list[int]]:
        found = beam_search(model, source, source != 0, width=3, max_len=4)
        return [best.tokens for best, *_ in found]

    first = answers()
    with torch.no_grad():
        for parameter in model.vocabulary_layer:
            if parameter is not None:
                parameter.neg_()
    second = answers()
    assert second != first
    monkeypatch.setattr(onednn, "available", lambda: False)
    assert answers() == second
