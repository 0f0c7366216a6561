"""The outputs of Regard's layers equal those of Keras' layers on the PyTorch backend of Keras."""

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import record
from regard.attention.layer import Attention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.scores import Additive, Dot

os.environ.setdefault("KERAS_BACKEND", "torch")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # importing keras takes seconds


@pytest.fixture
def keras() -> Any:
    """Return Keras, which collecting the tests does not import."""
    return pytest.importorskip("keras", reason="needs the extra peers")


@pytest.fixture
def states(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a query (2, 5, 6), a key and a value (2, 7, 6), and a mask (2, 7)."""
    mask = torch.rand(2, 7, generator=generator) < 0.7
    mask[:, 0] = True
    query, key, value = (torch.randn(2, time, 6, generator=generator) for time in (5, 7, 7))
    return query, key, value, mask


def test_attention(keras: Any, states: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    query, key, value, mask = states
    expected, weights = keras.layers.Attention()([query, value, key], mask=[None, mask], return_attention_scores=True)
    layer = Attention(Dot(6))
    with record(layer) as records:
        context = layer(query, key, value, mask)
    torch.testing.assert_close(context, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(records[""].weights[:, 0], weights, atol=1e-5, rtol=0)


def test_additive_attention(keras: Any, states: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """With W and U set to the identity, Regard's additive score equals that of Keras, which has no W and U."""
    query, key, value, mask = states
    peer = keras.layers.AdditiveAttention()
    peer.build([query.shape, value.shape, key.shape])
    scale = torch.randn(6, generator=torch.Generator().manual_seed(1))
    peer.set_weights([scale.numpy()])
    expected, weights = peer([query, value, key], mask=[None, mask], return_attention_scores=True)
    score = Additive(6)
    with torch.no_grad():
        score.query.weight.copy_(torch.eye(6))
        score.key.weight.copy_(torch.eye(6))
        score.energy.weight.copy_(scale.unsqueeze(0))
    layer = Attention(score)
    with record(layer) as records:
        context = layer(query, key, value, mask)
    torch.testing.assert_close(context, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(records[""].weights[:, 0], weights, atol=1e-5, rtol=0)


@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention(keras: Any, states: tuple[Tensor, Tensor, Tensor, Tensor], bias: bool) -> None:
    query, key, value, mask = states
    peer = keras.layers.MultiHeadAttention(num_heads=3, key_dim=4, use_bias=bias)
    peer.build(query.shape, value.shape, key.shape)
    layer = MultiHeadAttention(6, heads=3, head_width=4, bias=bias)
    weights = []
    for part in (layer.query, layer.key, layer.value):
        weights.append(part.weight.detach().t().reshape(6, 3, 4))
        weights += [part.bias.detach().reshape(3, 4)] if bias else []
    weights.append(layer.output.weight.detach().t().reshape(3, 4, 6))
    weights += [layer.output.bias.detach()] if bias else []
    peer.set_weights([each.numpy() for each in weights])
    expected, scores = peer(
        query, value, key, attention_mask=mask.unsqueeze(1).expand(2, 5, 7), return_attention_scores=True
    )
    with record(layer) as records:
        context = layer(query, key, value, mask)
    torch.testing.assert_close(context, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(records[""].weights, scores, atol=1e-5, rtol=0)
