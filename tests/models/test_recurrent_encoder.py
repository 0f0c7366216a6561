"""The recurrent encoder equals PyTorch's bidirectional layers for packed sequences."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention.masks import length_mask
from regard.errors import InputError
from regard.models.recurrent import CELLS, Cell, RecurrentEncoder, reversed_steps


def twin(encoder: RecurrentEncoder, cell: Cell, input_width: int, width: int, layers: int) -> nn.LSTM | nn.GRU:
    """Return PyTorch's layer with the same parameters."""
    peer = CELLS[cell](input_width, width // 2, layers, batch_first=True, bidirectional=True).double()
    for layer in range(layers):
        for suffix, side in (("", encoder.forwards), ("_reverse", encoder.backwards)):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                own = side[layer].get_parameter(f"{name}_l0")
                peer.get_parameter(f"{name}_l{layer}{suffix}").data.copy_(own.data)
    return peer


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("layers", [1, 3])
def test_equals_a_packed_bidirectional_layer(cell: Cell, layers: int) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(3, 10, layers=layers, cell=cell).double()
    lengths = torch.tensor([7, 1, 4, 2])
    inputs = torch.randn(4, 7, 3, dtype=torch.float64)
    states, last = encoder(inputs, length_mask(lengths, 7))
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    output, final = twin(encoder, cell, 3, 10, layers)(packed)
    expected, _ = pad_packed_sequence(output, batch_first=True)
    torch.testing.assert_close(states, expected, atol=1e-12, rtol=0)
    final = final[0] if cell == "lstm" else final
    torch.testing.assert_close(last, torch.cat([final[-2], final[-1]], dim=-1), atol=1e-12, rtol=0)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_unidirectional_encoder_equals_a_packed_layer(cell: Cell) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(3, 5, layers=2, cell=cell, bidirectional=False).double()
    peer = CELLS[cell](3, 5, 2, batch_first=True).double()
    for layer in range(2):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            own = encoder.forwards[layer].get_parameter(f"{name}_l0")
            peer.get_parameter(f"{name}_l{layer}").data.copy_(own.data)
    lengths = torch.tensor([7, 1, 4])
    inputs = torch.randn(3, 7, 3, dtype=torch.float64)
    states, last = encoder(inputs, length_mask(lengths, 7))
    output, final = peer(pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False))
    torch.testing.assert_close(states, pad_packed_sequence(output, batch_first=True)[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(last, (final[0] if cell == "lstm" else final)[-1], atol=1e-12, rtol=0)


def test_without_a_mask_every_sequence_is_full() -> None:
    torch.manual_seed(0)
    encoder, inputs = RecurrentEncoder(3, 4), torch.randn(2, 5, 3)
    for found, expected in zip(encoder(inputs), encoder(inputs, torch.ones(2, 5, dtype=torch.bool)), strict=True):
        assert torch.equal(found, expected)


def test_values_in_the_padding_change_nothing() -> None:
    torch.manual_seed(0)
    encoder, mask = RecurrentEncoder(3, 4, layers=2), length_mask(torch.tensor([2, 5]), 5)
    inputs = torch.randn(2, 5, 3)
    other = inputs.masked_fill(~mask.unsqueeze(-1), 9.0)
    assert torch.equal(encoder(inputs, mask)[0], encoder(other, mask)[0])
    assert torch.equal(encoder(inputs, mask)[1], encoder(other, mask)[1])


def test_reversed_sequences() -> None:
    assert reversed_steps(torch.tensor([[3], [5]]), 5).tolist() == [[2, 1, 0, 3, 4], [4, 3, 2, 1, 0]]


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(InputError, match="hidden 7 is odd"):
        RecurrentEncoder(3, 7)
