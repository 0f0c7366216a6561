"""Layers without a record are named, with the reason."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard


@pytest.fixture(scope="module")
def every(small: Any) -> Any:
    """The module that builds small models of all architectures."""
    import every_architecture

    return every_architecture


def record_of(every: Any, name: str) -> tuple[regard.Records, list[str]]:
    """Run a small model; returns its records and the warnings."""
    model = every.build(name)
    inputs = every.first_accepted_inputs(model)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        with regard.record(model) as records:
            model(**inputs)
    return records, [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("name", "layer", "kind"),
    [
        ("jamba", "model.layers.0.mamba", "JambaMambaMixer"),
        ("zamba2", "model.layers.0.mamba", "Zamba2MambaMixer"),
        ("qwen3_next", "model.layers.0.linear_attn", "Qwen3NextGatedDeltaNet"),
    ],
)
def test_hybrid_layers_without_softmax_are_named(every: Any, name: str, layer: str, kind: str) -> None:
    records, said = record_of(every, name)
    assert records.left_out[layer] == f"{kind} without softmax attention"
    assert f"{kind} without softmax attention" in str(records)
    assert all("self_attn" in each for each in records) and records
    assert not any("not recorded" in each for each in said)


class HiddenAttention(nn.Module):
    """Attention whose weights are no result of a softmax."""

    def forward(self, states: Tensor) -> Tensor:
        return (states @ states.mT).log_softmax(-1).exp() @ states


def test_hidden_weights_next_to_recorded_layers_give_a_warning() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), HiddenAttention()).eval()
    with torch.no_grad(), pytest.warns(UserWarning, match="1 .HiddenAttention.*with modules=, name"):
        with regard.record(model) as records:
            model(torch.randn(1, 4, 8))
    assert list(records) == ["0.self_attn"]
    assert records.left_out == {"1": "HiddenAttention with weights that no hook sees"}


def test_layers_whose_weights_the_model_does_not_return_are_recorded(every: Any) -> None:
    records, said = record_of(every, "timesformer")
    assert not records.left_out and not said
    assert {f"encoder.layer.{layer}.temporal_attention.attention" for layer in (0, 1)} <= set(records)


def test_fully_recorded_model_misses_no_layer(every: Any) -> None:
    records, said = record_of(every, "bert")
    assert records.left_out == {} and "not recorded" not in str(records) and not said


def test_subject_names_missing_layers(every: Any) -> None:
    model = every.build("jamba")
    subject = regard.look(model, lambda text: torch.tensor([[5, 6, 7]]), inputs=["a text"])
    assert "JambaMambaMixer without softmax attention" in subject.left_out
    assert subject.left_out in subject.about()["summary"]
