"""Learned positions."""

import pytest
import torch

from regard.attention import LearnedPositions
from regard.errors import InputError


def test_each_step_gets_its_own_vector_from_zero_on() -> None:
    positions = LearnedPositions(7, 3)
    with torch.no_grad():
        positions.vectors.copy_(torch.arange(21.0).view(7, 3))
    assert positions(torch.zeros(2, 5, 3))[1].tolist() == torch.arange(15.0).view(5, 3).tolist()


def test_a_sequence_longer_than_learned_is_refused() -> None:
    with pytest.raises(InputError, match="8 steps is too long: positions were learned for 7"):
        LearnedPositions(7, 3)(torch.zeros(2, 8, 3))
