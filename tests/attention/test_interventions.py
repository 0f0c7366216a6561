"""Interventions change the weights, and the outputs computed from them."""

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from regard import record
from regard.attention.interventions import Intervention, intervene
from regard.attention.layer import Attention
from regard.attention.multihead import MultiHeadAttention
from regard.errors import InputError
from regard.models.base import Seq2Seq
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from regard.models.transformer import Transformer, TransformerConfig


@pytest.fixture
def layer() -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(12, 3)


@pytest.fixture
def mask() -> Tensor:
    return torch.tensor([[True] * 5, [True, True, True, False, False]]).unsqueeze(1)


class Holder(nn.Module):
    """A model with a named layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.cross = layer


def test_head_that_is_off_adds_nothing(layer: MultiHeadAttention, states: Tensor, mask: Tensor) -> None:
    """Ablating a head is equivalent to setting its part of the output projection to zero."""
    with intervene(Holder(layer), "cross", heads=[1]):
        found = layer(states, mask=mask)
    with torch.no_grad():
        layer.output.weight[:, 4:8] = 0.0
    torch.testing.assert_close(found, layer(states, mask=mask))


def test_uniform_weights_give_the_mean_of_allowed_values(
    layer: MultiHeadAttention, states: Tensor, mask: Tensor
) -> None:
    model = Holder(layer)
    with intervene(model, "cross", heads=[0, 2], to="uniform"), record(model) as records:
        layer(states, mask=mask)
    weights = records["cross"].weights
    torch.testing.assert_close(weights[0, [0, 2]], torch.full((2, 5, 5), 0.2))
    torch.testing.assert_close(weights[1, 0], torch.tensor([1, 1, 1, 0, 0]).div(3).expand(5, 5))
    with record(model) as untouched:
        layer(states, mask=mask)
    torch.testing.assert_close(weights[:, 1], untouched["cross"].weights[:, 1])


def test_one_weight_is_set_and_the_others_keep_their_proportions(
    layer: MultiHeadAttention, states: Tensor, mask: Tensor
) -> None:
    model = Holder(layer)
    with record(model) as before:
        layer(states, mask=mask)
    with intervene(model, "cross", heads=[2], to=0.7, query=3, key=1), record(model) as after:
        layer(states, mask=mask)
    old, new = before["cross"].weights.clone(), after["cross"].weights
    row = old[0, 2, 3]
    expected = row / (1 - row[1]) * 0.3
    expected[1] = 0.7
    torch.testing.assert_close(new[0, 2, 3], expected)
    torch.testing.assert_close(new.sum(-1), torch.ones(2, 3, 5))
    old[:, 2, 3] = new[:, 2, 3]
    torch.testing.assert_close(new, old)


def test_masked_keys_keep_zero_weight(layer: MultiHeadAttention, states: Tensor, mask: Tensor) -> None:
    model = Holder(layer)
    with intervene(model, "cross", to=1.0, query=0, key=4), record(model) as records:
        layer(states, mask=mask)
    weights = records["cross"].weights
    assert (weights[0, :, 0, 4] == 1).all() and (weights[1, :, 0, 4] == 0).all()


@given(
    value=st.floats(0, 1),
    scores=st.lists(st.floats(-30, 30), min_size=4, max_size=4),
    allowed=st.lists(st.booleans(), min_size=4, max_size=4),
    key=st.integers(0, 3),
)
def test_rows_stay_distributions(value: float, scores: list[float], allowed: list[bool], key: int) -> None:
    allowed = [*allowed]
    allowed[key] = True
    mask = torch.tensor(allowed).view(1, 1, 1, 4)
    weights = torch.tensor(scores).view(1, 1, 1, 4).masked_fill(~mask, -1e9).softmax(-1).masked_fill(~mask, 0.0)
    found = Intervention(to=value, query=0, key=key).apply(weights, mask, None)
    assert found[0, 0, 0, key].item() == pytest.approx(value)
    assert (found[~mask] == 0).all() and (found >= 0).all()
    if sum(allowed) > 1:
        assert found.sum().item() == pytest.approx(1, abs=1e-5)


def test_a_row_with_a_sink_keeps_its_sum() -> None:
    """The part of the sink does not become the part of other keys, unless the new weight needs it."""
    weights = torch.tensor([0.2, 0.1, 0.2]).view(1, 1, 1, 3)  # the sink has 0.5
    for value, expected in ((0.3, [0.1, 0.3, 0.1]), (0.6, [0.0, 0.6, 0.0])):
        changed = Intervention(to=value, query=0, key=1).apply(weights, None, None)
        assert changed.flatten().tolist() == pytest.approx(expected)


def test_interventions_nest_and_end(states: Tensor) -> None:
    attention = Attention()
    model = Holder(attention)
    plain = attention(states, states, states)
    with intervene(model, "cross", to="uniform"):
        with intervene(model, "cross", to=1.0, query=0, key=2):
            inner = attention(states, states, states)
        outer = attention(states, states, states)
    torch.testing.assert_close(inner[:, 0], states[:, 2])
    torch.testing.assert_close(inner[:, 1:], outer[:, 1:])
    torch.testing.assert_close(outer, states.mean(1, keepdim=True).expand_as(outer))
    assert torch.equal(attention(states, states, states), plain)


def test_an_intervention_ends_when_the_block_fails(states: Tensor) -> None:
    attention = Attention()
    with pytest.raises(ZeroDivisionError):
        with intervene(Holder(attention), "cross"):
            1 / 0  # noqa: B018
    assert attention.hook is None


def test_gradients_flow(layer: MultiHeadAttention, states: Tensor) -> None:
    with intervene(Holder(layer), "cross", heads=[0]):
        layer(states).sum().backward()
    assert layer.query.weight.grad is not None
    assert (layer.query.weight.grad[:4] == 0).all() and (layer.query.weight.grad[4:] != 0).any()


def _models() -> dict[str, Seq2Seq]:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"source_symbols": 9, "target_symbols": 9}
    recurrent: dict[str, Any] = {"hidden": 8, "embedding": 6}
    return {
        "transformer": Transformer(TransformerConfig(hidden=8, heads=2, inner=16), longest=12, **sizes),
        "luong": RecurrentSeq2Seq(RecurrentConfig(**recurrent), **sizes),
        "fed": RecurrentSeq2Seq(RecurrentConfig(**recurrent, input_feeding=True), **sizes),
        "bahdanau": RecurrentSeq2Seq(RecurrentConfig(**recurrent, context="cell", query="previous"), **sizes),
    }


@pytest.mark.parametrize("name", ["transformer", "luong", "fed", "bahdanau"])
@pytest.mark.parametrize("change", [{"to": 0.9, "query": 2, "key": 1}, {"to": "uniform"}, {"to": "off"}])
def test_single_steps_equal_one_call(name: str, change: dict[str, object]) -> None:
    """Search and teacher forcing use the same interventions."""
    model = _models()[name].eval()
    source = torch.tensor([[4, 5, 6, 7], [8, 4, 3, 0]])
    mask, target = source > 0, torch.tensor([[1, 4, 5, 6, 7], [1, 5, 4, 4, 8]])
    layer = model.cross_layers[0]
    with torch.inference_mode(), intervene(model, layer, **change):  # type: ignore[arg-type]
        at_once = model(source, mask, target)
        state = model.start(model.encode(source, mask))
        for step in range(target.shape[1]):
            states, state = model.step(target[:, step : step + 1], state)
            torch.testing.assert_close(model.logits(states[:, 0]), at_once[:, step])
    with torch.inference_mode():
        plain = model(source, mask, target)
    assert not torch.allclose(plain, at_once)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"to": "zero"}, "to 'zero' is unknown: choose off, uniform"),
        ({"to": 1.5, "query": 0, "key": 0}, "to 1.5 is out of range"),
        ({"to": float("nan"), "query": 0, "key": 0}, "to nan is out of range"),
        ({"to": 0.5, "query": 0}, "give query and key"),
        ({"to": "off", "query": 0, "key": 1}, "omit query and key"),
    ],
)
def test_invalid_interventions_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Intervention(**change)  # type: ignore[arg-type]


def test_unknown_layers_and_heads_are_refused(layer: MultiHeadAttention, states: Tensor) -> None:
    model = Holder(layer)
    with pytest.raises(InputError, match="layer 'self' is not in the model: choose cross"), intervene(model, "self"):
        pass
    with pytest.raises(InputError, match="this model has no attention"), intervene(nn.Linear(1, 1), "self"):
        pass
    with pytest.raises(InputError, match="head 3 is out of range: choose from 0 to 2"):
        with intervene(model, "cross", heads=[3]):
            layer(states)
    for query, key in ((5, 0), (0, 5)):
        with pytest.raises(InputError, match="5 is out of range: choose from 0 to 4"):
            with intervene(model, "cross", to=0.5, query=query, key=key):
                layer(states)
