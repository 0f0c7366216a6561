"""Additive scores computed in blocks equal the explicit equation."""

import pytest
import torch
from hypothesis import given, strategies as st

from regard.attention.scores import additive_scores, pairwise_scores
from regard.fast import additive
from regard.fast.additive import blockwise_scores
from tests.memory import grown_mib


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use blocks so small that all ways to split occur."""
    monkeypatch.setattr(additive, "BLOCK", 100)


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize(
    "sizes", [(7, 1, 2, 3), (2, 5, 7, 3), (1, 11, 13, 5), (3, 2, 60, 4)], ids=["samples", "rows", "one", "row"]
)
def test_blocks_equal_the_equation_forward_and_backward(sizes: tuple[int, int, int, int]) -> None:
    batch, queries, keys, width = sizes
    inputs = drawn(0, batch, queries, width), drawn(1, batch, keys, width), drawn(2, width)
    found, expected = blockwise_scores(*inputs), pairwise_scores(*inputs)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    weight = torch.randn(found.shape, dtype=torch.float64)
    for mine, theirs in zip(
        torch.autograd.grad((found * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-11, rtol=0)


def test_second_derivatives() -> None:
    inputs = drawn(0, 2, 3, 2), drawn(1, 2, 4, 2), drawn(2, 2)
    assert torch.autograd.gradgradcheck(blockwise_scores, inputs)


@given(seed=st.integers(0, 100))
def test_leading_dimensions_broadcast(seed: int) -> None:
    inputs = drawn(seed, 2, 1, 3, 4), drawn(seed + 1, 3, 5, 4), drawn(seed + 2, 4)
    torch.testing.assert_close(blockwise_scores(*inputs), pairwise_scores(*inputs))


@pytest.mark.parametrize("empty", [(0, 3, 4), (2, 0, 4)])
def test_empty_inputs_give_empty_scores(empty: tuple[int, int, int]) -> None:
    scores = blockwise_scores(torch.zeros(empty), torch.zeros(empty[0], 5, 4), torch.zeros(4))
    assert scores.shape == (*empty[:2], 5)


def test_autocast_uses_its_dtype() -> None:
    query, keys = torch.randn(2, 3, 4, dtype=torch.bfloat16), torch.randn(2, 5, 4, dtype=torch.bfloat16)
    scores = additive_scores(query, keys, torch.randn(4))
    assert scores.dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize(("function", "low", "high"), [("blockwise_scores", 0, 200), ("pairwise_scores", 2000, 9000)])
def test_full_tensor_of_pairs_is_never_allocated(function: str, low: float, high: float) -> None:
    """The full tensor of pairs, which would take 2048 MiB, is never allocated."""
    grown = grown_mib(
        "import torch; from regard.attention.scores import pairwise_scores;"
        "from regard.fast.additive import blockwise_scores;"
        "parts = [torch.randn(n, requires_grad=True) for n in ((8, 512, 256), (8, 512, 256), (256,))]",
        f"{function}(*parts).sum().backward()",
    )
    assert low <= grown < high
