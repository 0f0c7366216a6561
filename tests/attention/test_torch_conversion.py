"""Layers converted from and to PyTorch compute the same outputs."""

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Decoder, DecoderLayer, Encoder, MultiHeadAttention, from_torch, to_torch
from regard.errors import InputError

STATES, MEMORY = (2, 5, 12), (2, 7, 12)
PADDING = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("memory", [12, 20])
@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_both_ways(generator: torch.Generator, memory: int, bias: bool) -> None:
    theirs = nn.MultiheadAttention(12, 3, bias=bias, kdim=memory, vdim=memory, batch_first=True).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, generator=generator)
    mine = from_torch(theirs)
    query, key = torch.randn(STATES, generator=generator), torch.randn(2, 7, memory, generator=generator)
    expected, _ = theirs(query, key, key, key_padding_mask=~PADDING)
    close(mine(query, key, mask=PADDING), expected)
    back, _ = to_torch(mine)(query, key, key, key_padding_mask=~PADDING)
    close(back, expected)
    assert not mine.training


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("pre_norm", [True, False])
def test_transformers_both_ways(generator: torch.Generator, pre_norm: bool) -> None:
    theirs = nn.Transformer(12, 3, 2, 2, 24, norm_first=pre_norm, batch_first=True).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    source, target = torch.randn(MEMORY, generator=generator), torch.randn(STATES, generator=generator)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    masks = {"src_key_padding_mask": ~PADDING, "memory_key_padding_mask": ~PADDING, "tgt_mask": future}
    expected = theirs(source, target, **masks)
    mine = from_torch(theirs)
    assert isinstance(mine, nn.ModuleDict)
    encoder, decoder = mine["encoder"], mine["decoder"]
    assert isinstance(encoder, Encoder) and isinstance(decoder, Decoder)
    found, _ = decoder(target, decoder.project(encoder(source, PADDING)), PADDING)
    close(found, expected)
    close(to_torch(mine)(source, target, **masks), expected)
    [first, *_] = theirs.decoder.layers
    alone = from_torch(first)
    assert isinstance(alone, DecoderLayer)
    states, _ = alone(target, alone.project(source), PADDING)
    close(states, first(target, source, tgt_mask=future, memory_key_padding_mask=~PADDING))


def test_options_without_counterpart_are_refused() -> None:
    with pytest.raises(InputError, match="add_bias_kv and add_zero_attn have no counterpart"):
        from_torch(nn.MultiheadAttention(8, 2, add_bias_kv=True))
    with pytest.raises(InputError, match="activation 'gelu' has no counterpart"):
        from_torch(nn.TransformerEncoderLayer(8, 2, 16, activation="gelu"))
    with pytest.raises(InputError, match="Linear has no counterpart: give nn.MultiheadAttention"):
        from_torch(nn.Linear(2, 2))
    with pytest.raises(InputError, match="no counterpart for grouped heads"):
        to_torch(MultiHeadAttention(8, 4, groups=2))
    with pytest.raises(InputError, match="no counterpart for grouped heads"):
        to_torch(MultiHeadAttention(8, 4, rotary=True))
