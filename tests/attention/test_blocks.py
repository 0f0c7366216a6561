"""The outputs of blocks equal those of PyTorch's layers with the same weights; dropout from random bytes."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.blocks import Activation, Decoder, DecoderLayer, Dropout, Encoder, EncoderLayer, Residual
from regard.attention.multihead import KeyValues, MultiHeadAttention
from regard.attention.scores import SCORES, find_score
from regard.errors import InputError
from tests.attention.test_multihead import peer_of

each_order = pytest.mark.parametrize("pre_norm", [False, True], ids=["post-norm", "pre-norm"])


def drawn(module: nn.Module, generator: torch.Generator) -> None:
    """Randomize every parameter, so that no bias or gain is trivial."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)


def copy_attention(layer: Any, peer: nn.MultiheadAttention) -> None:
    assert isinstance(layer, MultiHeadAttention)
    peer.load_state_dict(peer_of(layer, 15).state_dict())


def copy(module: nn.Module, peer: nn.Module) -> None:
    peer.load_state_dict(module.state_dict())


def encoder_peer(layer: EncoderLayer, pre_norm: bool) -> nn.TransformerEncoderLayer:
    peer = nn.TransformerEncoderLayer(15, 3, dim_feedforward=11, dropout=0.0, batch_first=True, norm_first=pre_norm)
    copy_attention(layer.self_attention, peer.self_attn)
    copy(layer.attention_residual.norm, peer.norm1)
    copy(layer.feed_forward.inner, peer.linear1)
    copy(layer.feed_forward.outer, peer.linear2)
    copy(layer.feed_forward_residual.norm, peer.norm2)
    return peer.train()


def decoder_peer(layer: DecoderLayer, pre_norm: bool) -> nn.TransformerDecoderLayer:
    peer = nn.TransformerDecoderLayer(15, 3, dim_feedforward=11, dropout=0.0, batch_first=True, norm_first=pre_norm)
    copy_attention(layer.self_attention, peer.self_attn)
    copy_attention(layer.cross, peer.multihead_attn)
    copy(layer.self_residual.norm, peer.norm1)
    copy(layer.cross_residual.norm, peer.norm2)
    copy(layer.feed_forward.inner, peer.linear1)
    copy(layer.feed_forward.outer, peer.linear2)
    copy(layer.feed_forward_residual.norm, peer.norm3)
    return peer.train()


@each_order
def test_encoder_layer_agrees_with_pytorch(generator: torch.Generator, pre_norm: bool) -> None:
    layer = EncoderLayer(15, heads=3, inner_width=11, pre_norm=pre_norm, bias=True)
    drawn(layer, generator)
    states = torch.randn(2, 7, 15, generator=generator)
    mask = torch.rand(2, 7, generator=generator) < 0.7
    mine, other = states.clone().requires_grad_(), states.clone().requires_grad_()
    found, expected = layer(mine, mask), encoder_peer(layer, pre_norm)(other, src_key_padding_mask=~mask)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    (grad,) = torch.autograd.grad(found.square().sum(), mine)
    (expected_grad,) = torch.autograd.grad(expected.square().sum(), other)
    torch.testing.assert_close(grad, expected_grad, atol=1e-4, rtol=1e-4)


@each_order
@pytest.mark.parametrize(("activation", "theirs"), [("gelu", F.gelu), ("swish", F.silu)])
def test_other_activations_and_norms_agree_with_pytorch(
    generator: torch.Generator, pre_norm: bool, activation: Activation, theirs: Any
) -> None:
    layer = EncoderLayer(15, 3, 11, pre_norm=pre_norm, bias=True, activation=activation, epsilon=0.3)
    drawn(layer, generator)
    peer = encoder_peer(layer, pre_norm)
    peer.activation, peer.norm1.eps, peer.norm2.eps = theirs, 0.3, 0.3
    states = torch.randn(2, 7, 15, generator=generator)
    torch.testing.assert_close(layer(states), peer(states), atol=1e-5, rtol=1e-5)
    with pytest.raises(InputError, match="did you mean swish"):
        EncoderLayer(15, 3, 11, activation="swosh")  # type: ignore[arg-type]


@each_order
def test_decoder_layer_agrees_with_pytorch(generator: torch.Generator, pre_norm: bool) -> None:
    layer = DecoderLayer(15, heads=3, inner_width=11, pre_norm=pre_norm, bias=True)
    drawn(layer, generator)
    states, memory = torch.randn(2, 5, 15, generator=generator), torch.randn(2, 7, 15, generator=generator)
    mask = torch.rand(2, 7, generator=generator) < 0.7
    mine, other = states.clone().requires_grad_(), states.clone().requires_grad_()
    found, _ = layer(mine, layer.cross.project(memory), mask)
    expected = decoder_peer(layer, pre_norm)(
        other, memory, tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1), memory_key_padding_mask=~mask
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    (grad,) = torch.autograd.grad(found.square().sum(), mine)
    (expected_grad,) = torch.autograd.grad(expected.square().sum(), other)
    torch.testing.assert_close(grad, expected_grad, atol=1e-4, rtol=1e-4)


@each_order
def test_stack_equals_its_layers_in_sequence(generator: torch.Generator, pre_norm: bool) -> None:
    encoder = Encoder(2, 15, 3, 11, pre_norm=pre_norm)
    decoder = Decoder(2, 15, 3, 11, pre_norm=pre_norm)
    drawn(encoder, generator)
    drawn(decoder, generator)
    states, memory = torch.randn(2, 5, 15, generator=generator), torch.randn(2, 7, 15, generator=generator)
    mask = torch.rand(2, 7, generator=generator) < 0.7
    expected = memory
    for layer in encoder.layers:
        expected = layer(expected, mask)
    torch.testing.assert_close(encoder(memory, mask), encoder.norm(expected))
    expected = states
    for layer in decoder.layers:
        assert isinstance(layer, DecoderLayer)
        expected, _ = layer(expected, layer.cross.project(memory), mask)
    torch.testing.assert_close(decoder(states, decoder.project(memory), mask)[0], decoder.norm(expected))
    assert isinstance(encoder.norm, nn.LayerNorm) == pre_norm


@each_order
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("name", SCORES)
def test_decoding_step_by_step_equals_teacher_forcing(
    generator: torch.Generator, pre_norm: bool, rotary: bool, name: str
) -> None:
    decoder = Decoder(2, 12, 3, 11, pre_norm=pre_norm, rotary=rotary, score=find_score(name))
    states, memory = torch.randn(2, 5, 12, generator=generator), torch.randn(2, 7, 12, generator=generator)
    source = decoder.project(memory)
    whole, _ = decoder(states, source)
    past: list[KeyValues] | None = None
    steps = []
    for at in range(5):
        step, past = decoder(states[:, at : at + 1], source, past=past)
        steps.append(step)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-5, rtol=1e-5)


def test_dropout_is_applied_before_the_residual_sum() -> None:
    residual = Residual(3, pre_norm=True, dropout=0.5)
    states = torch.zeros(1, 1000, 3)
    added = residual(states, lambda each: torch.ones_like(each))
    assert set(added.unique().tolist()) == {0.0, 2.0}
    assert (residual.eval()(states, lambda each: torch.ones_like(each)) == 1).all()


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5, 0.9])
def test_a_share_is_dropped_and_the_mean_stays(rate: float) -> None:
    torch.manual_seed(0)
    states = torch.ones(100, 1003)
    found = Dropout(rate)(states)
    dropped = (found == 0).float().mean().item()
    assert dropped == pytest.approx(rate, abs=1 / 512 + 0.005)
    assert found.mean().item() == pytest.approx(1.0, abs=0.02)
    assert len(found.unique()) == 2
    # Rows and columns are independent.
    assert (found == 0).float().mean(0).std().item() < 0.07 and (found == 0).float().mean(1).std().item() < 0.025


def test_dropped_values_have_no_gradient() -> None:
    states = torch.ones(64, requires_grad=True)
    found = Dropout(0.5)(states)
    found.sum().backward()
    assert states.grad is not None and torch.equal(states.grad, found.detach())


def test_equal_random_states_drop_equal_values() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return Dropout(0.3)(torch.ones(9, 7))

    assert torch.equal(draw(1), draw(1)) and not torch.equal(draw(1), draw(2))


def test_nothing_is_dropped_in_evaluation_or_at_rate_zero() -> None:
    states = torch.randn(3, 4)
    assert Dropout(0.5).eval()(states) is states and Dropout(0.0)(states) is states
    assert Dropout(0.001)(torch.ones(100_000)).eq(0).any()  # the smallest positive rate is 1/256


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_other_rates_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match="rate .* is out of range: choose at least 0 and less than 1"):
        Dropout(rate)
