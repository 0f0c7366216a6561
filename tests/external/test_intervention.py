"""Interventions in external models have the same effect as independent hooks."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.errors import InputError

OUTPUTS = {
    "bert": ("encoder.layer.1.attention.self", "encoder.layer.1.attention.output.dense"),
    "llama": ("model.layers.1.self_attn", "model.layers.1.self_attn.o_proj"),
    "t5": ("decoder.block.1.layer.1.EncDecAttention", "decoder.block.1.layer.1.EncDecAttention.o"),
    "gptj": ("transformer.h.1.attn", "transformer.h.1.attn.out_proj"),
    "bart": ("model.decoder.layers.1.encoder_attn", "model.decoder.layers.1.encoder_attn.out_proj"),
    "vit": ("layers.1.attention", "layers.1.attention.o_proj"),
}
"""An attention layer of each model, and the projection after its heads."""


@contextmanager
def without_head(model: nn.Module, output: str, head: int, heads: int = 4) -> Iterator[None]:
    """Set the context of one head to zero before the projection."""

    def zeroed(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        states = inputs[0].clone().unflatten(-1, (heads, -1))
        states[..., head, :] = 0
        return (states.flatten(-2),)

    handle = model.get_submodule(output).register_forward_pre_hook(zeroed)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OUTPUTS)
def test_head_that_is_off_adds_nothing(small: Any, name: str) -> None:
    layer, output = OUTPUTS[name]
    model, inputs = small.build(small.known[name]), small.make_inputs(small.known[name])
    with torch.no_grad():
        plain = model(**inputs)[0]
        with without_head(model, output, 2):
            expected = model(**inputs)[0]
        with regard.intervene(model, layer, heads=[2]), regard.record(model) as records:
            found = model(**inputs)[0]
        with regard.record(model) as other, regard.intervene(model, layer, heads=[2]):
            model(**inputs)
        after = model(**inputs)[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert (found - plain).abs().max() > 1e-3 and torch.equal(after, plain)
    for each in (records, other):  # whichever block is inside the other
        assert not each[layer].weights[:, 2].any() and each[layer].weights[:, 1].any()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama", "gptj", "t5"])
def test_weight_is_set_in_the_step_of_its_query(small: Any, name: str) -> None:
    architecture = small.known[name]
    model, inputs = small.build(architecture), small.make_inputs(architecture, "none")
    layer = {"llama": "model.layers.0.self_attn", "gptj": "transformer.h.0.attn"}.get(
        name, "decoder.block.0.layer.0.SelfAttention"
    )
    inputs.pop("decoder_input_ids", None)
    first = inputs["input_ids"].shape[1] if name != "t5" else 1
    options = {"min_new_tokens": 4, "max_new_tokens": 4, "do_sample": False}
    with torch.no_grad(), regard.record(model) as records:
        with regard.intervene(model, layer, heads=[1], to=0.9, query=first + 1, key=0):
            model.generate(**inputs, **options)
    weights = records[layer].weights
    torch.testing.assert_close(weights[:, 1, first + 1, 0], torch.full((2,), 0.9))
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)), atol=1e-5, rtol=0)
    assert (weights[:, 1, first, 0] - 0.9).abs().min() > 1e-3 and (weights[:, 0, first + 1, 0] - 0.9).abs().min() > 0


def test_head_of_a_pytorch_layer_with_additional_keys_is_off() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(12, 3, bias=True, add_bias_kv=True, add_zero_attn=True).eval()
    reference, states = copy.deepcopy(layer), torch.randn(5, 2, 12)
    with regard.intervene(layer, "", heads=[1]):
        found = layer(states, states, states, need_weights=False)[0]
    with torch.no_grad():
        reference.out_proj.weight[:, 4:8] = 0
    torch.testing.assert_close(found, reference(states, states, states)[0], atol=1e-6, rtol=1e-5)
    assert (found - layer(states, states, states)[0]).abs().max() > 1e-4
    with regard.intervene(layer, "", heads=[0, 1, 2], to="uniform"):
        assert layer(states, states, states)[0].isfinite().all()
    found.sum().backward()


def test_invalid_interventions_are_refused() -> None:
    model, states = nn.TransformerEncoderLayer(12, 3, 16).eval(), torch.randn(5, 2, 12)
    with pytest.raises(InputError, match="layer 'self_att' is unknown"), regard.intervene(model, "self_att"):
        pass
    with pytest.raises(InputError, match="head 3 is out of range"), regard.intervene(model, "self_attn", heads=[3]):
        model(states)
    with pytest.raises(InputError, match="query 9 is out of range"):
        with regard.intervene(model, "self_attn", to=0.5, query=9, key=0):
            model(states)
    with pytest.warns(UserWarning, match=r"computed no attention in self_attn.out_proj, so nothing was changed"):
        with regard.intervene(model, "self_attn.out_proj"):
            model(states)


@torch.no_grad()
def test_models_that_return_scores_show_changed_weights(small: Any) -> None:
    model = small.build(small.known["squeezebert"])
    inputs, layer = {"input_ids": torch.tensor([[1, 5, 6, 7, 8, 2]])}, "encoder.1.attention"
    with regard.record(model) as before:
        plain = model(**inputs)[0]
    with regard.intervene(model, layer, heads=[2], to="uniform"), regard.record(model) as records:
        changed = model(**inputs)[0]
    weights = records[layer].weights
    assert (weights[:, 2] == 1 / 6).all() and not torch.equal(plain, changed)
    torch.testing.assert_close(weights[:, :2], before[layer].weights[:, :2])
    with regard.record(model) as after:
        model(**inputs)
    assert torch.equal(after[layer].weights, before[layer].weights)


@torch.no_grad()
def test_a_softmax_beside_the_attention_interface_is_changed(small: Any) -> None:
    """GPT-2 computes attention in its own code with `reorder_and_upcast_attn`."""
    model, inputs = small.build(small.known["gpt2"], "eager"), small.make_inputs(small.known["gpt2"])
    for block in model.transformer.h:
        block.attn.reorder_and_upcast_attn = True
    plain = model(**inputs)[0]
    with without_head(model, "transformer.h.1.attn.c_proj", 2):
        expected = model(**inputs)[0]
    with regard.intervene(model, "transformer.h.1.attn", heads=[2]):
        found = model(**inputs)[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert (found - plain).abs().max() > 1e-3
