"""The short sequences of the tests use PyTorch's fused kernel, like long sequences; states for several files."""

import pytest
import torch
from torch import Tensor

from regard.attention import layer as attention_layer


@pytest.fixture(autouse=True)
def no_sequence_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_layer, "SHORT", 0)


@pytest.fixture
def states(generator: torch.Generator) -> Tensor:
    return torch.randn(2, 5, 12, generator=generator)
