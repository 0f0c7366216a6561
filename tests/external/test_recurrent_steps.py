"""A decoder that attends once per step has a single record, and layers of functional Keras models have
names.
"""

import os
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard


class StepAttention(nn.Module):
    """Attention of one query (B, D) to a memory (B, T, D), computed with one of three methods."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.drop = way, nn.Dropout(0.0)
        self.heads = nn.MultiheadAttention(8, 2, batch_first=True)
        self.kept: list[Tensor] = []

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        """Return the context (B, D)."""
        if self.way == "heads":
            context: Tensor = self.heads(query[:, None], memory, memory, need_weights=False)[0][:, 0]
            return context
        if self.way == "kernel":
            return F.scaled_dot_product_attention(query[:, None, None], memory[:, None], memory[:, None])[:, 0, 0]
        weights: Tensor = self.drop((memory @ query[:, :, None])[..., 0].softmax(-1))  # (B, T)
        self.kept.append(weights.detach())
        return (weights[:, None] @ memory)[:, 0]


class Decoder(nn.Module):
    """Four steps of a recurrent decoder."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.cell, self.attends = nn.GRUCell(8, 8), StepAttention(way)

    def forward(self, memory: Tensor) -> Tensor:
        """Return the states (B, 4, D)."""
        state, states = memory.mean(1), []
        for _ in range(4):
            state = self.cell(self.attends(state, memory), state)
            states.append(state)
        return torch.stack(states, dim=1)


@pytest.fixture
def memory(generator: torch.Generator) -> Tensor:
    """Three sequences of six steps."""
    return torch.randn(3, 6, 8, generator=generator)


@pytest.mark.parametrize(("way", "layer", "heads"), [("heads", "attends.heads", 2), ("kernel", "attends", 1)])
def test_steps_are_rows_of_one_record(memory: Tensor, way: str, layer: str, heads: int) -> None:
    torch.manual_seed(0)
    decoder = Decoder(way).eval()
    with torch.no_grad(), regard.record(decoder) as records:
        states = decoder(memory)
    assert list(records) == [layer]
    assert records[layer].weights.shape == (3, heads, 4, 6)
    if way == "kernel":
        queries = torch.cat([memory.mean(1, keepdim=True), states[:, :3]], dim=1)
        expected = (queries @ memory.transpose(1, 2) * 8**-0.5).softmax(-1)
        torch.testing.assert_close(records[layer].weights[:, 0], expected)
    with torch.no_grad(), regard.record(decoder, rows=[2]) as some:
        decoder(memory)
    torch.testing.assert_close(some[layer].weights, records[layer].weights[:, :, [2]])


def test_steps_at_a_named_module_keep_samples_apart(memory: Tensor) -> None:
    torch.manual_seed(0)
    decoder = Decoder("by hand").eval()
    with torch.no_grad(), regard.record(decoder, modules="attends.drop") as records:
        decoder(memory)
    expected = torch.stack(decoder.attends.kept, dim=1)
    torch.testing.assert_close(records["attends.drop"].weights, expected[:, None])


def test_calls_with_other_keys_have_own_records(memory: Tensor) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attends = StepAttention("kernel")

        def forward(self, memory: Tensor) -> Tensor:
            first: Tensor = self.attends(memory[:, 0], memory)
            second: Tensor = self.attends(first, memory[:, :3])
            return second

    model = Twice()
    with torch.no_grad(), regard.record(model) as records:
        model(memory)
    assert {name: tuple(record.weights.shape) for name, record in records.items()} == {
        "attends": (3, 1, 1, 6),
        "attends#1": (3, 1, 1, 3),
    }


@pytest.mark.slow  # importing keras takes seconds
@pytest.mark.filterwarnings("ignore")
def test_keras_layers_have_their_names(memory: Tensor) -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras: Any = pytest.importorskip("keras", reason="needs the extra peers")
    inputs = keras.Input((6, 8))
    first = keras.layers.MultiHeadAttention(2, 4, name="first")(inputs, inputs)
    inner = keras.Model(inputs, keras.layers.Attention(name="by_hand")([first, inputs]), name="inner")
    model = keras.Model(inputs, keras.layers.MultiHeadAttention(2, 4, name="last")(inner(inputs), inputs))
    with torch.no_grad(), pytest.warns(UserWarning, match="not recorded: inner.by_hand"):
        with regard.record(model) as records:
            plain = model(memory)
    assert list(records) == ["inner.first", "last"]
    with torch.no_grad(), regard.intervene(model, "inner.first", heads=[0]):
        assert not torch.allclose(model(memory), plain)
