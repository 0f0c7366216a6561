"""Each weight of an exercise is copied to the corresponding parameter of a learner's module."""

import numpy as np
import torch
from torch import nn

from regard_course.weight_matching import (
    WeightLayout,
    copy_weights,
    find_hidden_modules,
    name_features,
    split_name,
    weight_features,
)


def random_weights(*names: str, width: int = 6) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=(width, width)) for name in names}


def test_names_are_split_into_features() -> None:
    assert split_name("encoder.layers.0.selfAttn.q_proj.weight") == [
        "encoder", "layers", "0", "self", "attn", "q", "proj", "weight",
    ]  # fmt: skip
    assert name_features("decoder.layers.1.src_attn.w_k") == {
        "letter": "k", "block": "cross", "side": "decoder", "layer": "1",
    }  # fmt: skip
    assert weight_features("decoder.1.cross_k", True) == {
        "side": "decoder", "layer": "1", "letter": "k", "block": "cross",
    }  # fmt: skip


def test_names_decide_before_the_order() -> None:
    module = nn.ModuleDict({name: nn.Linear(6, 6) for name in ("out", "value", "key", "query")})
    weights = random_weights("w_q", "w_k", "w_v", "w_o")
    copied = copy_weights(weights, module, 6, 2, WeightLayout())
    for name, weight in zip(("query", "key", "value", "out"), weights.values(), strict=True):
        layer = module[name]
        assert isinstance(layer, nn.Linear)
        torch.testing.assert_close(layer.weight.detach().double().numpy(), weight.T, rtol=1e-6, atol=1e-6)
        assert not layer.bias.any()
    assert copied.missing == [] and copied.unused == []


def test_packed_parameters_receive_several_weights() -> None:
    module = nn.MultiheadAttention(6, 2)
    weights = random_weights("w_q", "w_k", "w_v", "w_o")
    copy_weights(weights, module, 6, 2, WeightLayout())
    packed = np.concatenate([weights[name].T for name in ("w_q", "w_k", "w_v")])
    torch.testing.assert_close(module.in_proj_weight.detach().double().numpy(), packed, rtol=1e-6, atol=1e-6)


def test_weights_and_parameters_without_a_counterpart_are_reported() -> None:
    module = nn.ModuleDict({name: nn.Linear(6, 6) for name in ("query", "key", "value")})
    module["gate"] = nn.Linear(6, 1)
    copied = copy_weights(random_weights("w_q", "w_k", "w_v", "w_o"), module, 6, 2, WeightLayout())
    assert copied.missing == ["w_o"] and copied.unused == ["gate.weight (1, 6)"]


def test_hidden_modules_are_found() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = [nn.Linear(6, 3), nn.Linear(6, 3)]

    assert find_hidden_modules(Heads()) == ["heads"]
