"""The documented table of capture mechanisms, their common interface, and the models for which each mechanism
is installed.
"""

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from regard.activations import recording
from regard.activations.capture_session import CaptureSession
from regard.activations.forward_tracker import ForwardTracker
from regard.activations.torch_calls import without_modes
from regard.attention.multihead import MultiHeadAttention
from regard.attention.records import Recorder


def installed(model: nn.Module, modules: str | None = None) -> set[str]:
    """Return the names of the mechanisms that recording installs for a model."""
    session = CaptureSession(Recorder(), ForwardTracker(model), None, modules=modules)
    return {
        str(mechanism.__name__).rpartition(".")[2]  # type: ignore[attr-defined]
        for mechanism in recording.MECHANISMS
        if mechanism.applies(session)
    }


def test_table_names_every_mechanism() -> None:
    for mechanism in recording.MECHANISMS:
        assert str(mechanism.__name__).rpartition(".")[2] in (recording.__doc__ or "")  # type: ignore[attr-defined]
        for function in (mechanism.applies, mechanism.capture):
            assert list(inspect.signature(function).parameters) == ["session"]


def test_mechanisms_of_modules() -> None:
    assert installed(MultiHeadAttention(8, 2)) == set()
    assert installed(nn.MultiheadAttention(8, 2)) == {"torch_calls"}
    assert installed(nn.Sequential(nn.Linear(8, 8), nn.Dropout()), modules="1") == {"named_modules"}


@pytest.mark.parametrize(
    ("name", "mechanisms"),
    [
        ("llama", {"attention_interface", "generation"}),
        ("longformer", {"output_attentions", "torch_calls", "generation"}),
        ("clip", {"attention_interface", "generation"}),
    ],
)
def test_mechanisms_of_transformers_models(small: Any, name: str, mechanisms: set[str]) -> None:
    assert installed(small.build(small.known[name])) == mechanisms


def test_functions_run_without_modes() -> None:
    calls = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(function)
            return function(*args, **(kwargs or {}))

    with Mode(), Mode():
        result = without_modes(lambda: torch.zeros(1).add(1))
    assert calls == [without_modes] * 2 and result.tolist() == [1]
