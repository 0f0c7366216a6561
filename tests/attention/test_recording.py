"""Recording: what is kept, and that it changes nothing."""

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Attention, MultiHeadAttention, record


class Two(nn.Module):
    """A model with a single-head and a multi-head layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Attention()
        self.second = MultiHeadAttention(15, 3)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.second(self.first(query, memory, memory, mask), memory, memory, mask)


@pytest.fixture
def inputs(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    mask = torch.rand(2, 7, generator=generator) < 0.7
    return torch.randn(2, 5, 15, generator=generator), torch.randn(2, 7, 15, generator=generator), mask


def test_records_by_layer_name(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    with record(model) as records:
        model(*inputs)
    assert set(records) == {"first", "second"}
    assert records["first"].weights.shape == (2, 1, 5, 7)
    assert records["second"].weights.shape == (2, 3, 5, 7)
    mask = records["second"].mask
    assert mask is not None
    assert (records["second"].weights[~mask.expand(2, 3, 5, 7)] == 0).all()
    torch.testing.assert_close(records["second"].weights.sum(-1), torch.ones(2, 3, 5))


def test_recording_changes_the_output_by_rounding_only(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    plain = model(*inputs)
    with record(model):
        recorded = model(*inputs)
    torch.testing.assert_close(recorded, plain, atol=1e-5, rtol=0)
    assert torch.equal(model(*inputs), plain)


def test_nothing_is_kept_outside_even_after_an_error(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    with pytest.raises(ZeroDivisionError), record(model) as records:
        raise ZeroDivisionError
    model(*inputs)
    assert records == {}


def test_recordings_nest(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    with record(model) as outer:
        with record(model.second) as inner:
            model(*inputs)
        assert set(inner) == {""}
        assert set(outer) == {"first"}
        model(*inputs)
        assert set(outer) == {"first", "second"}
