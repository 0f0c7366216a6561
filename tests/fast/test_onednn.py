"""oneDNN products equal PyTorch's in float64; other calls use PyTorch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from regard import machine
from regard.fast import onednn
from regard.fast.onednn import OneDNNMode, onednn_matmul

sizes = st.integers(1, 40)


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """Use oneDNN for small matrices too, and on every processor; yield the shapes of the products by oneDNN."""
    monkeypatch.setattr(onednn, "MIN_MULTIPLICATIONS", 1)
    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    seen: list[tuple[int, ...]] = []
    multiplied = onednn.linear_by_onednn

    def seeing(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        for each in (states, weight):  # for other shapes it is not faster
            assert each.is_contiguous() or each.t().is_contiguous()
        seen.append(tuple(states.shape))
        return multiplied(states, weight, bias)

    monkeypatch.setattr(onednn, "linear_by_onednn", seeing)
    with torch.no_grad():
        yield seen


pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs a PyTorch with oneDNN")
measure = onednn.is_faster  # The measurement, which the fixture replaces


@given(rows=sizes, depth=sizes, columns=sizes, turned=st.tuples(st.booleans(), st.booleans()), bias=st.booleans())
def test_product_equals_pytorch(rows: int, depth: int, columns: int, turned: tuple[bool, bool], bias: bool) -> None:
    left = torch.randn(depth, rows).t() if turned[0] else torch.randn(rows, depth)
    right = torch.randn(columns, depth).t() if turned[1] else torch.randn(depth, columns)
    offset = torch.randn(columns) if bias else None
    expected = left.double() @ right.double() + (0 if offset is None else offset.double())
    torch.testing.assert_close(onednn_matmul(left, right, offset), expected.float(), atol=1e-5, rtol=1e-5)


@given(shape=st.lists(st.integers(1, 5), max_size=3), width=sizes, made=sizes, bias=st.booleans())
def test_linear_layer_equals_pytorch(shape: list[int], width: int, made: int, bias: bool) -> None:
    layer, states = nn.Linear(width, made, bias=bias), torch.randn(*shape, width)
    with OneDNNMode():
        found = layer(states)
    torch.testing.assert_close(found, layer.double()(states.double()).float(), atol=1e-5, rtol=1e-5)


@given(rows=st.integers(0, 5000))
def test_rows_are_padded_to_few_sizes(rows: int) -> None:
    given_rows = torch.ones(rows, 2)
    found = onednn.pad_rows(given_rows)
    assert torch.equal(found[:rows], given_rows) and not found[rows:].any()
    assert len(found) < max(rows + onednn.ROW_MULTIPLE, rows * 1.25 + 1)


def test_slices_of_wider_matrices_are_copied_first(small_ones_too: list[tuple[int, ...]]) -> None:
    wide, weight = torch.randn(7, 12), torch.randn(4, 12)
    onednn_matmul(wide[:, :8], wide[:, 2:10].t())
    onednn_matmul(wide[::2, :8], wide[:3, 2:10].t())
    with OneDNNMode():
        F.linear(wide[:, :8], weight[:, :8])
        F.linear(wide.view(7, 3, 4).transpose(0, 1), torch.randn(5, 12)[:, ::3])
    assert len(small_ones_too) == 4


def test_large_products_go_to_onednn_and_small_ones_do_not(
    small_ones_too: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    states, weight = torch.randn(7, 8), torch.randn(4, 8)
    for least, expected in ((7 * 8 * 4, [(16, 8), (7, 8)]), (7 * 8 * 4 + 1, [])):
        small_ones_too.clear()
        monkeypatch.setattr(onednn, "MIN_MULTIPLICATIONS", least)
        with OneDNNMode():
            F.linear(states, weight)
        onednn_matmul(states, weight.t())
        assert small_ones_too == expected


BIASES = {
    "with gaps": torch.randn(8)[::2],
    "of one number": torch.tensor(5.0),
    "expanded": torch.tensor([5.0]).expand(4),
    "of one number, in a vector": torch.ones(1),
    "of one row": torch.randn(1, 4),
    "of all rows": torch.randn(7, 4),
}


@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
def test_bias_of_another_shape(bias: Tensor) -> None:
    """oneDNN would read memory outside these tensors, so PyTorch computes them."""
    states, weight = torch.randn(7, 8), torch.randn(4, 8)
    expected = states @ weight.t() + bias
    torch.testing.assert_close(onednn_matmul(states, weight.t(), bias), expected, atol=1e-5, rtol=1e-5)
    if bias.dim() == 1:
        with OneDNNMode():
            torch.testing.assert_close(F.linear(states, weight, bias), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by forward_ad
def test_gradients_use_pytorch(small_ones_too: list[tuple[int, ...]]) -> None:
    states, weight = torch.randn(7, 8), torch.randn(4, 8, requires_grad=True)
    with torch.enable_grad(), OneDNNMode():
        (F.linear(states, weight).sum() + onednn_matmul(states, weight.t()).sum()).backward()
    assert weight.grad is not None
    with forward_ad.dual_level(), OneDNNMode():
        dual = F.linear(forward_ad.make_dual(states, states), weight)
        assert forward_ad.unpack_dual(dual).tangent is not None
    assert not small_ones_too


class _Watching(TorchFunctionMode):
    """Stores the called functions of PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(func)
        return func(*args, **(kwargs or {}))


def test_function_modes_see_pytorchs_function(small_ones_too: list[tuple[int, ...]]) -> None:
    states, layer = torch.randn(7, 8), nn.Linear(8, 4)
    for outer, inner in ((_Watching(), OneDNNMode()), (OneDNNMode(), _Watching())):
        with outer, inner:
            layer(states)
        watcher = outer if isinstance(outer, _Watching) else inner
        assert F.linear in watcher.called  # type: ignore[union-attr]
    assert len(small_ones_too) == 1  # when it is the outer mode, which is called last


def test_unsupported_tensors_use_pytorch(small_ones_too: list[tuple[int, ...]]) -> None:
    states, layer = torch.randn(7, 8), nn.Linear(8, 4)
    with OneDNNMode():
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(states).dtype == torch.bfloat16
        assert F.linear(states.double(), layer.weight.double()).dtype == torch.float64
        stacked = torch.func.vmap(lambda weight: F.linear(states, weight))(layer.weight.expand(3, -1, -1))
        assert stacked.shape == (3, 7, 4)
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            layer(torch.randn(7, 9))
    assert not small_ones_too


@pytest.mark.parametrize("slower", ["oneDNN", "MKL"])
def test_the_faster_library_is_measured(slower: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower library repeats its product, which costs processor time on every machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "_CHOICES", {})
    product, by_onednn, threads = torch.mm, onednn.linear_by_onednn, torch.get_num_threads()
    if slower == "MKL":
        monkeypatch.setattr(torch, "mm", lambda *args: [product(*args) for _ in range(9)])
    else:
        monkeypatch.setattr(onednn, "linear_by_onednn", lambda *args: [by_onednn(*args) for _ in range(9)])
    assert measure() == (slower == "MKL")
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("reason", ["available", "is_faster"])
def test_without_a_faster_onednn_pytorch_is_used(
    small_ones_too: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(onednn, reason, lambda: False)
    states, weight = torch.randn(7, 8), torch.randn(4, 8)
    expected = F.linear(states, weight)
    with OneDNNMode():
        assert torch.equal(F.linear(states, weight), expected)
    assert torch.equal(onednn_matmul(states, weight.t()), states @ weight.t())
    assert torch.equal(onednn.PackedLinear(weight)(states), states @ weight.t().contiguous())
    assert not small_ones_too
