"""Gradients and ablation of probes equal values computed by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regard
from regard import record
from regard.data import PairBatch, collate
from regard.interpret import probe


def recorder(model: nn.Module) -> Any:
    """Return a function that records layers of a model."""
    return lambda layers: record(model, layers=layers)


class Weighted(nn.Module):
    """A model with one output step: class 0 has the logit `sum_k w_k e_k`, class 1 has the logit 0."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 1)
        self.factors = torch.tensor([2.0, 0.0, -1.0, 0.5])
        with torch.no_grad():
            self.embedding.weight.copy_(torch.tensor([[1.0], [2.0], [-1.0]]))

    def forward(self, inputs: Tensor) -> Tensor:
        logit = (self.embedding(inputs).squeeze(-1) * self.factors).sum(-1)
        return torch.stack([logit, torch.zeros_like(logit)], -1).unsqueeze(1)


def test_matches_the_derivative_computed_by_hand() -> None:
    model = Weighted()
    inputs = torch.tensor([[0, 1, 1, 2]])
    result = probe(
        recorder(model),
        model.embedding,
        lambda count: model(inputs.expand(count, -1)),
        [],
    )
    # logit z = 2 - 2 - 0.5 = -0.5, so class 1 is predicted, with log-probability -log(1 + e^z).
    z, embedded, factors = -0.5, np.array([1.0, 2.0, 2.0, -1.0]), model.factors.numpy()
    slope = 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(result.gradient, [np.abs(embedded * factors) * slope], rtol=1e-5)
    left = z - embedded * factors
    change = np.abs(np.log1p(np.exp(left)) - np.log1p(np.exp(z)))
    np.testing.assert_allclose(result.ablation, [change], rtol=1e-5)
    assert result.weights == {}


def test_a_probe_does_not_change_the_model(trained: regard.AnswerRun) -> None:
    model, inputs = trained.model, trained.task.parse("BCCCBAABACCCA")
    before = model(inputs)
    result = probe(
        recorder(model),
        model.input_embedding,
        lambda count: model(inputs.expand(count, -1)),
        ["cross"],
    )
    assert torch.equal(model(inputs), before)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert result.weights["cross"].shape == (2, 3, 13)
    assert result.gradient.shape == result.ablation.shape == (3, 13)


@pytest.mark.parametrize("shared", [True, False])
def test_a_shared_embedding_is_changed_for_the_source_only(shared: bool) -> None:
    """If the source and the target share an embedding, only the input of the encoder is changed."""
    from regard.models import Transformer, TransformerConfig

    torch.manual_seed(0)
    config = TransformerConfig(hidden=8, heads=2, inner=8, enc_layers=1, dec_layers=1)
    model = Transformer(config, source_symbols=9, target_symbols=9, longest=9, shared=shared).eval()
    batch = PairBatch(collate([[4, 5, 6]]), collate([[5, 4]]))

    def run(count: int) -> Tensor:
        parts = (part.expand(count, -1) for part in (batch.source, batch.source_mask, batch.target_in))
        return model(*parts)

    result = probe(recorder(model), model.input_embedding, run, list(model.cross_layers))
    assert result.gradient.shape == result.ablation.shape == (3, 4)
    assert (result.ablation > 0).all()
