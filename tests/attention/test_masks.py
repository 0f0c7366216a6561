"""Masks and masked softmax."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention import as_weights_mask, length_mask, masked_softmax


def test_length_mask_is_true_before_the_end() -> None:
    assert length_mask(torch.tensor([0, 2, 3]), 3).tolist() == [
        [False, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_masks_broadcast_against_weights() -> None:
    weights = torch.zeros(2, 3, 5, 7)
    for shape in [(2, 7), (2, 5, 7), (2, 1, 5, 7)]:
        assert (weights + as_weights_mask(torch.ones(shape, dtype=torch.bool))).shape == weights.shape


@given(seed=st.integers(0, 10_000), shift=st.floats(-50, 50))
def test_rows_sum_to_one_and_a_shift_changes_nothing(seed: int, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 5, 7, generator=generator, dtype=torch.float64)
    mask = torch.rand(3, 5, 7, generator=generator) < 0.6
    weights = masked_softmax(scores, mask)
    sums = weights.sum(-1)
    torch.testing.assert_close(sums, mask.any(-1).to(sums.dtype))
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(masked_softmax(scores + shift, mask), weights)


def test_a_row_with_nothing_to_attend_is_zero_forward_and_backward() -> None:
    scores = torch.randn(2, 3, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    weights = masked_softmax(scores, mask)
    (weights * torch.arange(3.0)).sum().backward()
    assert scores.grad is not None
    assert weights[1].tolist() == [0.0, 0.0, 0.0]
    assert scores.grad[1].tolist() == [0.0, 0.0, 0.0]
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    scores = torch.linspace(-4, 4, 4096, dtype=dtype)
    expected = scores.double().softmax(-1).to(dtype)
    assert masked_softmax(scores).dtype == dtype
    torch.testing.assert_close(masked_softmax(scores), expected, rtol=2e-2, atol=0)
