"""Weights at named modules are recorded and changed; folded heads are separated from samples, in either order."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.activations.weights import record_weights
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
    with record_weights(model, modules="blocks.*.attn_drop") as records:
        model(states)
    assert list(records) == ["blocks.0.attn_drop", "blocks.1.attn_drop"]
    torch.testing.assert_close(records["blocks.0.attn_drop"].weights, expected(states))
    with record_weights(model, modules="blocks.1.attn_drop", heads=[1], rows=[3]) as records:
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
    with pytest.warns(UserWarning, match=r"BlockModel ran, and nothing was recorded: .*record\(model, modules='blocks"):
        with record_weights(model) as records:
            model(torch.randn(2, 5, 8))
    assert not records
    with pytest.warns(UserWarning, match="BlockModel ran, and blocks.0 computed no attention: record without layers"):
        with record_weights(model, layers=["blocks.0"]):
            model(torch.randn(2, 5, 8))


def test_named_modules_of_one_class_do_not_hide_layers_of_another_class() -> None:
    model, states = BlockModel(), torch.randn(2, 5, 8)
    model.blocks = nn.ModuleList([AttentionBlock(), NoSoftmaxBlock()])
    with record_weights(model, modules="blocks.1.attn_drop") as records:
        model(states)
    assert list(records) == ["blocks.0", "blocks.1.attn_drop"]
    torch.testing.assert_close(records["blocks.1.attn_drop"].weights, expected(model.blocks[0](states)))


def test_wrong_pattern_is_refused() -> None:
    model = BlockModel()
    with pytest.raises(InputError, match="module 'blocks.*.drop' is unknown: .*attn_drop"):
        with record_weights(model, modules="blocks.*.drop"):
            pass
    with pytest.warns(UserWarning) as said:
        with record_weights(model, modules="blocks.1.proj"):
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


H, D = 4, 8
ORDERS = ("heads side by side", "samples side by side", "steps first")


class FoldedAttention(nn.Module):
    """Self-attention with bmm, as in d2l (heads are adjacent), in many implementations of "Attention Is All You
    Need" (samples are adjacent) and in fairseq (steps are first).
    """

    def __init__(self, order: str, name: str = "num_heads") -> None:
        super().__init__()
        self.order = order
        setattr(self, name, H)
        self.projections = nn.ModuleList(nn.Linear(D, D) for _ in range(4))
        self.inner = nn.Module()
        self.inner.drop = nn.Dropout(0.0)

    def fold(self, states: Tensor) -> Tensor:
        if self.order == "steps first":
            steps, batch, _ = states.shape
            return states.reshape(steps, batch * H, -1).transpose(0, 1)
        heads = states.unflatten(-1, (H, -1))
        order = (2, 0, 1, 3) if self.order == "samples side by side" else (0, 2, 1, 3)
        return heads.permute(*order).flatten(0, 1)

    def unfold(self, context: Tensor) -> Tensor:
        if self.order == "steps first":
            return context.transpose(0, 1).reshape(context.shape[1], -1, D)
        if self.order == "samples side by side":
            return context.unflatten(0, (H, -1)).permute(1, 2, 0, 3).flatten(2)
        return context.unflatten(0, (-1, H)).transpose(1, 2).flatten(2)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value, last = (each for each in self.projections)
        q, k, v = (self.fold(each(states)) for each in (query, key, value))
        scores = q @ k.transpose(-2, -1)
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        drop: Any = self.inner.drop
        found: Tensor = last(self.unfold(drop(scores.softmax(-1)) @ v))
        return found


class FoldedModel(nn.Module):
    """A model with one layer of folded heads."""

    def __init__(self, order: str, name: str = "num_heads") -> None:
        super().__init__()
        self.attention = FoldedAttention(order, name)

    def forward(self, states: Tensor) -> Tensor:
        found: Tensor = self.attention(states)
        return found


def by_head(layer: Any, states: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights (B, H, T, T) and values (B, H, T, d), computed separately."""
    states = states.transpose(0, 1) if layer.order == "steps first" else states
    q, k, v = (each(states).unflatten(-1, (H, -1)).transpose(1, 2) for each in layer.projections[:3])
    return (q @ k.transpose(-2, -1)).softmax(-1), v


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("batch", "steps"), [(2, 5), (3, 3), (1, 4), (4, 4), (6, 4)])
@torch.no_grad()
def test_folded_heads_are_separated_from_samples(order: str, batch: int, steps: int) -> None:
    torch.manual_seed(batch)
    model = FoldedModel(order)
    states = torch.randn(*((steps, batch) if order == "steps first" else (batch, steps)), D)
    weights, values = by_head(model.attention, states)
    plain = model(states)
    with regard.record(model, modules="attention.inner.drop") as records:
        torch.testing.assert_close(model(states), plain, rtol=0, atol=0)
    torch.testing.assert_close(records["attention.inner.drop"].weights, weights)
    weights[:, 1] = 0
    without = (weights @ values).transpose(1, 2).flatten(2)
    without = without.transpose(0, 1) if order == "steps first" else without
    with regard.intervene(model, "attention.inner.drop", heads=[1], modules="attention.inner.drop"):
        torch.testing.assert_close(model(states), model.attention.projections[3](without))
    with regard.intervene(model, "attention.inner.drop", heads=[], modules="attention.inner.drop"):
        torch.testing.assert_close(model(states), plain, rtol=0, atol=0)
    with regard.intervene(model, "attention", heads=[1]):  # in the softmax of the layer itself
        torch.testing.assert_close(model(states), model.attention.projections[3](without))


@pytest.mark.parametrize("name", ["num_heads", "n_heads", "n_head", "num_attention_heads", "heads", "nhead"])
@torch.no_grad()
def test_every_attribute_with_the_number_of_heads_is_found(name: str) -> None:
    model, states = FoldedModel("heads side by side", name), torch.randn(2, 5, D)
    with regard.record(model, modules="attention.inner.drop") as records:
        model(states)
    assert records["attention.inner.drop"].weights.shape == (2, H, 5, 5)


@torch.no_grad()
def test_unclear_folding_gives_a_warning() -> None:
    model, states = FoldedModel("heads side by side", "somehow"), torch.randn(2, 5, D)
    with pytest.warns(
        UserWarning, match=r"module 'attention.inner.drop': heads and samples cannot be distinguished in weights"
    ):
        with regard.record(model, modules="attention.inner.drop") as records:
            model(states)
    assert records["attention.inner.drop"].weights.shape == (8, 1, 5, 5)
    with pytest.raises(InputError, match="heads and samples cannot be distinguished"):
        with regard.intervene(model, "attention.inner.drop", heads=[0], modules="attention.inner.drop"):
            model(states)
    with pytest.raises(
        InputError, match=r"attention: heads and samples cannot be distinguished in weights \(8, 5, 5\)"
    ):
        with regard.intervene(model, "attention", heads=[0]):
            model(states)
    with regard.intervene(model, "attention"):  # all heads need no layout
        without = model(states)
    last: Any = model.attention.projections[3]
    torch.testing.assert_close(without, last.bias.expand(2, 5, D))


class SoftmaxModuleAttention(FoldedAttention):
    """Self-attention with folded heads and a module for the softmax."""

    def __init__(self) -> None:
        super().__init__("heads side by side")
        self.softmax = nn.Softmax(-1)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (self.fold(layer(states)) for layer in self.projections[:3])
        context: Tensor = self.projections[3](self.unfold(self.softmax(q @ k.transpose(-2, -1)) @ v))
        return context


@torch.no_grad()
def test_weights_of_a_softmax_module_are_those_of_one_head() -> None:
    model, states = FoldedModel("heads side by side"), torch.randn(2, 5, D)
    model.attention = SoftmaxModuleAttention()
    weights, values = by_head(model.attention, states)
    weights[:, 1] = 0
    without = model.attention.projections[3]((weights @ values).transpose(1, 2).flatten(2))
    place = "attention.softmax"
    with regard.intervene(model, place, heads=[1], modules=place), regard.record(model, modules=place) as records:
        torch.testing.assert_close(model(states), without)
    torch.testing.assert_close(records[place].weights, weights)


class SingleHeadModel(nn.Module):
    """Attention with one head and no attribute for the number of heads, and several modules with one head each."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 2
        self.heads_ = nn.ModuleList(nn.Dropout(0.0) for _ in range(2))

    def forward(self, states: Tensor) -> Tensor:
        return torch.cat([drop((states @ states.mT).softmax(-1)) @ states for drop in self.heads_], -1)


@torch.no_grad()
def test_one_module_for_each_head_is_not_unfolded() -> None:
    model, states = SingleHeadModel(), torch.randn(4, 5, D)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with regard.record(model, modules="heads_.*") as records:
            model(states)
    assert [record.weights.shape for record in records.values()] == [(4, 1, 5, 5)] * 2


@torch.no_grad()
def test_probing_keeps_the_random_state() -> None:
    model, states = FoldedModel("heads side by side"), torch.randn(2, 5, D)
    model.attention.inner.drop = nn.Dropout(0.5)
    torch.manual_seed(1)
    plain = model(states)
    torch.manual_seed(1)
    with regard.record(model, modules="attention.inner.drop"):
        torch.testing.assert_close(model(states), plain, rtol=0, atol=0)


@pytest.mark.parametrize("order", ORDERS[:2])
@torch.no_grad()
def test_single_step_is_unfolded_like_earlier_steps(order: str) -> None:
    model = FoldedModel(order)
    with regard.record(model, modules="attention.inner.drop") as records:
        for batch in (1, 3):
            model(torch.randn(batch, 5, D))
        model(torch.randn(3, 1, D))
    assert records["attention.inner.drop"].weights.shape == (3, H, 1, 1)


class CachingAttention(nn.Module):
    """Self-attention that stores its earlier steps, counts its calls, and writes to a log."""

    def __init__(self, *, folded: bool) -> None:
        super().__init__()
        self.num_heads, self.folded = 2, folded
        self.projection, self.drop = nn.Linear(8, 8), nn.Dropout(0.0)
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(1))
        self.past: Tensor | None = None
        self.log: list[int] = []

    def heads(self, states: Tensor) -> Tensor:
        return self.projection(states).unflatten(-1, (2, 4)).transpose(1, 2)

    def forward(self, states: Tensor) -> Tensor:
        self.calls += 1
        self.log.append(states.shape[1])
        self.past = states if self.past is None else torch.cat([self.past, states], dim=1)
        keys = self.heads(self.past)
        weights = (self.heads(states) @ keys.transpose(-1, -2)).softmax(-1)
        weights = self.drop(weights.flatten(0, 1)).unflatten(0, (-1, 2)) if self.folded else self.drop(weights)
        return (weights @ keys).transpose(1, 2).flatten(2)


@pytest.mark.filterwarnings("ignore:.*heads and samples cannot be distinguished")
@pytest.mark.parametrize("folded", [True, False])
def test_probing_keeps_the_state_of_a_module(folded: bool) -> None:
    plain, recorded = CachingAttention(folded=folded), CachingAttention(folded=folded)
    recorded.load_state_dict(plain.state_dict())
    states = torch.randn(3, 5, 8)
    with torch.no_grad(), regard.record(recorded, modules="drop"):
        for step in range(5):
            same = states[:, step : step + 1]
            assert torch.equal(plain(same), recorded(same))
    assert recorded.calls.item() == 5 and recorded.log == plain.log
    assert plain.past is not None and recorded.past is not None and torch.equal(plain.past, recorded.past)
