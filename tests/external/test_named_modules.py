"""Weights that pass through named modules are recorded and changed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.activations.recording import record
from regard.errors import InputError


class AttentionBlock(nn.Module):
    """Attention with its own softmax, as in many custom models."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.attn_drop = nn.Dropout(drop)
        self.proj = nn.Linear(8, 8)

    def forward(self, states: Tensor) -> Tensor:
        heads = states.unflatten(-1, (2, 4)).transpose(1, 2)
        weights = self.attn_drop((heads @ heads.transpose(-2, -1)).softmax(-1))
        context: Tensor = self.proj((weights @ heads).transpose(1, 2).flatten(2))
        return context


class BlockModel(nn.Module):
    """A model with two attention blocks."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([AttentionBlock(drop), AttentionBlock(drop)])

    def forward(self, states: Tensor) -> Tensor:
        for block in self.blocks:
            states = block(states)
        return states


def expected(states: Tensor) -> Tensor:
    heads = states.unflatten(-1, (2, 4)).transpose(1, 2)
    return (heads @ heads.transpose(-2, -1)).softmax(-1)


@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_weights_are_recorded_at_the_named_module(drop: float) -> None:
    """Weights are recorded before the dropout, so that rows sum to one."""
    model, states = BlockModel(drop), torch.randn(2, 5, 8)
    with record(model, modules="blocks.*.attn_drop") as records:
        model(states)
    assert list(records) == ["blocks.0.attn_drop", "blocks.1.attn_drop"]
    torch.testing.assert_close(records["blocks.0.attn_drop"].weights, expected(states))
    with record(model, modules="blocks.1.attn_drop", heads=[1], rows=[3]) as records:
        model(states)
    assert [layer.weights.shape for layer in records.values()] == [(2, 1, 1, 5)]
    assert not any(module._forward_hooks for module in model.modules())


class NoSoftmaxBlock(AttentionBlock):
    """Attention whose weights no function of PyTorch computes."""

    def forward(self, states: Tensor) -> Tensor:
        heads = states.unflatten(-1, (2, 4)).transpose(1, 2)
        powers = (heads @ heads.transpose(-2, -1)).exp()
        weights = self.attn_drop(powers / powers.sum(-1, keepdim=True))
        context: Tensor = self.proj((weights @ heads).transpose(1, 2).flatten(2))
        return context


def test_without_modules_a_warning_names_the_remedy() -> None:
    model = BlockModel()
    model.blocks = nn.ModuleList([NoSoftmaxBlock(), NoSoftmaxBlock()])
    with pytest.warns(
        UserWarning, match=r"BlockModel ran, and nothing was recorded: .*record\(model, modules='blocks"
    ):
        with record(model) as records:
            model(torch.randn(2, 5, 8))
    assert not records
    with pytest.warns(
        UserWarning, match="BlockModel ran, and blocks.0 computed no attention: record without layers"
    ):
        with record(model, layers=["blocks.0"]):
            model(torch.randn(2, 5, 8))


def test_named_modules_of_one_class_do_not_hide_layers_of_another_class() -> None:
    model, states = BlockModel(), torch.randn(2, 5, 8)
    model.blocks = nn.ModuleList([AttentionBlock(), NoSoftmaxBlock()])
    with record(model, modules="blocks.1.attn_drop") as records:
        model(states)
    assert list(records) == ["blocks.0", "blocks.1.attn_drop"]
    torch.testing.assert_close(records["blocks.1.attn_drop"].weights, expected(model.blocks[0](states)))


def test_wrong_pattern_is_refused() -> None:
    model = BlockModel()
    with pytest.raises(InputError, match="module 'blocks.*.drop' is unknown: .*attn_drop"):
        with record(model, modules="blocks.*.drop"):
            pass
    with pytest.warns(UserWarning) as said:
        with record(model, modules="blocks.1.proj"):
            model(torch.randn(2, 5, 8))
    assert "module 'blocks.1.proj' neither receives nor returns rows that sum to one" in str(said[0].message)
    assert "no attention weights passed through the modules that match 'blocks.1.proj'" in str(said[1].message)


@torch.no_grad()
def test_custom_model_with_named_modules_is_a_subject() -> None:
    model, states = BlockModel().eval(), torch.randn(1, 5, 8)
    subject = regard.look(model, lambda each: each, inputs=[states], modules="blocks.*.attn_drop")
    assert [(each.name, each.heads) for each in subject.layers] == [
        ("blocks.0.attn_drop", 2),
        ("blocks.1.attn_drop", 2),
    ]
    torch.testing.assert_close(
        torch.from_numpy(subject.attend(states).layers["blocks.0.attn_drop"].weights), expected(states)[0]
    )
    block: Any = model.blocks[0]
    heads = states.unflatten(-1, (2, 4)).transpose(1, 2)
    weights = expected(states)
    weights[:, 1] = 0
    without = block.proj((weights @ heads).transpose(1, 2).flatten(2))
    for inputs in (subject, model):
        pattern = None if inputs is subject else "blocks.*.attn_drop"
        with regard.intervene(inputs, "blocks.0.attn_drop", heads=[1], modules=pattern):
            torch.testing.assert_close(model.blocks[0](states), without)
    added = subject.importance().added["blocks.0.attn_drop"]
    last = model(states)
    moved = model.blocks[1](without)
    assert added[1] == pytest.approx(float((moved - last).square().sum() / last.square().sum()), rel=1e-4)
