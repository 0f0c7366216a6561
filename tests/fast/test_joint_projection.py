"""One product for queries, keys and values equals separate products, for outputs, weights and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention.blocks import DecoderLayer, EncoderLayer
from regard.attention.multihead import MultiHeadAttention
from regard.fast import joint_projection

LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"bias": True},
    "rotary": {"rotary": True},
    "groups": {"groups": 2},
    "rotary groups": {"rotary": True, "groups": 1},
    "narrow heads": {"head_width": 2},
    "alibi": {"mechanism": "alibi", "kind": "causal"},
    "sink": {"mechanism": "rotary,sink", "kind": "causal"},
    "cosine": {"mechanism": "cosine"},
    "gate": {"mechanism": "output_gate"},
    "part of the dimensions": {"mechanism": "rotary:100:0.5"},
}
SEPARATE = {
    "latent": "latent:4",
    "shifted_keys": "shifted_keys",
    "differential": "differential",
    "forgetting": "forgetting",
    "gated_linear": "gated_linear",
}
"""Mechanisms whose projections stay separate."""


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each joint product appends its number of layers."""
    counts: list[int] = []
    original = joint_projection.joint_linear

    def count(states: Tensor, layers: Any) -> Tensor:
        counts.append(len(layers))
        return original(states, layers)

    monkeypatch.setattr("regard.attention.multihead.joint_linear", count)
    return counts


def gradients(module: nn.Module, *args: Tensor) -> list[Tensor]:
    """Return the output and the gradients of arguments and parameters, in float64."""
    leaves = [value.clone().requires_grad_() for value in args]
    output = module(*leaves)
    output = output[0] if isinstance(output, tuple) else output
    aim = torch.randn(output.shape, dtype=output.dtype, generator=torch.Generator().manual_seed(1))
    parameters = list(module.parameters())
    return [output, *torch.autograd.grad((output * aim).sum(), [*leaves, *parameters])]


def compare(module: nn.Module, monkeypatch: pytest.MonkeyPatch, *args: Tensor) -> None:
    together = gradients(module, *args)
    monkeypatch.setattr("regard.attention.multihead.can_join", lambda layers: False)
    for found, expected in zip(together, gradients(module, *args), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_self_attention_equals_separate_products(name: str, joined: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(16, heads=4, **LAYERS[name]).double()
    compare(layer, monkeypatch, torch.randn(2, 5, 16).double())
    assert joined == [3]


@pytest.mark.parametrize("name", SEPARATE)
def test_other_keys_are_projected_separately(name: str, joined: list[int]) -> None:
    layer = MultiHeadAttention(16, heads=4, mechanism=SEPARATE[name], kind="causal")
    layer(torch.randn(2, 5, 16))
    assert joined == []


def test_blocks_equal_separate_products(joined: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    compare(EncoderLayer(16, 4, 8, rotary=True).double(), monkeypatch, torch.randn(2, 5, 16).double())
    assert joined == [3]


def test_a_decoder_layer_equals_separate_products(joined: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(16, 4, 8, rotary=True).double()

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, states: Tensor, memory: Tensor) -> Tensor:
            return self.layer(states, self.layer.project(memory))[0]

    compare(Both(), monkeypatch, torch.randn(2, 5, 16).double(), torch.randn(2, 3, 16).double())
    assert joined == [2, 3]


def test_evaluation_is_not_changed(joined: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, states = MultiHeadAttention(16, heads=4), torch.randn(2, 5, 16)
    layer.eval()(states)
    layer.train()
    with torch.no_grad():
        layer(states)
    monkeypatch.setenv("REGARD_REFERENCE", "1")
    layer(states)
    assert joined == []


@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_hooks_of_projections_see_their_calls(joined: list[int], part: str) -> None:
    layer, calls = MultiHeadAttention(16, heads=4), list[str]()
    module: nn.Module = getattr(layer, part)
    module.register_forward_hook(lambda *_: calls.append(part))
    layer(torch.randn(2, 5, 16))
    assert calls == [part] and joined in ([], [2])


def test_layers_with_and_without_a_bias_are_separate() -> None:
    assert not joint_projection.can_join([nn.Linear(2, 2), nn.Linear(2, 3, bias=False)])


def test_another_class_of_projection_is_called(joined: list[int]) -> None:
    class Adapted(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) + 1

    layer = MultiHeadAttention(16, heads=4)
    layer.value = Adapted(16, 16, bias=False)
    layer(torch.randn(2, 5, 16))
    assert joined == []
