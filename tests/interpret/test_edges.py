"""Edge patching, EAP and EAP-IG equal computations on models in which each edge is an explicit input."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.activations.components import find_components
from regard.interpret import edges
from regard.interpret.edges import (
    Pass,
    ResidualGraph,
    edge_gradients,
    edge_patching,
    integrated_edge_gradients,
    score_edges,
)
from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from regard.models.query import QueryModel, QueryModelConfig
from regard.models.transformer import Transformer, TransformerConfig
from tests.interpret import split_models
from tests.interpret.split_models import Edge, Edges

GPT2: dict[str, Any] = {"bias": True, "activation": "gelu_tanh"}
LLAMA: dict[str, Any] = {
    "positions": "rotary", "norm": "rms", "activation": "swiglu", "key_value_heads": 2, "tied": False
}  # fmt: skip
LENGTH = 6


@dataclasses.dataclass
class Family:
    """A small model, a function that runs it on tokens (N, T), and the same model with explicit edges."""

    model: nn.Module
    run: Callable[[Tensor], Tensor]
    split: Callable[[Edges, Tensor], Tensor]


def decoder_only(**options: Any) -> Family:
    config = DecoderOnlyConfig(hidden=16, heads=4, inner=24, **options)
    model = DecoderOnly(config, symbols=11, longest=20)
    return Family(model, model, partial(split_models.decoder_only, model))


def query_model() -> Family:
    config = QueryModelConfig(hidden=12, multihead=True, heads=3, enc_layers=1, pos_enc=True, self_att=True)
    model = QueryModel(config, letters=11, input_len=LENGTH, outputs=2, classes=7)
    return Family(model, model, partial(split_models.query_model, model))


def transformer() -> Family:
    config = TransformerConfig(hidden=12, heads=3, inner=16)
    model = Transformer(config, source_symbols=11, target_symbols=9, longest=20)
    target = torch.tensor([2, 5, 7, 4])

    def run(tokens: Tensor) -> Tensor:
        logits: Tensor = model(tokens, tokens >= 0, target.expand(len(tokens), -1))
        return logits

    return Family(model, run, lambda edges, tokens: split_models.transformer(model, edges, tokens, target))


FAMILIES: dict[str, Callable[[], Family]] = {
    "gpt2": partial(decoder_only, **GPT2),
    "llama": partial(decoder_only, **LLAMA),
    "query": query_model,
    "transformer": transformer,
}


def metric(logits: Tensor) -> Tensor:
    return logits[..., -1, 3] - logits[..., 0, 5].square()


def eap(graph: ResidualGraph, clean: Pass, corrupted: Pass) -> dict[Edge, float]:
    return score_edges(graph, clean, corrupted, edge_gradients(graph, metric))


class Case:
    """A model of a family with random parameters, and a clean and a corrupted input."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(1)
        self.family = FAMILIES[name]()
        model = self.family.model.eval().double()
        for parameter in model.parameters():
            if parameter.dim() == 1 or name == "query":
                nn.init.normal_(parameter, std=0.3)  # so that biases, norms and queries matter
        self.tokens = torch.randint(11, (2, LENGTH))
        self.tokens[1, 0] = self.tokens[0, 0]
        components = find_components(model)
        self.graphs = [
            ResidualGraph(
                partial(self._run, tokens), model.input_embedding, components,  # type: ignore[arg-type]
                components.find_inputs()[0],
            )
            for tokens in self.tokens
        ]  # fmt: skip
        with torch.no_grad():
            first, second = (graph.full(1) for graph in self.graphs)
            self.passes: tuple[Pass, Pass] = first, second
        self.graphs[0].check(self.passes[1])

    def _run(self, tokens: Tensor, count: int) -> Tensor:
        return self.family.run(tokens.expand(count, -1))

    def split(self, tokens: Tensor, given: dict[Edge, Tensor] | None = None) -> tuple[Tensor, Edges]:
        edges = Edges(given)
        return self.family.split(edges, tokens), edges


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def assert_equal(actual: dict[Edge, float], expected: dict[Edge, float]) -> None:
    assert set(actual) == set(expected)
    names = list(expected)
    values = np.array([[effects[name] for name in names] for effects in (actual, expected)])
    assert np.abs(values[1]).max() > 1e-3
    np.testing.assert_allclose(values[0], values[1], atol=1e-9 + 1e-7 * np.abs(values[1]).max())


def test_the_split_model_is_the_model(case: Case) -> None:
    for tokens in case.tokens:
        logits, edges = case.split(tokens)
        assert torch.allclose(logits, case.family.run(tokens[None])[0], atol=1e-9)
        assert {sender for sender, _ in edges.values} == set(edges.sent)


@torch.no_grad()
def test_edge_patching_replaces_one_edge(case: Case) -> None:
    _, clean = case.split(case.tokens[0])
    _, corrupted = case.split(case.tokens[1])
    whole = float(metric(case.split(case.tokens[0])[0]))
    expected = {
        edge: whole - float(metric(case.split(case.tokens[0], {edge: corrupted.sent[edge[0]]})[0]))
        for edge in clean.values
    }
    assert_equal(edge_patching(case.graphs[0], *case.passes, metric), expected)


def eap_by_definition(case: Case, embedding: Tensor | None = None) -> dict[Edge, float]:
    """Return difference times gradient of each edge; `embedding` replaces what the inputs write."""
    _, clean = case.split(case.tokens[0])
    _, corrupted = case.split(case.tokens[1])
    given = {edge: embedding for edge in clean.values if edge[0] == "inputs"} if embedding is not None else {}
    leaves = {edge: value.detach().clone().requires_grad_() for edge, value in given.items()}
    logits, edges = case.split(case.tokens[0], leaves)
    gradients = torch.autograd.grad(metric(logits), list(edges.values.values()), allow_unused=True)
    differences = {name: (clean.sent[name] - corrupted.sent[name]).detach() for name in clean.sent}
    return {
        edge: 0.0 if gradient is None else float((differences[edge[0]] * gradient).sum())
        for edge, gradient in zip(edges.values, gradients, strict=True)
    }


def test_eap_is_difference_times_gradient_of_each_edge(case: Case) -> None:
    assert_equal(eap(case.graphs[0], *case.passes), eap_by_definition(case))


def test_eap_ig_averages_the_gradients_over_five_embeddings(case: Case) -> None:
    start, end = (case.split(tokens)[1].sent["inputs"] for tokens in case.tokens.flip(0))
    points = [eap_by_definition(case, start + step / 5 * (end - start)) for step in range(5)]
    expected = {edge: sum(point[edge] for point in points) / 5 for edge in points[0]}
    assert_equal(integrated_edge_gradients(case.graphs[0], *case.passes, metric), expected)


def test_few_copies_per_pass_give_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = eap(case.graphs[0], *case.passes)
    exact = edge_patching(case.graphs[0], *case.passes, metric)
    monkeypatch.setattr(edges, "MOST_COPIES", 5)
    assert_equal(eap(case.graphs[0], *case.passes), expected)
    assert_equal(edge_patching(case.graphs[0], *case.passes, metric), exact)
