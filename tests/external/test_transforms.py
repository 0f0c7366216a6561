"""Records of models inside transforms of `torch.func`: each level of vmap is part of the batch."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

import regard
from regard.attention.blocks import EncoderLayer
from regard.errors import InputError
from regard.external.layer_maps import record_long

pytestmark = pytest.mark.filterwarnings(
    "ignore:There is a performance drop", "ignore:.*torch.jit.script:DeprecationWarning"
)


class Fused(nn.Module):
    """Two heads of the fused kernel, with one of several masks."""

    def __init__(self, mask: Any = None, *, causal: bool = False) -> None:
        super().__init__()
        self.project, self.mask, self.causal = nn.Linear(8, 8), mask, causal

    def forward(self, states: Tensor) -> Tensor:
        """Return the context (B, T, D)."""
        query = self.project(states).unflatten(-1, (2, 4)).transpose(-2, -3)
        context = F.scaled_dot_product_attention(query, 1.5 * query, query, attn_mask=self.mask, is_causal=self.causal)
        return context.transpose(-2, -3).flatten(-2)


class Layer(nn.Module):
    """PyTorch's layer, with or without requested weights."""

    def __init__(self, *, weights: bool) -> None:
        super().__init__()
        self.layer, self.weights = nn.MultiheadAttention(8, 2, batch_first=True), weights

    def forward(self, states: Tensor) -> Tensor:
        """Return the context (B, T, D)."""
        context: Tensor = self.layer(states, states, states, need_weights=self.weights)[0]
        return context


class Explicit(nn.Module):
    """One head whose weights pass through a module."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.drop = nn.Linear(8, 8), nn.Dropout(0.0)

    def forward(self, states: Tensor) -> Tensor:
        """Return the context (B, T, D)."""
        query = self.project(states)[:, None]
        weights: Tensor = self.drop((query @ query.transpose(-1, -2)).softmax(-1))
        return (weights @ query)[:, 0]


def masked() -> Tensor:
    """Return a mask (B, 1, T, T) with a fully masked row."""
    mask = torch.ones(2, 1, 5, 5).tril().bool()
    mask[1, :, 0] = False
    return mask


MODELS: dict[str, tuple[Callable[[], nn.Module], str, dict[str, Any]]] = {
    "fused": (Fused, "", {}),
    "causal": (lambda: Fused(causal=True), "", {}),
    "masked": (lambda: Fused(masked()), "", {}),
    "heads": (Fused, "", {"heads": [1]}),
    "rows": (lambda: Fused(masked()), "", {"rows": [0, 3]}),
    "layer": (lambda: Layer(weights=False), "layer", {}),
    "layer with weights": (lambda: Layer(weights=True), "layer", {}),
    "named": (Explicit, "drop", {"modules": "drop"}),
    "regard": (lambda: EncoderLayer(8, 2, 16), "self_attention", {}),
}


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, str, dict[str, Any]]:
    """Model, name of its layer and options of the recording."""
    torch.manual_seed(0)
    build, layer, options = MODELS[request.param]
    return build(), layer, options


@pytest.fixture
def states(generator: torch.Generator) -> Tensor:
    """Three batches (N, B, T, D)."""
    return torch.randn(3, 2, 5, 8, generator=generator)


def weights_of(model: nn.Module, run: Callable[[], object], **options: Any) -> Tensor:
    """Return the recorded weights of the only layer."""
    with regard.record(model, **options) as records:
        run()
    [record] = records.values()
    return record.weights


def one_by_one(model: nn.Module, batches: Tensor, **options: Any) -> Tensor:
    """Return the weights of the batches, recorded without a transform."""
    return torch.cat([weights_of(model, lambda: model(batch), **options) for batch in batches])  # noqa: B023


def transforms(states: Tensor) -> Iterator[tuple[str, Callable[[nn.Module], object], Tensor]]:
    """Yield the name of a transform, a function that applies it to a model, and the batches that it runs."""
    yield "vmap", lambda model: vmap(model)(states), states
    yield "another dimension", lambda model: vmap(model, in_dims=2)(states.movedim(0, 2)), states
    yield "grad", lambda model: grad(lambda batch: model(batch).sum())(states[0]), states[:1]
    yield ("gradients of samples", lambda model: vmap(grad(lambda batch: model(batch).sum()))(states), states)
    yield "jvp", lambda model: jvp(model, (states[0],), (states[0],)), states[:1]
    yield (
        "call with parameters",
        lambda model: functional_call(model, dict(model.named_parameters()), (states[0],)),
        states[:1],
    )


def test_transforms(case: tuple[nn.Module, str, dict[str, Any]], states: Tensor) -> None:
    model, _, options = case
    for name, run, batches in transforms(states):
        with sdpa_kernel(SDPBackend.MATH):  # forward gradients need this kernel
            weights = weights_of(model, lambda: run(model), **options)  # noqa: B023
        torch.testing.assert_close(weights, one_by_one(model, batches, **options), msg=name)


def test_ensembles(case: tuple[nn.Module, str, dict[str, Any]], states: Tensor) -> None:
    model, _, options = case
    models = [copy.deepcopy(model) for _ in range(3)]
    for member in models:
        for parameter in member.parameters():
            nn.init.normal_(parameter)
    parameters, buffers = stack_module_state(models)
    base = copy.deepcopy(model)

    def call(state: Any, buffer: Any, batch: Tensor) -> Tensor:
        result: Tensor = functional_call(base, (state, buffer), (batch,))
        return result

    expected = torch.cat([one_by_one(member, states, **options) for member in models])
    nested = weights_of(
        base,
        lambda: vmap(lambda state, buffer: vmap(lambda batch: call(state, buffer, batch))(states))(parameters, buffers),
        **options,
    )
    torch.testing.assert_close(nested, expected)
    each = weights_of(base, lambda: vmap(call, in_dims=(0, 0, None))(parameters, buffers, states[0]), **options)
    torch.testing.assert_close(each, expected.unflatten(0, (3, 3, 2))[:, 0].flatten(0, 1))


def test_interventions(case: tuple[nn.Module, str, dict[str, Any]], states: Tensor) -> None:
    model, layer, options = case
    modules = {name: value for name, value in options.items() if name == "modules"}
    with regard.intervene(model, layer, heads=[0], to="uniform", **modules):
        together, alone = vmap(model)(states), torch.stack([model(batch) for batch in states])
    torch.testing.assert_close(together, alone)
    assert not torch.allclose(together, vmap(model)(states))


def test_inside_of_a_layer(states: Tensor) -> None:
    layer = EncoderLayer(8, 2, 16)
    with regard.record(layer, "*") as cache:
        vmap(layer)(states)
    torch.testing.assert_close(cache["weights"] @ cache["v"].transpose(1, 2), cache["z"].transpose(1, 2))
    assert cache["scores"].shape == (6, 2, 5, 5)


def test_long_records_are_refused(states: Tensor) -> None:
    model = Fused()
    with pytest.raises(InputError, match=r"after torch\.func"), record_long(model):
        vmap(model)(states)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "opt"])
def test_transformers_models(small: Any, name: str, implementation: str) -> None:
    model: Any = small.build(small.known[name], implementation)
    tokens = torch.randint(5, 30, (3, 2, 6))

    def run(batch: Tensor) -> Tensor:
        state: Tensor = model(batch)[0]
        return state

    with torch.no_grad():
        with regard.record(model) as records:
            vmap(run)(tokens)
        for index, batch in enumerate(tokens):
            with regard.record(model) as alone:
                run(batch)
            for layer in alone:
                together = records[layer].weights[2 * index : 2 * index + 2]
                torch.testing.assert_close(together, alone[layer].weights)
