"""Multi-head attention against PyTorch's own layer and by hand."""

import pytest
import torch
from torch import nn

from regard.attention import MultiHeadAttention, record
from regard.errors import InputError


def peer_of(layer: MultiHeadAttention, width: int) -> nn.MultiheadAttention:
    """PyTorch's layer with the same weights."""
    peer = nn.MultiheadAttention(width, layer.heads, bias=False, batch_first=True)
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([layer.query.weight, layer.key.weight, layer.value.weight]))
        peer.out_proj.weight.copy_(layer.output.weight)
    return peer


@pytest.mark.parametrize("recording", [False, True], ids=["fused", "recorded"])
def test_agrees_with_pytorch_outputs_weights_and_gradients(
    generator: torch.Generator, recording: bool
) -> None:
    layer = MultiHeadAttention(15, heads=3)
    peer = peer_of(layer, 15)
    query, memory = torch.randn(2, 5, 15, generator=generator), torch.randn(2, 7, 15, generator=generator)
    mask = torch.rand(2, 7, generator=generator) < 0.7
    mine, theirs = query.clone().requires_grad_(), query.clone().requires_grad_()
    expected, weights = peer(theirs, memory, memory, key_padding_mask=~mask, average_attn_weights=False)
    if recording:
        with record(layer) as records:
            context = layer(mine, memory, memory, mask)
        torch.testing.assert_close(records[""].weights, weights.detach(), atol=1e-6, rtol=0)
    else:
        context = layer(mine, memory, memory, mask)
    torch.testing.assert_close(context, expected, atol=1e-6, rtol=0)
    (grad,) = torch.autograd.grad(context.square().sum(), mine)
    (expected_grad,) = torch.autograd.grad(expected.square().sum(), theirs)
    torch.testing.assert_close(grad, expected_grad, atol=1e-5, rtol=0)


def test_each_head_sees_its_own_slice(generator: torch.Generator) -> None:
    layer = MultiHeadAttention(6, heads=2)
    with torch.no_grad():
        for projection in (layer.query, layer.key, layer.value, layer.output):
            projection.weight.copy_(torch.eye(6))
    states = torch.randn(1, 5, 6, generator=generator)
    context = layer(states, states, states)
    for head in range(2):
        part = states[..., 3 * head : 3 * head + 3]
        weights = (part @ part.transpose(1, 2) / 3**0.5).softmax(-1)
        torch.testing.assert_close(context[..., 3 * head : 3 * head + 3], weights @ part)


def test_projections_have_no_bias() -> None:
    assert {name for name, _ in MultiHeadAttention(6, 2).named_parameters()} == {
        "query.weight",
        "key.weight",
        "value.weight",
        "output.weight",
    }


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(InputError, match="width 64 cannot be split into 3 heads: choose a multiple of 3"):
        MultiHeadAttention(64, 3)
