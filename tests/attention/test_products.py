"""Products by oneDNN: against PyTorch's own in float64; and what is left to PyTorch."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention import Linear, linear, product, products

sizes = st.integers(1, 40)


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """Multiply small matrices as large ones are; yields the shapes of what went to oneDNN."""
    monkeypatch.setattr(products, "LARGE", 1)
    monkeypatch.setattr(products, "LARGE_WITH_GRADIENT", 1)
    seen: list[tuple[int, ...]] = []
    multiplied = products._by_onednn

    def seeing(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        for each in (states, weight):  # of others it makes no speed
            assert each.is_contiguous() or each.t().is_contiguous()
        seen.append(tuple(states.shape))
        return multiplied(states, weight, bias)

    monkeypatch.setattr(products, "_by_onednn", seeing)
    yield seen


pytestmark = pytest.mark.skipif(not products.there(), reason="needs a PyTorch with oneDNN")


@given(rows=sizes, depth=sizes, columns=sizes, left_turned=st.booleans(), right_turned=st.booleans())
def test_a_product(rows: int, depth: int, columns: int, left_turned: bool, right_turned: bool) -> None:
    left = torch.randn(depth, rows).t() if left_turned else torch.randn(rows, depth)
    right = torch.randn(columns, depth).t() if right_turned else torch.randn(depth, columns)
    expected = (left.double() @ right.double()).float()
    torch.testing.assert_close(product(left, right), expected, atol=1e-5, rtol=1e-5)


@given(shape=st.lists(st.integers(1, 5), max_size=2), width=sizes, made=sizes, bias=st.booleans())
def test_a_layer_and_its_gradients(shape: list[int], width: int, made: int, bias: bool) -> None:
    layer = Linear(width, made, bias=bias)
    states = torch.randn(*shape, 3, width, requires_grad=True)
    wide = nn.Linear(width, made, bias=bias).double()
    wide.load_state_dict(layer.state_dict())
    also = states.detach().double().requires_grad_()
    found, expected = layer(states), wide(also)
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)
    upwards = torch.randn(found.shape)
    found.backward(upwards)
    expected.backward(upwards.double())
    pairs = [(states, also), *zip(layer.parameters(), wide.parameters(), strict=True)]
    for mine, theirs in pairs:
        assert mine.grad is not None and theirs.grad is not None
        torch.testing.assert_close(mine.grad, theirs.grad.float(), atol=1e-4, rtol=1e-5)


def test_parts_of_wider_matrices_are_copied_first(small_ones_too: list[tuple[int, ...]]) -> None:
    wide, weight = torch.randn(7, 12), torch.randn(4, 12, requires_grad=True)
    linear(wide[:, :8], weight[:, :8]).sum().backward()
    product(wide[:, :8], wide[:, 2:10].t())
    product(wide[::2, :8], wide[:3, 2:10].t())
    linear(wide.view(7, 3, 4).transpose(0, 1), torch.randn(5, 12)[:, ::3])
    assert len(small_ones_too) == 5  # forwards, the gradient of the weight, and three more


def test_large_products_go_to_onednn_and_small_ones_do_not(
    small_ones_too: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    states, weight = torch.randn(7, 8), torch.randn(4, 8)
    linear(states, weight)
    product(states, weight.t())
    assert small_ones_too == [(7, 8), (7, 8)]
    monkeypatch.setattr(products, "LARGE", 7 * 8 * 4 + 1)
    linear(states, weight)
    product(states, weight.t())
    assert len(small_ones_too) == 2


def test_only_what_asks_for_a_gradient_has_one() -> None:
    states, weight, bias = torch.randn(7, 8), torch.randn(4, 8, requires_grad=True), torch.randn(4)
    linear(states, weight, bias).sum().backward()
    assert weight.grad is not None and states.grad is None and bias.grad is None
    assert not linear(states, weight.detach(), bias).requires_grad
    with torch.no_grad():
        assert not linear(states, weight, bias).requires_grad


def test_gradients_have_gradients() -> None:
    """As a Hessian needs them."""
    given = tuple(torch.randn(*shape, requires_grad=True) for shape in ((3, 4), (2, 4), (2,)))
    one, other = (
        torch.autograd.grad(
            torch.autograd.grad(call(*given).tanh().sum(), given[1], create_graph=True)[0].square().sum(), given
        )
        for call in (linear, F.linear)
    )
    for mine, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


class _Watching(TorchFunctionMode):
    """Notes which functions of PyTorch are called."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(func)
        return func(*args, **(kwargs or {}))


def test_whoever_looks_on_sees_pytorchs_own_function(small_ones_too: list[tuple[int, ...]]) -> None:
    states, layer = torch.randn(7, 8), Linear(8, 4)
    with _Watching() as watching:
        layer(states)
    assert F.linear in watching.called and not small_ones_too


def test_what_is_narrowed_wide_stacked_or_compiled_is_left_to_pytorch(
    small_ones_too: list[tuple[int, ...]],
) -> None:
    states, layer = torch.randn(7, 8), Linear(8, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(states).dtype == torch.bfloat16
    assert linear(states.double(), layer.weight.double()).dtype == torch.float64
    stacked = torch.func.vmap(lambda weight: linear(states, weight))(layer.weight.expand(3, -1, -1))
    assert stacked.shape == (3, 7, 4)
    exported = torch.export.export(layer, (states,))
    assert any(node.target == torch.ops.aten.linear.default for node in exported.graph.nodes)
    assert not small_ones_too


def test_without_onednn_all_is_as_before(
    small_ones_too: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "there", lambda: False)
    states, weight = torch.randn(7, 8), torch.randn(4, 8)
    assert torch.equal(linear(states, weight), F.linear(states, weight))
    assert torch.equal(product(states, weight.t()), states @ weight.t())
    assert not small_ones_too
