"""Probes of samples: weights, and the effect of replacing inputs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.data.batch import PairBatch, collate
from regard.interpret import examination
from regard.interpret.attribution.trial import change_embedding
from regard.interpret.examination import MOST_LETTERS, choose_yardstick, probe_inputs
from tests.interpret.subjects import language_run, pair_run, query_run


@torch.no_grad()
def test_probes_are_those_of_single_forward_passes(tmp_path: Path) -> None:
    """Batches of many inputs give the values of a loop over inputs, positions and letters."""
    run = query_run(tmp_path)
    inputs = [run.task.parse(text)[0] for text in ("ABBA", "CCCA", "AB", "BCAC", "BA")]
    before = run.model(inputs[0].unsqueeze(0))
    probes = probe_inputs(run, inputs)
    assert torch.equal(run.model(inputs[0].unsqueeze(0)), before)
    for tokens, probe in zip(inputs, probes, strict=True):
        clean = run.model(tokens.unsqueeze(0))[0].log_softmax(-1)
        classes = clean.argmax(-1, keepdim=True)
        expected = torch.zeros(len(clean), len(tokens))
        for key, token in enumerate(tokens.tolist()):
            letters = [letter for letter in range(len(run.task.vocabulary)) if letter != token]
            for letter in letters:
                changed = tokens.clone()
                changed[key] = letter
                likely = run.model(changed.unsqueeze(0))[0].log_softmax(-1)
                expected[:, key] += (likely - clean).gather(-1, classes)[:, 0].abs() / len(letters)
        np.testing.assert_allclose(probe.dependence, expected, atol=2e-5)
        assert expected.max() > 0.01
        with regard.record(run.model) as records:
            run.model(tokens.unsqueeze(0))
        np.testing.assert_allclose(probe.weights["cross"], records["cross"].weights[0], atol=1e-6)
        assert probe.relevant is not None and probe.relevant.shape == expected.shape


def test_the_yardstick_depends_on_the_inputs(tmp_path: Path) -> None:
    run = query_run(tmp_path / "letters")
    first = run.trial(run.task.parse("ABBA")[0])
    assert choose_yardstick(first).method == "other_tokens"
    assert choose_yardstick(first._replace(alphabet=range(MOST_LETTERS + 1))).method == "ablation_resampled"
    assert choose_yardstick(first._replace(alphabet=())).method == "ablation_resampled"
    assert choose_yardstick(first._replace(tokens=None, run_tokens=None)).method == "ablation_mean"


@pytest.mark.parametrize("method", ["ablation_resampled", "ablation_mean"])
def test_other_yardsticks_are_those_of_attribute(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = query_run(tmp_path)
    monkeypatch.setattr(examination, "choose_yardstick", lambda _: examination.YARDSTICKS[method])
    inputs = [run.task.parse(text)[0] for text in ("ABBA", "CCCA")]
    for tokens, probe in zip(inputs, probe_inputs(run, inputs), strict=True):
        expected = regard.attribute(run, tokens, method=method)
        assert expected.inputs is not None
        np.testing.assert_allclose(probe.dependence, expected.inputs, atol=2e-5)


def test_pairs_and_language_models_are_probed(tmp_path: Path) -> None:
    """Pairs have their own decoder inputs, and language models see the inputs up to a position only."""
    pairs = pair_run(tmp_path / "pairs")
    inputs = pairs.unseen(3, 0)
    for pair, probe in zip(inputs, probe_inputs(pairs, inputs), strict=True):
        expected = regard.attribute(pairs, pair, method=choose_yardstick(pairs.trial(pair)).method)
        assert expected.inputs is not None
        np.testing.assert_allclose(probe.dependence, expected.inputs, atol=2e-5)
    language = language_run(tmp_path / "language")
    for probe in probe_inputs(language, language.unseen(4, 0)):
        assert not np.triu(probe.dependence, 1).any() and (np.diag(probe.dependence) > 0).all()


@pytest.mark.parametrize("shared", [True, False])
@torch.no_grad()
def test_a_shared_embedding_is_changed_for_the_source_only(shared: bool) -> None:
    """If the source and the target share an embedding, only the input of the encoder is changed."""
    from regard.models.transformer import Transformer, TransformerConfig

    torch.manual_seed(0)
    config = TransformerConfig(hidden=8, heads=2, inner=8, enc_layers=1, dec_layers=1)
    model = Transformer(config, source_symbols=9, target_symbols=9, longest=9, shared=shared).eval()
    batch = PairBatch(collate([[4, 5, 6]]), collate([[5, 4]]))
    with change_embedding(model.input_embedding, torch.zeros_like):
        memory = model.encode(batch.source, batch.source_mask)
        changed: Tensor = model.decode(batch.target_in, memory)
    assert torch.equal(changed, model.decode(batch.target_in, memory))
    assert not torch.equal(changed, model(batch.source, batch.source_mask, batch.target_in))
