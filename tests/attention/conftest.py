"""The short sequences of the tests use PyTorch's fused kernel, like long sequences."""

import pytest

from regard.attention import layer as attention_layer


@pytest.fixture(autouse=True)
def no_sequence_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_layer, "SHORT", 0)
