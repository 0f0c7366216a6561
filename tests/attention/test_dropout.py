"""Dropout from random bytes."""

import pytest
import torch

from regard.attention.dropout import Dropout
from regard.errors import InputError


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5, 0.9])
def test_a_share_is_dropped_and_the_mean_stays(rate: float) -> None:
    torch.manual_seed(0)
    states = torch.ones(100, 1003)
    found = Dropout(rate)(states)
    dropped = (found == 0).float().mean().item()
    assert dropped == pytest.approx(rate, abs=1 / 512 + 0.005)
    assert found.mean().item() == pytest.approx(1.0, abs=0.02)
    assert len(found.unique()) == 2
    # Rows and columns are independent.
    assert (found == 0).float().mean(0).std().item() < 0.07 and (found == 0).float().mean(1).std().item() < 0.025


def test_dropped_values_have_no_gradient() -> None:
    states = torch.ones(64, requires_grad=True)
    found = Dropout(0.5)(states)
    found.sum().backward()
    assert states.grad is not None and torch.equal(states.grad, found.detach())


def test_equal_random_states_drop_equal_values() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return Dropout(0.3)(torch.ones(9, 7))

    assert torch.equal(draw(1), draw(1)) and not torch.equal(draw(1), draw(2))


def test_nothing_is_dropped_in_evaluation_or_at_rate_zero() -> None:
    states = torch.randn(3, 4)
    assert Dropout(0.5).eval()(states) is states and Dropout(0.0)(states) is states
    assert Dropout(0.001)(torch.ones(100_000)).eq(0).any()  # the smallest positive rate is 1/256


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_other_rates_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match="rate .* is out of range: choose at least 0 and less than 1"):
        Dropout(rate)
