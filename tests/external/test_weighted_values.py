"""Norms of values equal the norms computed from the matrices of a model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import regard

pytestmark = pytest.mark.filterwarnings("ignore")
TEXT = "the cat sat on the mat"
INPUT = "BCCCBAABACCCA"


@torch.no_grad()
def values_of(model: Any, name: str, states: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values (T, H, Dv) of the first layer, and the output projection (H, D, Dv)."""
    if name == "gpt2":
        block = model.transformer.h[0]
        values = block.attn.c_attn(block.ln_1(states)).chunk(3, -1)[2]
        return values.unflatten(-1, (4, -1)), block.attn.c_proj.weight.T.unflatten(1, (4, -1)).transpose(0, 1)
    if name == "gpt_neox":
        block = model.gpt_neox.layers[0]
        fused = block.attention.query_key_value(block.input_layernorm(states)).unflatten(-1, (4, 3, -1))
        return fused[:, :, 2], block.attention.dense.weight.unflatten(1, (4, -1)).transpose(0, 1)
    if name == "llama":
        block = model.model.layers[0]
        values = block.self_attn.v_proj(block.input_layernorm(states)).unflatten(-1, (-1, 8))
        values = values.repeat_interleave(4 // values.shape[1], 1)
        return values, block.self_attn.o_proj.weight.unflatten(1, (4, -1)).transpose(0, 1)
    layer = model.bert.encoder.layer[0].attention
    values = layer.self.value(states).unflatten(-1, (4, -1))
    return values, layer.output.dense.weight.unflatten(1, (4, -1)).transpose(0, 1)


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "llama", "bert-mlm"])
@torch.no_grad()
def test_norms_equal_those_of_the_matrices(model_of: Callable[[str], Any], tokenizer: Any, name: str) -> None:
    model = model_of(name)
    subject: Any = regard.look(model, tokenizer)
    arguments = subject.adapter.texts.tensors(model, TEXT)
    states = model(**arguments, output_hidden_states=True).hidden_states[0][0]
    values, projection = values_of(model, name, states)
    expected = torch.einsum("thv,hdv->htd", values, projection).norm(dim=-1).numpy()
    result = regard.weighted_values(subject, TEXT)
    layer = subject.layers[0].name
    assert not result.left_out and len(result.norms) == 2
    assert np.allclose(result.norms[layer], expected, atol=1e-4)
    weights = subject.attend(TEXT).layers[layer].weights
    assert np.allclose(result.weighted[layer], weights * expected[:, None], atol=1e-4)


def test_values_of_a_layer_of_pytorch() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    states, attention = torch.randn(1, 5, 8), layer.self_attn
    result = regard.weighted_values(regard.look(layer, lambda states: states, inputs=[states]), states)
    values = torch.nn.functional.linear(states[0], attention.in_proj_weight[16:], attention.in_proj_bias[16:])
    outputs = torch.einsum("thv,dhv->htd", values.unflatten(-1, (2, -1)), attention.out_proj.weight.view(8, 2, 4))
    assert not result.left_out
    assert np.allclose(result.norms["self_attn"], outputs.detach().norm(dim=-1).numpy(), atol=1e-5)


def test_a_run_has_the_values_of_its_own_layers(trained: regard.AnswerRun) -> None:
    result, shown = regard.weighted_values(trained, INPUT), trained.attend(INPUT)
    assert set(result.weighted) | set(result.left_out) == set(shown.layers) and result.norms
    for name, weighted in result.weighted.items():
        assert np.allclose(weighted, shown.layers[name].weights * result.norms[name][:, None], atol=1e-5)
