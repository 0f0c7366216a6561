"""Attention hooks: one hook per layer at any nesting depth."""

from contextlib import AbstractContextManager, ExitStack
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import record
from regard.attention import layer as attention_layer
from regard.attention.interventions import intervene
from regard.attention.layer import AttentionHook, explicit_weights
from regard.attention.multihead import MultiHeadAttention


@pytest.fixture
def model() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"cross": MultiHeadAttention(12, 3)})


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_records_show_changed_weights_in_whatever_order_they_nest(
    model: nn.ModuleDict, states: Tensor, order: tuple[int, ...]
) -> None:
    blocks: list[AbstractContextManager[Any]] = [
        record(model, rows=[1, 3]),
        intervene(model, "cross", heads=[0], to="uniform"),
        intervene(model, "cross", heads=[2], to="off"),
    ]
    with ExitStack() as stack:
        entered = {each: stack.enter_context(blocks[each]) for each in order}
        changed = model["cross"](states)
    weights = entered[0]["cross"].weights
    torch.testing.assert_close(weights[:, 0], torch.full((2, 2, 5), 0.2))
    assert not weights[:, 2].any() and weights[:, 1].unique().numel() > 10
    assert not torch.allclose(changed, model["cross"](states))


def test_changes_apply_in_the_order_in_which_they_were_made(model: nn.ModuleDict, states: Tensor) -> None:
    with record(model) as records:
        with intervene(model, "cross", to="off"), intervene(model, "cross", to="uniform"):
            model["cross"](states)
            assert (records["cross"].weights == 0.2).all()
        with intervene(model, "cross", to="uniform"), intervene(model, "cross", to="off"):
            model["cross"](states)
            assert not records["cross"].weights.any()


def test_explicit_hook_changes_nothing(model: nn.ModuleDict, states: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = model["cross"]
    plain = layer(states)
    monkeypatch.setattr(attention_layer, "_fused_kernel", None)  # must not be called
    with explicit_weights(model):
        assert layer.hook == AttentionHook()
        torch.testing.assert_close(layer(states), plain, atol=1e-6, rtol=0)
        with intervene(model, "cross"), explicit_weights(model):
            assert not layer(states).any()
    with pytest.raises(TypeError):
        layer(states)


def test_fused_kernel_runs_once_when_rows_are_recorded(
    model: nn.ModuleDict, states: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    called, kernel = [], attention_layer._fused_kernel

    def counted(*parts: Any) -> Tensor:
        called.append(1)
        return kernel(*parts)

    monkeypatch.setattr(attention_layer, "_fused_kernel", counted)
    for limits, calls in (({}, 0), ({"rows": [1]}, 1), ({"heads": [1]}, 1)):
        called.clear()
        with record(model, **limits):  # type: ignore[call-overload]
            model["cross"](states)
        assert len(called) == calls
    called.clear()
    with record(model, rows=[1]), intervene(model, "cross"):
        model["cross"](states)
    assert not called
