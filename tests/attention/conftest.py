"""The short sequences of the tests use PyTorch's fused kernel, like long sequences."""

import pytest

from regard.attention import single


@pytest.fixture(autouse=True)
def no_sequence_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "SHORT", 0)
