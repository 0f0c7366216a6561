"""Recording of PyTorch's attention layers, and of calls of its fused kernel."""

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

import regard
from regard.activations.weights import record_weights
from regard.errors import InputError


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_pytorch_transformer_is_recorded(generator: torch.Generator) -> None:
    model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True).eval()
    source, target = torch.randn(2, 5, 8, generator=generator), torch.randn(2, 3, 8, generator=generator)
    padding = torch.tensor([[False] * 5, [False, False, True, True, True]])
    masks: dict[str, Any] = {
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(3),
        "src_key_padding_mask": padding,
        "memory_key_padding_mask": padding,
    }
    with torch.no_grad():
        plain = model(source, target, **masks)
        with record_weights(model) as records:
            recorded = model(source, target, **masks)
        again = model(source, target, **masks)
    torch.testing.assert_close(recorded, plain, atol=1e-5, rtol=0)
    assert torch.equal(again, plain)
    assert {name: tuple(each.weights.shape) for name, each in records.items()} == {
        "encoder.layers.0.self_attn": (2, 2, 5, 5),
        "decoder.layers.0.self_attn": (2, 2, 3, 3),
        "decoder.layers.0.multihead_attn": (2, 2, 3, 5),
    }
    for each in records.values():
        torch.testing.assert_close(each.weights.sum(-1), torch.ones(each.weights.shape[:-1]))
    encoder, decoder = records["encoder.layers.0.self_attn"], records["decoder.layers.0.self_attn"]
    assert encoder.mask is not None and decoder.mask is not None
    assert torch.equal(encoder.mask.expand(2, 2, 5, 5)[1, 0, 0], ~padding[1])
    assert torch.equal(decoder.mask, torch.ones(3, 3, dtype=torch.bool).tril())
    assert (decoder.weights[:, :, ~decoder.mask] == 0).all()


def test_mask_of_selected_rows_of_a_pytorch_layer(generator: torch.Generator) -> None:
    layer, states = nn.MultiheadAttention(6, 3, batch_first=True), torch.randn(2, 5, 6, generator=generator)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    with record_weights(layer, heads=[2], rows=[4, 1]) as records:
        layer(states, states, states, attn_mask=future)
    mask = records[""].mask
    assert mask is not None and torch.equal(mask, ~future[[4, 1]].expand(2, 1, 2, 5))
    assert torch.equal(records[""].weights > 0, mask)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_callers_of_a_pytorch_layer_get_the_requested_outputs(
    generator: torch.Generator, need_weights: bool, average: bool
) -> None:
    layer = nn.MultiheadAttention(6, 3)  # time first
    query, memory = torch.randn(5, 2, 6, generator=generator), torch.randn(7, 2, 6, generator=generator)
    expected = layer(query, memory, memory, need_weights=need_weights, average_attn_weights=average)
    with record_weights(layer) as records:
        actual = layer(query, memory, memory, None, need_weights, None, average)
    torch.testing.assert_close(actual[0], expected[0], atol=1e-6, rtol=0)
    assert (actual[1] is None) == (expected[1] is None)
    if need_weights:
        torch.testing.assert_close(actual[1], expected[1])
    _, weights = layer(query, memory, memory, average_attn_weights=False)
    torch.testing.assert_close(records[""].weights, weights.detach())


def test_unbatched_input_and_limits(generator: torch.Generator) -> None:
    layer = nn.MultiheadAttention(6, 3)
    states = torch.randn(5, 6, generator=generator)
    _, weights = layer(states, states, states, average_attn_weights=False)
    with record_weights(layer, heads=[2], rows=[1, 4]) as records:
        layer(states, states, states)
    torch.testing.assert_close(records[""].weights, weights.detach()[None, [2]][:, :, [1, 4]])


class TwoCallModel(nn.Module):
    """A model that calls SDPA twice."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.forward = self.call
        self.options = options

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        first = F.scaled_dot_product_attention(query, key, key, **self.options)
        return first + F.scaled_dot_product_attention(query, key, 2 * key, **self.options)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.inner(query, key)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "boolean mask": {"attn_mask": torch.ones(2, 1, 5, 5, dtype=torch.bool).tril(1)},
    "additive mask": {"attn_mask": torch.randn(5, 5)},
    "scale": {"scale": 0.7},
    "grouped": {"enable_gqa": True},
    "nothing to attend": {"attn_mask": torch.zeros(5, 5, dtype=torch.bool)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("limits", [{}, {"heads": [1], "rows": [4, 0]}], ids=["all", "some"])
def test_sdpa_calls_are_recorded_and_unchanged(
    generator: torch.Generator, options: dict[str, Any], limits: dict[str, Any]
) -> None:
    model = TwoCallModel(**options)
    query = torch.randn(2, 4, 5, 8, generator=generator)
    key = torch.randn(2, 2 if "enable_gqa" in options else 4, 5, 8, generator=generator)
    plain = model(query, key)
    with record_weights(model, **limits) as records:
        assert torch.equal(model(query, key), plain)
    assert set(records) == {"inner", "inner#1"}
    # With one-hot values, the kernel returns the weights.
    eye = torch.eye(5).expand(*key.shape[:2], 5, 5)
    expected = F.scaled_dot_product_attention(query, key, eye, **options)
    if limits:
        expected = expected[:, [1]][:, :, [4, 0]]
    torch.testing.assert_close(records["inner"].weights, expected, atol=1e-6, rtol=1e-5)
    mask = records["inner"].mask
    if mask is not None:
        assert (records["inner"].weights[~mask.expand(expected.shape)] == 0).all()


def test_record_has_the_dropout_of_the_sdpa_call() -> None:
    model = TwoCallModel(dropout_p=0.5)
    query, key = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8)
    with record_weights(model) as records:
        output = model(query, key)
    weights, second = records["inner"].weights, records["inner#1"].weights
    assert 0.2 < (weights == 0).float().mean() < 0.8
    torch.testing.assert_close(output, weights @ key + second @ (2 * key))


def test_layers_are_selected_and_must_exist() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    with record_weights(model, layers=["layers.1.self_attn"]) as records:
        model(torch.randn(1, 3, 8))
    assert list(records) == ["layers.1.self_attn"]
    with pytest.raises(InputError, match="layer 'layers.7.self_attn' is unknown: .*did you mean layers.1.self_attn"):
        with record_weights(model, layers=["layers.7.self_attn"]):
            pass


class SDPAModule(nn.Module):
    """A model that passes its inputs to SDPA."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, **options)


SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None]] = {
    "two dimensions": ((5, 8), (6, 8), None),
    "a mask of three dimensions": ((3, 5, 8), (3, 5, 8), (3, 5, 5)),
    "a mask for all heads": ((2, 4, 5, 8), (2, 4, 5, 8), (4, 5, 5)),
    "five dimensions": ((2, 3, 4, 5, 8), (2, 3, 4, 6, 8), (3, 1, 5, 6)),
    "a key batch of size one for two query samples": ((2, 4, 5, 8), (1, 4, 6, 8), None),
    "one head of keys": ((2, 4, 5, 8), (2, 1, 6, 8), (5, 6)),
    "one query for all": ((1, 4, 5, 8), (2, 4, 6, 8), None),
}


@pytest.mark.parametrize("limits", [{}, {"rows": [4, 0]}], ids=["all", "some"])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_sdpa_with_all_accepted_shapes(generator: torch.Generator, shapes: Any, limits: dict[str, Any]) -> None:
    model = SDPAModule()
    query, key = (torch.randn(shape, generator=generator) for shape in shapes[:2])
    mask = None if shapes[2] is None else torch.randn(shapes[2], generator=generator) > -0.5
    plain = model(query, key, key, attn_mask=mask)
    with record_weights(model, **limits) as records:
        assert torch.equal(model(query, key, key, attn_mask=mask), plain)
    weights = records[""].weights
    assert weights.dim() == 4
    lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    if limits:
        plain = plain[..., [4, 0], :]
    by_hand = weights.reshape(*lead, *weights.shape[-2:]) @ key
    torch.testing.assert_close(by_hand, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_jagged_tensors_give_a_warning() -> None:
    lengths = [torch.randn(length, 2, 8) for length in (3, 5)]
    states = torch.nested.nested_tensor(lengths, layout=torch.jagged).transpose(1, 2)
    model = SDPAModule()
    plain = model(states, states, states)
    with pytest.warns(UserWarning) as caught, record_weights(model) as records:
        output = model(states, states, states)
    assert str(caught[0].message).startswith("attention of '' uses jagged tensors, which cannot be recorded: ")
    assert not records
    torch.testing.assert_close(output.values(), plain.values())


@pytest.mark.parametrize("padding", [None, torch.tensor([[False] * 4, [False, False, False, True]])])
def test_direct_call_of_multi_head_attention_forward(generator: torch.Generator, padding: Tensor | None) -> None:
    """The layer appends a bias and zeros as keys, and every query may attend to these keys."""
    layer = nn.MultiheadAttention(6, 3, add_bias_kv=True, add_zero_attn=True, batch_first=True)

    class Direct(nn.Module):
        def forward(self, states: Tensor, mask: Tensor) -> Tensor:
            assert layer.bias_k is not None and layer.bias_v is not None
            first = states.transpose(0, 1)
            settings = (6, 3, layer.in_proj_weight, layer.in_proj_bias, layer.bias_k, layer.bias_v, True, 0.0)
            output, weights = F.multi_head_attention_forward(
                first, first, first, *settings, layer.out_proj.weight, layer.out_proj.bias,
                attn_mask=mask, key_padding_mask=padding, need_weights=False,
            )  # fmt: skip
            assert weights is None
            return output.transpose(0, 1)

    states, mask = torch.randn(2, 4, 6, generator=generator), torch.ones(4, 4, dtype=torch.bool).triu(1)
    masks: dict[str, Any] = {"attn_mask": mask, "key_padding_mask": padding}
    plain, weights = layer(states, states, states, **masks, average_attn_weights=False)
    direct = Direct()
    with record_weights(direct) as records:
        torch.testing.assert_close(direct(states, mask), plain, atol=1e-6, rtol=0)
    torch.testing.assert_close(records[""].weights, weights, atol=1e-6, rtol=0)
    allowed = records[""].mask
    assert allowed is not None and allowed.shape[-1] == 6 and allowed[..., 4:].all()
    assert torch.equal(allowed.expand_as(weights)[0, 0, :, :4], ~mask)
    last = ~mask if padding is None else ~mask & ~padding[1]
    assert torch.equal(allowed.expand_as(weights)[1, 0, :, :4], last)


class FlexAttentionModel(nn.Module):
    """Attention by a function that cannot be captured."""

    def forward(self, states: Tensor) -> Tensor:
        heads = states.unflatten(-1, (2, 4)).transpose(1, 2)
        found: Any = flex_attention(heads, heads, heads)
        merged: Tensor = found.transpose(1, 2).flatten(2)
        return merged


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_gives_a_warning_next_to_other_layers() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), FlexAttentionModel()).eval()
    states = torch.randn(1, 4, 8)
    with pytest.warns(
        UserWarning, match="1 computes attention with flex_attention, which cannot be recorded: with modules="
    ):
        with record_weights(model) as records:
            model(states)
    assert list(records) == ["0.self_attn"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="flex_attention called without")
        with record_weights(model, layers=["0.self_attn"]):
            model(states)


@pytest.mark.parametrize("call", [regard.record, regard.record_long, lambda model: regard.intervene(model, "layer")])
def test_values_that_are_no_model_are_refused(call: Any) -> None:
    for given in (3, "bert", None):
        with pytest.raises(InputError, match="give a torch module, a run, or a result of regard.look"), call(given):
            pass


def test_single_name_instead_of_a_list_is_refused() -> None:
    layer = nn.TransformerEncoderLayer(8, 2)
    for call in (regard.record, regard.record_long):
        with (
            pytest.raises(InputError, match="layers .self_attn. is of type str: give None or a collection"),
            call(layer, layers="self_attn"),
        ):
            pass


def test_subject_is_recorded_like_its_module() -> None:
    states = torch.randn(2, 5, 8)
    subject = regard.look(nn.TransformerEncoderLayer(8, 2, batch_first=True).eval(), lambda given: given)
    with torch.no_grad(), regard.record(subject) as records:
        subject.model(states)
    assert list(records) == ["self_attn"]
