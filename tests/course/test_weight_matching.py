"""Which parameter of a learner's a weight of the exercise belongs to."""

import numpy as np
import torch
from torch import nn

from regard.course.weight_copying import copy_weights
from regard.course.weight_matching import Reading, features_of, role_features, tokens_of


def drawn(*names: str, width: int = 6) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=(width, width)) for name in names}


def test_names_are_read_in_pieces() -> None:
    assert tokens_of("encoder.layers.0.selfAttn.q_proj.weight") == [
        "encoder", "layers", "0", "self", "attn", "q", "proj", "weight",
    ]  # fmt: skip
    assert features_of("decoder.layers.1.src_attn.w_k") == {
        "letter": "k", "block": "cross", "side": "decoder", "first": "1",
    }  # fmt: skip
    assert role_features("decoder.1.cross_k", True) == {
        "side": "decoder", "first": "1", "letter": "k", "block": "cross",
    }  # fmt: skip


def test_weights_go_where_names_say_whatever_the_order() -> None:
    module = nn.ModuleDict({name: nn.Linear(6, 6) for name in ("out", "value", "key", "query")})
    weights = drawn("w_q", "w_k", "w_v", "w_o")
    copied = copy_weights(weights, module, 6, 2, Reading())
    for name, weight in zip(("query", "key", "value", "out"), weights.values(), strict=True):
        layer = module[name]
        assert isinstance(layer, nn.Linear)
        torch.testing.assert_close(layer.weight.detach().double().numpy(), weight.T, rtol=1e-6, atol=1e-6)
        assert not layer.bias.any()
    assert copied.missing == [] and copied.left == []


def test_packed_weights_are_taken_apart() -> None:
    module = nn.MultiheadAttention(6, 2)
    weights = drawn("w_q", "w_k", "w_v", "w_o")
    copy_weights(weights, module, 6, 2, Reading())
    packed = np.concatenate([weights[name].T for name in ("w_q", "w_k", "w_v")])
    torch.testing.assert_close(module.in_proj_weight.detach().double().numpy(), packed, rtol=1e-6, atol=1e-6)


def test_what_has_no_place_and_what_is_too_much_is_told() -> None:
    module = nn.ModuleDict({name: nn.Linear(6, 6) for name in ("query", "key", "value")})
    module["gate"] = nn.Linear(6, 1)
    copied = copy_weights(drawn("w_q", "w_k", "w_v", "w_o"), module, 6, 2, Reading())
    assert copied.missing == ["w_o"] and copied.left == ["gate.weight (1, 6)"]


def test_plain_lists_of_modules_are_found() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = [nn.Linear(6, 3), nn.Linear(6, 3)]

    assert copy_weights(drawn("w_q"), Heads(), 6, 2, Reading()).hidden == ["heads"]
