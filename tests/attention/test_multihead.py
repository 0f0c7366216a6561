"""Attention layers equal PyTorch's, float64 loops and values computed by hand; other paths are equivalent."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard import record
from regard.attention import layer as attention_layer
from regard.attention.layer import Attention
from regard.attention.masks import causal_mask
from regard.attention.multihead import MultiHeadAttention
from regard.attention.scores import Additive, find_score
from regard.errors import InputError

PATHS = pytest.mark.parametrize("recording", [False, True], ids=["fused", "recorded"])


def peer_of(layer: MultiHeadAttention, width: int) -> nn.MultiheadAttention:
    """Return PyTorch's layer with the same weights."""
    bias = layer.query.bias is not None
    peer = nn.MultiheadAttention(width, layer.heads, bias=bias, batch_first=True)
    with torch.no_grad():
        for names, parameter in (("weight", peer.in_proj_weight), ("bias", peer.in_proj_bias)):
            if parameter is not None:
                parts = [getattr(part, names) for part in (layer.query, layer.key, layer.value)]
                parameter.copy_(torch.cat(parts))
        peer.out_proj.load_state_dict(layer.output.state_dict())
    return peer


def run(layer: MultiHeadAttention, recording: bool, *args: Any, **kwargs: Any) -> Tensor:
    if not recording:
        return layer(*args, **kwargs)
    with record(layer):
        return layer(*args, **kwargs)


@PATHS
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("masked", ["padding", "by query", "causal", "none"])
def test_agrees_with_pytorch_outputs_weights_and_gradients(
    generator: torch.Generator, recording: bool, bias: bool, masked: str
) -> None:
    layer = MultiHeadAttention(15, heads=3, bias=bias)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    peer = peer_of(layer, 15)
    query, memory = torch.randn(2, 7, 15, generator=generator), torch.randn(2, 7, 15, generator=generator)
    mask = torch.rand(2, 7, 7, generator=generator) < 0.7
    mask[..., 0] = True
    ours: dict[str, Any] = {"mask": None}
    theirs: dict[str, Any] = {}
    match masked:
        case "padding":
            ours["mask"], theirs["key_padding_mask"] = mask[:, 0], ~mask[:, 0]
        case "by query":
            ours["mask"], theirs["attn_mask"] = mask, ~mask.repeat_interleave(3, dim=0)
        case "causal":
            ours["causal"], theirs["attn_mask"] = True, ~causal_mask(7, 7)
    mine, other = query.clone().requires_grad_(), query.clone().requires_grad_()
    expected, weights = peer(other, memory, memory, average_attn_weights=False, **theirs)
    if recording:
        with record(layer) as records:
            context = layer(mine, memory, memory, **ours)
        torch.testing.assert_close(records[""].weights, weights.detach(), atol=1e-6, rtol=0)
    else:
        context = layer(mine, memory, memory, **ours)
    torch.testing.assert_close(context, expected, atol=1e-5, rtol=0)
    (grad,) = torch.autograd.grad(context.square().sum(), mine)
    (expected_grad,) = torch.autograd.grad(expected.square().sum(), other)
    torch.testing.assert_close(grad, expected_grad, atol=1e-5, rtol=0)


@PATHS
def test_heads_times_head_width_need_not_be_the_width(generator: torch.Generator, recording: bool) -> None:
    layer = MultiHeadAttention(11, heads=3, head_width=5, memory_width=13)
    assert layer.output.weight.shape == (11, 15)
    query, memory = torch.randn(2, 5, 11, generator=generator), torch.randn(2, 7, 13, generator=generator)
    assert run(layer, recording, query, memory).shape == (2, 5, 11)


@PATHS
@pytest.mark.parametrize("groups", [1, 2])
def test_groups_share_keys_and_values(generator: torch.Generator, recording: bool, groups: int) -> None:
    layer = MultiHeadAttention(20, heads=4, groups=groups)
    whole = MultiHeadAttention(20, heads=4)
    with torch.no_grad():
        for name in ("key", "value"):
            shared = getattr(layer, name).weight.unflatten(0, (groups, 5))
            getattr(whole, name).weight.copy_(shared.repeat_interleave(4 // groups, dim=0).flatten(0, 1))
        whole.query.load_state_dict(layer.query.state_dict())
        whole.output.load_state_dict(layer.output.state_dict())
    states = torch.randn(2, 7, 20, generator=generator)
    torch.testing.assert_close(run(layer, recording, states), whole(states))


@given(seed=st.integers(0, 1000))
def test_permuted_and_masked_keys_do_not_change_the_output(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    layer = MultiHeadAttention(8, heads=2).double()
    query = torch.randn(2, 3, 8, generator=generator, dtype=torch.float64)
    memory = torch.randn(2, 7, 8, generator=generator, dtype=torch.float64)
    mask = torch.rand(1, 7, generator=generator).expand(2, 7) < 0.7
    order = torch.randperm(7, generator=generator)
    context = layer(query, memory, mask=mask)
    torch.testing.assert_close(layer(query, memory[:, order], mask=mask[:, order]), context)
    if mask.any():
        torch.testing.assert_close(layer(query, memory[:, mask[0]]), context)
    else:
        assert not context.any()


@PATHS
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 1e-2)],
    ids=["float32", "float64", "bfloat16"],
)
def test_both_paths_agree_in_every_precision(
    generator: torch.Generator, recording: bool, dtype: torch.dtype, tolerance: float
) -> None:
    layer = MultiHeadAttention(32, heads=4).to(dtype)
    states = torch.randn(2, 7, 32, generator=generator).to(dtype)
    exact = MultiHeadAttention(32, heads=4).double()
    exact.load_state_dict(layer.state_dict())
    context = run(layer, recording, states)
    assert context.dtype == dtype
    torch.testing.assert_close(context.double(), exact(states.double()), atol=tolerance, rtol=0)


@PATHS
def test_autocast(recording: bool) -> None:
    layer = MultiHeadAttention(32, heads=4)
    states = torch.randn(2, 7, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        context = run(layer, recording, states)
    assert context.dtype == torch.bfloat16
    torch.testing.assert_close(context.float(), layer(states), atol=2e-2, rtol=0)


def test_double_backward_where_the_weights_are_explicit(generator: torch.Generator) -> None:
    layer = MultiHeadAttention(4, heads=2).double()
    states = torch.randn(1, 3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (states,))
    with record(layer):
        assert torch.autograd.gradcheck(layer, (states,))
        assert torch.autograd.gradgradcheck(layer, (states,))
    with sdpa_kernel(SDPBackend.MATH):  # as in PyTorch's layers with the fused kernel
        assert torch.autograd.gradgradcheck(layer, (states,))


def test_dropout_drops_weights_while_training_only(generator: torch.Generator) -> None:
    layer = MultiHeadAttention(12, heads=3, dropout=0.5)
    states = torch.randn(4, 7, 12, generator=generator)
    with record(layer) as records:
        torch.manual_seed(0)
        recorded = layer(states)
    weights = records[""].weights
    assert 0.3 < (weights == 0).float().mean() < 0.7
    torch.manual_seed(0)
    torch.testing.assert_close(layer(states), recorded)  # the same random numbers with and without recording
    values = layer.value(states).unflatten(-1, (3, 4)).transpose(1, 2)
    torch.testing.assert_close(layer.output((weights @ values).transpose(1, 2).flatten(2)), recorded)
    layer.eval()
    assert torch.equal(layer(states), layer(states))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
def test_compiles_and_exports(generator: torch.Generator, name: str) -> None:
    layer = MultiHeadAttention(16, heads=4, rotary=True, score=find_score(name)).eval()
    states = torch.randn(2, 7, 16, generator=generator)
    plain = layer(states, causal=True)
    compiled = torch.compile(layer)
    torch.testing.assert_close(compiled(states, causal=True), plain)
    with record(layer) as records:
        torch.testing.assert_close(compiled(states, causal=True), plain)
    assert records[""].weights.shape == (2, 4, 7, 7)
    torch.testing.assert_close(compiled(states, causal=True), plain)
    grads = []
    for each in (layer, compiled):
        layer.zero_grad()
        each(states, causal=True).square().sum().backward()
        assert layer.query.weight.grad is not None
        grads.append(layer.query.weight.grad.clone())
    torch.testing.assert_close(grads[1], grads[0])
    exported = torch.export.export(layer, (states,), {"causal": True})
    torch.testing.assert_close(exported.module()(states, causal=True), plain)


@pytest.mark.parametrize(
    ("query", "key", "value", "message"),
    [
        ((2, 5), (2, 7, 8), (2, 7, 8), "are not all (B, T, D): give three dimensions for each tensor"),
        ((2, 5, 8), (3, 7, 8), (3, 7, 8), "do not fit: expected (B, Tq, D), (B, Tk, D) and (B, Tk, Dv)"),
        ((2, 5, 8), (2, 7, 8), (2, 6, 8), "query (2, 5, 8), key (2, 7, 8), value (2, 6, 8) do not fit"),
        ((2, 5, 9), (2, 7, 8), (2, 7, 8), "query (2, 5, 9) does not fit: expected width 8"),
        ((2, 5, 8), (2, 7, 9), (2, 7, 8), "key (2, 7, 9) does not fit: expected width 8"),
    ],
)
def test_states_that_do_not_fit_are_refused(
    query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError) as raised:
        MultiHeadAttention(8, 2)(torch.zeros(query), torch.zeros(key), torch.zeros(value))
    assert message in str(raised.value)


def test_dtypes_that_differ_are_refused() -> None:
    states = torch.zeros(1, 3, 8)
    with pytest.raises(InputError, match="query, key and value are torch.float32, torch.float64, torch.float64"):
        MultiHeadAttention(8, 2)(states, states.double())


def test_short_sequences_in_bfloat16_on_a_cpu_are_explicit_and_agree(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = MultiHeadAttention(12, heads=3).to(torch.bfloat16)
    states = torch.randn(2, 7, 12, generator=generator).to(torch.bfloat16)
    mask = torch.rand(2, 7, 7, generator=generator) < 0.5
    called, fused = 0, attention_layer._fused_kernel

    def counted(*args: Any) -> Tensor:
        nonlocal called
        called += 1
        return fused(*args)

    monkeypatch.setattr(attention_layer, "_fused_kernel", counted)
    kernel = layer(states, mask=mask, causal=True)
    assert called == 1
    monkeypatch.setattr(attention_layer, "SHORT", 7)
    torch.testing.assert_close(layer(states, mask=mask, causal=True), kernel, atol=1e-2, rtol=0)
    assert called == 1
    layer.float()(states.float(), mask=mask)
    assert called == 2


@PATHS
def test_a_mask_of_other_heads_is_refused(recording: bool) -> None:
    states, mask = torch.zeros(2, 5, 8), torch.ones(2, 3, 5, 5, dtype=torch.bool)
    with pytest.raises(InputError, match="has 3 heads: expected 2, or 1 for all"):
        run(MultiHeadAttention(8, 2), recording, states, mask=mask)
    with pytest.raises(InputError, match="has 3 heads: expected 1, or 1 for all"):
        Attention()(states, states, states, mask)


def test_three_dimensional_mask_applies_per_query(generator: torch.Generator) -> None:
    query, key = torch.randn(2, 3, 5, generator=generator), torch.randn(2, 7, 5, generator=generator)
    mask = torch.rand(2, 3, 7, generator=generator) < 0.7
    expected = F.scaled_dot_product_attention(query, key, key, attn_mask=mask)
    torch.testing.assert_close(Attention()(query, key, key, mask), expected)


@pytest.mark.parametrize(
    ("layer", "query", "key", "message"),
    [
        (Attention(), 5, 7, "query (2, 3, 5) and key (2, 4, 7) do not fit the score: expected widths 5 and 5"),
        (Attention(Additive(5, 7)), 5, 5, "do not fit the score: expected widths 5 and 7"),
        (Attention(Additive(5, 7)), 6, 7, "do not fit the score: expected widths 5 and 7"),
    ],
)
def test_wrong_widths_are_refused(layer: Attention, query: int, key: int, message: str) -> None:
    states = torch.zeros(2, 4, key)
    with pytest.raises(InputError) as raised:
        layer(torch.zeros(2, 3, query), states, states)
    assert message in str(raised.value)
