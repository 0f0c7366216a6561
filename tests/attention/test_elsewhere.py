"""Layers can be exported for any size, used in `vmap`, copied, and saved while recorded."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import record
from regard.attention.blocks import Encoder
from regard.attention.multihead import MultiHeadAttention
from regard.attention.scores import SCORES, Additive
from regard.attention.single import Attention
from regard.errors import InputError

SIZES = {0: torch.export.Dim("batch"), 1: torch.export.Dim("time")}


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = MultiHeadAttention(8, 4, groups=2, rotary=True)

    def forward(self, states: Tensor) -> Tensor:
        return self.layer(states, causal=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "layer", [Causal(), MultiHeadAttention(8, 2, score=Additive)], ids=["causal", "additive"]
)
def test_exported_for_any_batch_and_length(layer: nn.Module) -> None:
    exported = torch.export.export(layer, (torch.randn(3, 5, 8),), dynamic_shapes=(SIZES,)).module()
    for shape in ((2, 9, 8), (7, 4, 8)):
        states = torch.randn(shape)
        torch.testing.assert_close(exported(states), layer(states), atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_a_stack_with_padding_is_exported_for_any_size() -> None:
    encoder = Encoder(1, 8, 2, 16)
    given = torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)
    exported = torch.export.export(encoder, given, dynamic_shapes=(SIZES, SIZES)).module()
    states, padding = torch.randn(4, 6, 8), torch.rand(4, 6) > 0.3
    torch.testing.assert_close(exported(states, padding), encoder(states, padding), atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCORES)
def test_layers_work_under_vmap(name: str, generator: torch.Generator) -> None:
    layer = Attention(SCORES[name](8))
    queries, keys = torch.randn(3, 2, 4, 8, generator=generator), torch.randn(3, 2, 5, 8, generator=generator)
    found = torch.vmap(lambda query, key: layer(query, key, key))(queries, keys)
    expected = torch.stack([layer(query, key, key) for query, key in zip(queries, keys, strict=True)])
    torch.testing.assert_close(found, expected)


def test_several_energies_at_once(generator: torch.Generator) -> None:
    layers = [Attention(Additive(6)) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(layers)
    states = torch.randn(2, 4, 6, generator=generator)

    def call(own: dict[str, Tensor], rest: dict[str, Tensor]) -> Tensor:
        found: Tensor = torch.func.functional_call(layers[0], (own, rest), (states, states, states))
        return found

    found = torch.vmap(call)(parameters, buffers)
    expected = torch.stack([layer(states, states, states) for layer in layers])
    torch.testing.assert_close(found, expected)


def test_copies_have_no_hooks() -> None:
    layer = MultiHeadAttention(8, 2)
    with record(layer) as records:
        copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), copy.copy(layer)]
        for each in copies:
            each(torch.randn(1, 3, 8))
        assert not records and all(each.hook is None for each in copies)
        layer(torch.randn(1, 3, 8))
    assert len(records) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"heads": 0}, "heads 0 is out of range: choose from 1"),
        ({"heads": -2}, "heads -2 is out of range"),
        ({"heads": 2, "head_width": 0}, "head_width 0 is out of range"),
        ({"heads": 4, "groups": 0}, "groups 0 is out of range: choose from 1 to 4"),
        ({"heads": 4, "groups": 8}, "groups 8 is out of range"),
        ({"heads": 2.0}, "heads 2.0 is of type float: give int"),
    ],
)
def test_arguments_are_checked(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        MultiHeadAttention(8, **given)
