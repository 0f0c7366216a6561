"""Names of layers, and what a user may type for them."""

import pytest
from torch import nn

from regard.attention.blocks import EncoderLayer
from regard.attention.names import find_name, known_name, layer_name
from regard.errors import InputError


def test_own_models_leave_out_layers() -> None:
    assert layer_name(EncoderLayer(8, 2, 16), "decoder.layers.0.cross") == "decoder.0.cross"
    assert layer_name(nn.Linear(1, 1), "decoder.layers.0.cross") == "decoder.layers.0.cross"
    assert layer_name(nn.Linear(1, 1), "_orig_mod.decoder.layers.0") == "decoder.layers.0"


def test_both_forms_are_accepted() -> None:
    names = ["a.layers.0", "b.1", "b.1#1"]
    assert [find_name(name, names) for name in ("a.0", "a.layers.0", "b.layers.1", "b.layers.1#1", "c")] == [
        "a.layers.0",
        "a.layers.0",
        "b.1",
        "b.1#1",
        None,
    ]
    assert find_name("", ["", "a"]) == ""
    with pytest.raises(InputError, match=r"layer 'b\.2' is unknown"):
        known_name("b.2", names)
