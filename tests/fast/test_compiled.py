"""ReLU and dropout of compiled layers."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention.blocks import Dropout, EncoderLayer
from regard.fast.compiled_relu import compiled_relu

BACKEND = "aot_eager_decomp_partition"
"""Divides a layer into a forward and a backward graph as the default backend does, without generating code."""


@pytest.fixture(autouse=True)
def _first_compilation() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def results(layer: torch.nn.Module, states: Tensor) -> list[Tensor]:
    """Return the outputs and all gradients of a layer, with the same random numbers in each call."""
    torch.manual_seed(3)
    states = states.detach().requires_grad_()
    layer.zero_grad()
    outputs = layer(states)
    outputs.square().sum().backward()
    grads = [parameter.grad.clone() for parameter in layer.parameters() if parameter.grad is not None]
    assert states.grad is not None
    return [outputs.detach(), states.grad, *grads]


def test_relu_equals_the_one_of_pytorch_at_all_values() -> None:
    values = torch.tensor([-2.0, -0.0, 0.0, 1e-30, 3.0, float("inf"), float("-inf"), float("nan")], requires_grad=True)
    expected, found = values.relu(), compiled_relu(values)
    torch.testing.assert_close(found, expected, equal_nan=True, atol=0, rtol=0)
    [grad], [reference] = (torch.autograd.grad(output[:-1].sum(), values) for output in (found, expected))
    assert torch.equal(grad, reference)


@pytest.mark.filterwarnings("ignore")  # warnings of PyTorch's own compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_compiled_layer_drops_the_same_values_in_both_passes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = EncoderLayer(8, 2, 16, dropout=0.3).to(dtype).train()
    compiled: Any = torch.compile(layer, backend=BACKEND, fullgraph=True)
    states = torch.randn(3, 5, 8, dtype=dtype)
    for one, other in zip(results(compiled, states), results(layer, states), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore")
def test_compiled_masks_are_independent() -> None:
    """A compiler may merge equal operations, but not two draws of random numbers."""
    layer = Dropout(0.5)

    def twice(states: Tensor) -> Tensor:
        return layer(states) - layer(states)

    assert (
        torch.compile(twice, backend=BACKEND, fullgraph=True)(torch.ones(1000, requires_grad=True)).count_nonzero()
        > 300
    )
