"""Blocks against PyTorch's own encoder layer."""

import torch
from torch import nn

from regard.attention import EncoderLayer, MultiHeadAttention
from tests.attention.test_multihead import peer_of


def test_encoder_layer_agrees_with_pytorch(generator: torch.Generator) -> None:
    layer = EncoderLayer(15, heads=3, inner_width=11)
    peer = nn.TransformerEncoderLayer(15, 3, dim_feedforward=11, dropout=0.0, batch_first=True)
    assert isinstance(layer.self_attention, MultiHeadAttention)
    with torch.no_grad():
        assert peer.self_attn.in_proj_bias is not None
        peer.self_attn.in_proj_weight.copy_(peer_of(layer.self_attention, 15).in_proj_weight)
        peer.self_attn.in_proj_bias.zero_()
        peer.self_attn.out_proj.weight.copy_(layer.self_attention.output.weight)
        peer.self_attn.out_proj.bias.zero_()
        for mine, theirs in (
            (layer.feed_forward.inner, peer.linear1),
            (layer.feed_forward.outer, peer.linear2),
            (layer.attention_norm, peer.norm1),
            (layer.feed_forward_norm, peer.norm2),
        ):
            nn.init.normal_(mine.weight, generator=generator)
            nn.init.normal_(mine.bias, generator=generator)
            theirs.load_state_dict(mine.state_dict())
    states = torch.randn(2, 7, 15, generator=generator)
    mask = torch.rand(2, 7, generator=generator) < 0.7
    expected = peer.train()(states, src_key_padding_mask=~mask)
    torch.testing.assert_close(layer(states, mask), expected, atol=1e-5, rtol=0)
