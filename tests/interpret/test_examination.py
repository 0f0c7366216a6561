"""Measurements and sentences of an examination, for attention with a known meaning."""

import html
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from rich.console import Console
from torch import Tensor

import regard
from regard.data.batch import PairBatch, collate
from regard.interpret import examination
from regard.interpret.attribution.trial import change_embedding
from regard.interpret.estimates import Estimate
from regard.interpret.examination import (
    MOST_LETTERS,
    HeadFindings,
    Probe,
    choose_yardstick,
    correlation,
    examined_facts,
    make_examination,
    probe_inputs,
)
from regard.interpret.importance import HeadImportance, importance_by_layer
from regard.io import add_digest
from regard.training.checkpoint import Checkpoint
from regard.training.run_folder import RunFolder
from tests.interpret.subjects import language_run, pair_run, query_run
from tests.viz.test_report_page import begins_with_picture

SAMPLES, STEPS, INPUTS = 60, 2, 8


def _examined(kind: str, importance: float = 0.5) -> Any:
    """Examine one head: `right` attends to the relevant inputs, `place` always to input 0, `blind` uniformly."""
    generator = np.random.default_rng(0)
    probes = []
    for _ in range(SAMPLES):
        relevant = np.zeros((STEPS, INPUTS), dtype=bool)
        relevant[:, 0] = True
        for step in range(STEPS):
            relevant[step, generator.choice(np.arange(1, INPUTS), 2, replace=False)] = True
        measure = relevant + 0.1 * generator.random((STEPS, INPUTS))
        weights = {
            "right": measure,
            "place": np.eye(1, INPUTS) + 0.01 * generator.random((STEPS, INPUTS)),
            "blind": 1 + 0.1 * generator.random((STEPS, INPUTS)),
        }[kind]
        weights = weights / weights.sum(-1, keepdims=True)
        probes.append(Probe(weights={"cross": weights[None]}, dependence=measure, relevant=relevant))
    known = Estimate(mean=importance, low=importance - 0.01, high=importance + 0.01)
    worth = HeadImportance(samples=10, loss=1.0, added={"cross": [importance]}, intervals={"cross": [known]})
    return make_examination(probes, worth, task="test", seed=0)


def test_a_head_on_relevant_inputs() -> None:
    result = _examined("right")
    [head] = result.heads
    assert head.beyond_uniform.low > 0.3 and head.beyond_permuted.low > 0.2
    assert head.ranking.mean == pytest.approx(1) and head.ranking_permuted.high < 0.6
    sentence = head.sentence()
    # Fewer than 78 such sentences were tested with one wrong: too few for an error rate below 7 %.
    assert "more than with uniform attention; whether more than for another sample cannot be told;" in sentence
    assert "its ranking of the inputs agrees closely with the effect of replacing them (1.00, 1.00" in sentence
    assert result.uniform.mean == pytest.approx(3 / INPUTS)


def test_a_head_on_a_fixed_position() -> None:
    sentence = _examined("place", importance=0.001).heads[0].sentence()
    assert "it attends to fixed positions, independent of the input" in sentence


def test_a_uniform_head() -> None:
    [head] = _examined("blind").heads
    assert head.beyond_uniform.low < 0 < head.beyond_uniform.high
    sentence = head.sentence()
    assert ", not shown to be more than with uniform attention" in sentence
    assert "its ranking of the inputs is not shown to agree with the effect of replacing them" in sentence


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.06, 0.2, "switching it off raises the loss: +0.130 (+0.060 to +0.200)"),
        (-0.313, 0.313, "is not shown to change the loss: 0.000 (-0.313 to +0.313)"),
        (-6.0, -5.5, "switching it off lowers the loss: -5.750 (-6.000 to -5.500)"),
    ],
)
def test_the_interval_decides_what_a_sentence_claims(low: float, high: float, words: str) -> None:
    middle = (low + high) / 2
    known = Estimate(mean=middle, low=low, high=high)
    assert words in HeadFindings(layer="cross", head=0, importance=middle, interval=known).sentence()


def test_rankings_are_compared_by_paired_differences() -> None:
    """The intervals of both correlations overlap, and yet each sample's own correlation is larger."""
    own, another = Estimate(mean=0.6, low=0.5, high=0.7), Estimate(mean=0.5, low=0.4, high=0.6)
    beyond = Estimate(mean=0.1, low=0.05, high=0.15)
    head = HeadFindings(
        layer="cross", head=0, importance=0.0, ranking=own, ranking_permuted=another, ranking_beyond=beyond
    )
    assert "agrees in part with the effect of replacing them (0.60, 0.50 to 0.70)" in head.sentence()
    same = Estimate(mean=0.0, low=-0.05, high=0.05)
    head = HeadFindings(layer="cross", head=0, importance=0.0, ranking=own, ranking_beyond=same)
    assert "agrees, but not more than for another sample, with" in head.sentence()


def test_ranks_of_small_values_are_not_tied() -> None:
    tiny = 1e-7 * np.array([[1.0, 4.0, 2.0, 3.0]])
    assert correlation(tiny, 1e7 * tiny) == pytest.approx(1)
    equal = np.array([[0.1, 0.1 + 1e-9, 0.3, 0.2]])  # rounding does not rank equal weights
    assert correlation(equal, np.array([[1.0, 1.0, 3.0, 2.0]])) == pytest.approx(1)


def test_unmeasured_figures_are_none_and_not_mentioned() -> None:
    """Equal weights have no ranks, and therefore no correlation, no interval and no sentence."""
    even, measure = np.full((1, STEPS, INPUTS), 1 / INPUTS), np.ones((STEPS, INPUTS))
    probes = [Probe(weights={"cross": even}, dependence=measure) for _ in range(4)]
    worth = HeadImportance(samples=10, loss=1.0, added={"cross": [0.2]})
    result = make_examination(probes, worth, task="test", seed=0)
    [head] = result.heads
    assert head.ranking is None and head.relevance is None
    assert head.sentence() == ("cross, head 0: switching it off changes the loss by +0.200 (interval unknown).")
    console = Console(width=110)
    with console.capture() as captured:
        console.print(result.details())
    assert captured.get().count("not measured") == 2 and result.json()["heads"][0]["ranking"] is None


def test_a_report_of_many_heads_is_short() -> None:
    known = Estimate(mean=1.0, low=0.9, high=1.1)
    layers = [f"decoder.{number}.self_attention" for number in range(12)]
    worth = HeadImportance(samples=10, loss=1.0, added={layer: [1.0] * 12 for layer in layers})
    result = make_examination([], worth, task="many", seed=0)
    heads = [replace(head, interval=known) for head in result.heads]
    verdicts: Any = {layer: ["needed", "backup", "opposes", "not needed"] * 3 for layer in layers}
    partners = {layer: ["", "decoder.0.self_attention 1", "decoder.0.self_attention 2", ""] * 3 for layer in layers}
    needs = [f"Whether the model needs {layer} cannot be told: only 4 inputs." for layer in layers]
    result = replace(result, heads=heads, verdicts=verdicts, partners=partners, needs=needs, unanswered=needs)
    lines = str(result).splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= 80
    assert any("1 for decoder.0.self_attention 1" in line for line in lines)


def test_rank_correlation_of_a_worked_example() -> None:
    """For ranks 1 2 3 4 and 2 1 4 3, the correlation is 1 - 6 · 4 / (4 · 15) = 0.6; tied values have equal ranks."""
    assert correlation(np.array([[0.1, 0.2, 0.3, 0.4]]), np.array([[20.0, 10, 40, 30]])) == pytest.approx(0.6)
    assert correlation(np.array([[1.0, 1, 2]]), np.array([[5.0, 5, 7]])) == pytest.approx(1.0)
    assert np.isnan(correlation(np.ones((1, 3)), np.array([[1.0, 2, 3]])))


@given(arrays(np.float64, (2, 6), elements=st.floats(0, 1, width=16)))
def test_rank_correlation_depends_on_ranks_only(values: np.ndarray) -> None:
    result = correlation(values, values**3 + 5)
    assert np.isnan(result) or -1 - 1e-9 <= result <= 1 + 1e-9
    reversed_ = correlation(values, -values)
    assert np.isnan(reversed_) or reversed_ == pytest.approx(-1)


def test_a_run_is_examined_and_saved(trained: regard.AnswerRun, tmp_path: Path) -> None:
    result = trained.examine(samples=12)
    stored = json.loads(result.save(tmp_path / "examined.json").read_text())
    assert [(head["layer"], head["head"]) for head in stored["heads"]] == [("cross", 0), ("cross", 1)]
    assert stored["words"] == result.sentences and stored["samples"] == 12
    assert trained.examine(samples=12) == result
    assert "too narrow for 95 %" in str(result)
    assert "95 % interval over the samples" in str(trained.examine(samples=50))
    report = trained.test(samples=5000)
    assert report.relevance is not None
    # The values are close but not equal: the examination uses fewer samples, and weights all samples equally.
    for head, share in zip(result.heads, report.relevance.heads, strict=True):
        assert head.relevance is not None and head.relevance.mean == pytest.approx(share, abs=0.1)


def test_a_run_with_a_known_alignment(translator: regard.PairRun) -> None:
    result = translator.examine(samples=10)
    assert set(result.alignment_error) == {"decoder.cross"} and result.uniform is not None
    rate = result.alignment_error["decoder.cross"]
    assert rate.low is not None and rate.high is not None and 0 <= rate.low < rate.value < rate.high <= 1
    assert any("to a symbol's origin" in sentence for sentence in result.sentences)


def test_a_run_on_text_has_no_relevance(german: regard.TranslationRun) -> None:
    result = german.examine(samples=6)
    assert result.uniform is None and result.heads[0].relevance is None
    assert {(head.layer, head.head) for head in result.heads} == {("decoder.0.cross", 0), ("decoder.0.cross", 1)}
    assert set(result.importance.added) == {
        *("encoder.0.self_attention", "encoder.1.self_attention"),
        *("decoder.0.self_attention", "decoder.0.cross"),
    }


def test_without_attention(tmp_path: Path) -> None:
    run = regard.train("counting", model="pooling", pooling="max", hidden=4, steps=1, savepath=tmp_path, progress=False)
    with pytest.raises(regard.InputError, match="the model has no heads"):
        run.examine(samples=2)


def test_a_report_page(trained: regard.AnswerRun, tmp_path: Path) -> None:
    """The page contains all numbers of the tables, opens offline and links to the explorer."""
    result = trained.examine(samples=12)
    path = result.to_html(tmp_path / "page.html", explorer="http://127.0.0.1:1/")
    text = path.read_text(encoding="utf-8")
    assert result.roles is not None and len(result.roles.heads) == 4
    for sentence in result.sentences:
        assert html.escape(sentence) in text
    relevance = result.heads[0].relevance
    assert relevance is not None and relevance.percent in text and str(result.heads[1].ranking) in text
    assert text.count("data:image/svg+xml;base64,") == 8 and begins_with_picture(text)  # four for each figure
    assert 'href="http://127.0.0.1:1/#layer=cross&amp;head=1"' in text
    assert not re.search(r"(?:src|href)=\"(?!data:|http://127)", text)


def test_a_report_by_command(
    command: Callable[..., tuple[int, str, str]], trained: regard.AnswerRun, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    status, out, err = command("examine", trained.folder, "--samples", "10", "--html", path)
    (trained.folder / "examined.json").unlink()
    assert (status, err) == (0, "") and f"Saved {path}" in out
    report = out.partition("Saved")[0].rstrip().splitlines()
    assert len(report) <= 25 and max(map(len, report)) <= 80
    assert out.count("Wrong of 100") <= 1 and "regard examine --all" in out
    status, everything, err = command("examine", trained.folder, "--samples", "10", "--all")
    assert (status, err) == (0, "") and "What each head attends to" in everything and len(everything) > 2 * len(out)
    assert "What the attention of signal2 means" in path.read_text(encoding="utf-8")


@pytest.fixture
def run(trained: regard.AnswerRun, tmp_path: Path) -> RunFolder:
    """A copy of a run."""
    return RunFolder(Path(shutil.copytree(trained.folder, tmp_path / "signal2")))


def test_loads_what_was_saved(trained: regard.AnswerRun, run: RunFolder) -> None:
    result = trained.examine(samples=4)
    file = result.save(run.path / "examined.json")
    os.utime(file, (0, 0))  # copies may have an old date
    loaded = examined_facts(run)
    assert loaded["examined"] == {"cross": [head.sentence() for head in result.heads]}
    assert loaded["importance"] == importance_by_layer(result.importance)
    assert loaded["roles"] == ({} if result.roles is None else result.roles.by_layer())
    Checkpoint(step=13, weights=trained.model.state_dict()).save(run)  # training went on
    assert not any(examined_facts(run).values())


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 10**5])
def test_refuses_a_damaged_file(run: RunFolder, content: str) -> None:
    (run.path / "examined.json").write_text(content)
    with pytest.raises(regard.InputError, match="is damaged: .*; delete the file, or examine the run again"):
        examined_facts(run)


def test_refuses_an_edited_file_and_that_of_another_run(
    trained: regard.AnswerRun, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    file = trained.examine(samples=4).save(run.path / "examined.json")
    stored = json.loads(file.read_text())
    changed = r"examined\.json: the file has changed since it was written; delete the file"
    file.write_text(json.dumps({**stored, "words": ["the head is worth nothing"]}))
    with pytest.raises(regard.InputError, match=changed):
        examined_facts(run)
    del stored["digest"]
    file.write_text(json.dumps(stored))
    with pytest.raises(regard.InputError, match=changed):
        regard.load(run.path).about()
    file.write_text(json.dumps(add_digest({**stored, "of": {**stored["of"], "config": "another"}})))
    with pytest.raises(regard.InputError, match=r"examined\.json: it belongs to another run; delete the file"):
        examined_facts(run)
    assert "it belongs to another run; the file is used unchanged" not in capsys.readouterr().err
    examined_facts(RunFolder(run.path, trust_edited=True))
    assert "it belongs to another run; the file is used unchanged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"heads": [1], "words": ["a"], "importance": {"added": {"a": 1}}},
        {"heads": 1, "words": 2, "importance": {"added": {"a": ["b"]}}},
    ],
)
def test_ignores_content_of_another_version(run: RunFolder, content: dict[str, object]) -> None:
    run.write_derived("examined.json", content)
    assert not any(examined_facts(run).values())
    (run.path / "examined.json").unlink()
    assert not any(examined_facts(run).values())


# Probes of samples: weights, and the effect of replacing inputs.


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
