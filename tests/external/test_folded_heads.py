"""Heads that are folded into the batch dimension are separated from samples, in either order."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.errors import InputError

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
    """Attention with one head and no attribute for the number of heads, and several modules with one head
    each.
    """

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
