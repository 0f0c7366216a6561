"""Probes of samples: weights, gradients and ablation. tests/interpret/attribution computes both independently."""

import pytest
import torch
from torch import Tensor

import regard
from regard.data import PairBatch, collate
from regard.interpret import Trial, probe
from regard.interpret.attribution.background import change_embedding


def test_a_probe_does_not_change_the_model(trained: regard.AnswerRun) -> None:
    model, inputs = trained.model, trained.task.parse("BCCCBAABACCCA")
    before = model(inputs)
    result = probe(Trial(trained, inputs[0]))
    assert torch.equal(model(inputs), before)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert result.weights["cross"].shape == (2, 3, 13)
    assert result.gradient.shape == result.ablation.shape == (3, 13)
    assert (result.gradient >= 0).all() and (result.ablation > 0).any()


@pytest.mark.parametrize("shared", [True, False])
@torch.no_grad()
def test_a_shared_embedding_is_changed_for_the_source_only(shared: bool) -> None:
    """If the source and the target share an embedding, only the input of the encoder is changed."""
    from regard.models import Transformer, TransformerConfig

    torch.manual_seed(0)
    config = TransformerConfig(hidden=8, heads=2, inner=8, enc_layers=1, dec_layers=1)
    model = Transformer(config, source_symbols=9, target_symbols=9, longest=9, shared=shared).eval()
    batch = PairBatch(collate([[4, 5, 6]]), collate([[5, 4]]))
    with change_embedding(model.input_embedding, torch.zeros_like):
        memory = model.encode(batch.source, batch.source_mask)
        changed: Tensor = model.decode(batch.target_in, memory)
    assert torch.equal(changed, model.decode(batch.target_in, memory))
    assert not torch.equal(changed, model(batch.source, batch.source_mask, batch.target_in))
