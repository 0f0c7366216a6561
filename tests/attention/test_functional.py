"""Attention weights and contexts."""

import pytest
import torch
from hypothesis import given, strategies as st

from regard.attention.functional import attention_weights, uniform_weights, weighted_sum


@given(seed=st.integers(0, 10_000), shift=st.floats(-50, 50))
def test_rows_sum_to_one_and_a_shift_changes_nothing(seed: int, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 5, 7, generator=generator, dtype=torch.float64)
    mask = torch.rand(3, 5, 7, generator=generator) < 0.6
    weights = attention_weights(scores, mask)
    sums = weights.sum(-1)
    torch.testing.assert_close(sums, mask.any(-1).to(sums.dtype))
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(attention_weights(scores + shift, mask), weights)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    scores = torch.linspace(-4, 4, 4096, dtype=dtype)
    expected = scores.double().softmax(-1).to(dtype)
    assert attention_weights(scores).dtype == dtype
    torch.testing.assert_close(attention_weights(scores), expected, rtol=2e-2, atol=0)


@pytest.mark.parametrize("keys", [1, 15, 16, 17])
def test_rows_of_any_length(keys: int) -> None:
    scores = torch.randn(2, 3, keys, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(3, keys) < 0.8
    torch.testing.assert_close(attention_weights(scores), scores.softmax(-1))
    for each in (attention_weights, lambda scores: attention_weights(scores, mask)):
        assert each(scores).is_contiguous()
        assert torch.autograd.gradcheck(each, scores) and torch.autograd.gradgradcheck(each, scores)


def test_a_context_is_the_weighted_sum_with_values_shared_by_groups_of_heads() -> None:
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]).view(1, 4, 1, 2)
    values = torch.tensor([[[4.0], [8.0]], [[10.0], [20.0]]]).unsqueeze(0)  # heads 0 and 1 share the first key head
    assert weighted_sum(weights, values).flatten().tolist() == [7.0, 4.0, 15.0, 20.0]
    assert weighted_sum(weights[:, :2], values).flatten().tolist() == [7.0, 10.0]


def test_uniform_weights_are_equal_on_allowed_keys() -> None:
    like = torch.zeros(1, 2, 2, 3)
    assert uniform_weights(like).unique().tolist() == [pytest.approx(1 / 3)]
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert uniform_weights(like, mask)[0].tolist() == [[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]] * 2
    assert uniform_weights(like, mask[:1] & mask[0, [2, 0, 1]])[0, 0].tolist() == [[0.0, 1.0, 0.0]] * 2
    assert uniform_weights(like, mask[None, None, :1])[0, 1].tolist() == [[0.5, 0.5, 0.0]] * 2
