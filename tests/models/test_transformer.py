"""The complete Transformer. The layers are tested in tests/attention."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention.layer import find_layer
from regard.attention.multihead import keep_heads
from regard.attention.positions import Sinusoidal
from regard.data.batch import collate
from regard.data.vocabulary import BOS, CharacterVocabulary
from regard.decoding.translation import Search, translate
from regard.errors import InputError
from regard.models.transformer import Transformer, TransformerConfig


def make(**options: Any) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(**{"hidden": 8, "heads": 2, "inner": 12, **options})
    return Transformer(config, source_symbols=9, target_symbols=8, longest=20).double().eval()


def test_embeddings_are_scaled_shared_and_have_positions() -> None:
    model, source = make(enc_layers=1), collate([[4, 5]])
    seen: list[Tensor] = []
    model.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model.encode(source, source != 0)
    assert model.source_embedding is not None
    expected = model.source_embedding.weight[source] * math.sqrt(8) + Sinusoidal(8).vectors(0, 3)
    torch.testing.assert_close(seen[0], expected)
    assert "output.weight" not in model.state_dict()
    with torch.no_grad():
        model.target_embedding.weight[5] = 0
    assert not model(source, source != 0, torch.tensor([[BOS, 4]]))[..., 5].any()


def test_output_layer_can_be_separate_with_biases(generator: torch.Generator) -> None:
    model, source = make(tied=False, output_bias=True, bias=True, norm_epsilon=0.1), collate([[4, 5]])
    assert model.output is not None and model.output_bias is not None
    with torch.no_grad():
        model.output_bias.copy_(torch.randn(8, generator=generator))
    target_in = torch.tensor([[BOS, 4]])
    states = model.read(target_in, model.encode(source, source != 0))
    expected = states @ model.output.weight.T + model.output_bias
    torch.testing.assert_close(model(source, source != 0, target_in), expected)
    new = model.state_dict().keys() - make().state_dict().keys()
    assert new == {"output.weight", "output_bias"} | {
        name for name in new if name.endswith(("query.bias", "key.bias", "value.bias", "output.bias"))
    }
    assert all(module.eps == 0.1 for module in model.modules() if isinstance(module, torch.nn.LayerNorm))


def test_projections_have_pytorchs_initial_range() -> None:
    layer: Any = make(hidden=64, heads=4).get_submodule("decoder.layers.0.cross")
    peer = torch.nn.MultiheadAttention(64, 4, bias=False)
    expected = peer.in_proj_weight.std().item()
    for projection in (layer.query, layer.key, layer.value):
        assert projection.weight.std().item() == pytest.approx(expected, rel=0.05)
    assert layer.output.weight.std().item() == pytest.approx(expected * math.sqrt(2), rel=0.05)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_pruned_model_takes_single_steps(positions: str) -> None:
    model, source = make(hidden=16, heads=4, positions=positions), collate([[4, 5, 6], [7]])
    keep_heads(find_layer(model, "decoder.layers.0.self_attention"), [1])
    keep_heads(find_layer(model, "decoder.layers.1.cross"), [0, 2])
    target_in = torch.tensor([[BOS, 4, 5]] * 2)
    state, found = model.start(model.encode(source, source != 0)), []
    for step in range(3):
        states, state = model.step(target_in[:, step : step + 1], state)
        found.append(model.logits(states))
    torch.testing.assert_close(torch.cat(found, dim=1), model(source, source != 0, target_in))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 9}, "hidden 9 cannot be split into 2 heads"),
        ({"hidden": 6, "positions": "rotary"}, "head width 3 is odd"),
        ({"hidden": 5, "heads": 1, "positions": "concatenated"}, "hidden 5 is odd"),
        ({"dropout": 1.0}, "dropout 1.0 is out of range"),
        ({"dec_layers": 0}, "dec_layers 0 is out of range"),
        ({"score": "dto"}, "did you mean dot"),
        ({"activation": "swich"}, "did you mean swish"),
        ({"norm_epsilon": 0.0}, "norm_epsilon 0.0 is out of range"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)


def test_without_normalization_layers_only_add(generator: torch.Generator) -> None:
    model, source = make(norm="none", enc_layers=1, dec_layers=1), collate([[4, 5]])
    assert not any(isinstance(module, torch.nn.LayerNorm) for module in model.modules())
    states = torch.randn(1, 3, 8, generator=generator, dtype=torch.float64)
    layer: Any = model.encoder.layers[0]
    attended = states + layer.self_attention(states)
    expected = attended + layer.feed_forward(attended)
    torch.testing.assert_close(model.encoder(states), expected)
    assert translate(model, CharacterVocabulary("abcde"), CharacterVocabulary("abcd"), ["ab"], Search(), max_len=4)
    assert model(source, source != 0, torch.tensor([[BOS, 4]])).isfinite().all()
