"""Recording stores weights and changes no outputs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import record
from regard.attention.blocks import Decoder
from regard.attention.multihead import MultiHeadAttention
from regard.attention.single import Attention
from regard.errors import InputError
from tests.memory import grown_mib


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


def test_records_of_a_decoder_have_names_of_submodules() -> None:
    decoder = Decoder(2, 6, 2, 12)
    model = nn.ModuleDict({"decoder": decoder.layers})
    with record(model) as records:
        decoder(torch.zeros(1, 3, 6), decoder.project(torch.zeros(1, 4, 6)))
    assert list(records) == [
        "decoder.0.self_attention",
        "decoder.0.cross",
        "decoder.1.self_attention",
        "decoder.1.cross",
    ]
    assert records["decoder.1.cross"].weights.shape == (1, 2, 3, 4)


def test_recording_changes_the_output_by_rounding_only(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    plain = model(*inputs)
    with record(model):
        recorded = model(*inputs)
    torch.testing.assert_close(recorded, plain, atol=1e-5, rtol=0)
    assert torch.equal(model(*inputs), plain)


def test_some_layers_heads_and_rows(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    plain = model(*inputs)
    with record(model) as everything:
        model(*inputs)
    with record(model, layers=["second"], heads=[2, 0], rows=[4, 1]) as records:
        recorded = model(*inputs)
    assert set(records) == {"second"}
    assert torch.equal(recorded, plain)
    expected = everything["second"].weights[:, [2, 0]][:, :, [4, 1]]
    torch.testing.assert_close(records["second"].weights, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.3}, {"groups": 1}, {"rotary": True}])
@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_a_masked_layer_are_the_rows_of_the_whole(
    generator: torch.Generator, options: dict[str, Any], causal: bool
) -> None:
    layer = MultiHeadAttention(12, 2, **options)
    states = torch.randn(2, 7, 12, generator=generator)
    mask = torch.rand(2, 7, 7, generator=generator) < 0.7
    found = []
    both: list[dict[str, Any]] = [{}, {"heads": [1], "rows": [0, 6, 3]}]
    for limits in both:
        torch.manual_seed(0)
        with record(layer, **limits) as records:
            layer(states, mask=mask, causal=causal)
        found.append(records[""])
    torch.testing.assert_close(found[1].weights, found[0].weights[:, [1]][:, :, [0, 6, 3]], atol=1e-6, rtol=0)
    allowed, rows = found[0].mask, found[1].mask
    assert allowed is not None and rows is not None
    whole = allowed.expand(2, 2, 7, 7)[:, [1]][:, :, [0, 6, 3]]
    assert torch.equal(rows.expand(whole.shape), whole)


def test_records_contain_labels(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    with record(model, rows=[3, 0], query_labels=list("abcde"), key_labels=list("ABCDEFG")) as records:
        model(*inputs)
    assert records["first"].query_labels == ["d", "a"]
    assert records["first"].key_labels == list("ABCDEFG")


def test_unknown_layer_head_or_row_is_refused(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    with pytest.raises(InputError, match="layer 'third' is unknown: choose first, second"):
        with record(model, layers=["third"]):
            pass
    with pytest.raises(InputError, match="heads 3 is out of range: choose from 0 to 2"):
        with record(model, layers=["second"], heads=[3]):
            model(*inputs)
    with pytest.raises(InputError, match="rows 5 is out of range: choose from 0 to 4"):
        with record(model, rows=[5]):
            model(*inputs)
    model(*inputs)


def test_gradients_flow_while_recording(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    grads = []
    ways: list[dict[str, Any] | None] = [None, {}, {"rows": [0]}]
    for limits in ways:
        model.zero_grad()
        if limits is None:
            model(*inputs).square().sum().backward()
        else:
            with record(model, **limits) as records:
                model(*inputs).square().sum().backward()
            assert not any(layer.weights.requires_grad for layer in records.values())
        assert model.second.query.weight.grad is not None
        grads.append(model.second.query.weight.grad.clone())
    torch.testing.assert_close(grads[1], grads[0], atol=1e-5, rtol=1e-4)
    assert torch.equal(grads[2], grads[0])


def test_hooks_are_removed_even_after_an_error(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("limits", "time", "low", "high"), [("rows=[0, 17, 32_767]", 32_768, 0, 300), ("", 8_192, 1000, 9000)]
)
def test_rows_of_a_long_input_stay_small(causal: bool, limits: str, time: int, low: float, high: float) -> None:
    """Recording selected rows allocates no `T x T` matrix, which would take 4 GiB per head for 32,768 steps.
    All rows of 8,192 steps take 1 GiB.
    """
    grown = grown_mib(
        "import torch; from regard import record; from regard.attention.multihead import MultiHeadAttention;"
        f"layer, states = MultiHeadAttention(64, 4), torch.randn(1, {time}, 64)",
        f"with torch.no_grad(), record(layer, {limits}): layer(states, causal={causal})",
    )
    assert low <= grown < high
