"""Examination: its figures on attention whose meaning is known, and the words for them."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import regard
from regard.interpret import HeadImportance, Probe
from regard.interpret.estimates import estimate
from regard.interpret.examination import correlation, make_examination

SAMPLES, STEPS, INPUTS = 60, 2, 8


def _examined(kind: str, importance: float = 0.5) -> Any:
    """Examine one head: `right` looks at what is relevant, `place` always at input 0, `blind` nowhere."""
    generator = np.random.default_rng(0)
    probes, relevance = [], []
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
        probes.append(Probe(weights={"cross": weights[None]}, gradient=measure, ablation=measure))
        relevance.append(relevant)
    worth = HeadImportance(samples=10, loss=1.0, added={"cross": [importance]})
    return make_examination(probes, relevance, worth, task="test", seed=0)


def test_a_head_that_looks_where_it_should() -> None:
    found = _examined("right")
    [head] = found.heads
    assert head.beyond_uniform.low > 0.3 and head.beyond_permuted.low > 0.2
    assert head.gradient.mean == pytest.approx(1) and head.gradient_permuted.high < 0.6
    said = head.sentence()
    assert "more than uniform attention and more than for another sample's inputs" in said
    assert "it ranks the inputs closely as gradients do (1.00)" in said
    assert found.uniform.mean == pytest.approx(3 / INPUTS)


def test_a_head_that_looks_at_a_place() -> None:
    said = _examined("place", importance=0.001).heads[0].sentence()
    assert "it looks at places, whatever stands there" in said and "the model hardly needs it" in said


def test_a_head_that_looks_nowhere() -> None:
    [head] = _examined("blind").heads
    assert head.beyond_uniform.low < 0 < head.beyond_uniform.high
    said = head.sentence()
    assert "which is not more than uniform attention would have" in said
    assert "its ranking of the inputs is not that of ablation" in said


def test_what_was_not_measured_is_unknown_and_nothing_is_said_of_it() -> None:
    """Weights that are alike everywhere have no ranks: no correlation, no interval, no sentence."""
    even, measure = np.full((1, STEPS, INPUTS), 1 / INPUTS), np.ones((STEPS, INPUTS))
    probes = [Probe(weights={"cross": even}, gradient=measure, ablation=measure) for _ in range(4)]
    worth = HeadImportance(samples=10, loss=1.0, added={"cross": [0.2]})
    found = make_examination(probes, None, worth, task="test", seed=0)
    [head] = found.heads
    assert head.gradient is None and head.ablation is None and head.relevance is None
    assert head.sentence() == "cross, head 0: switching it off adds 0.200 to the loss."
    assert str(found).count("not measured") == 4 and found.json()["heads"][0]["gradient"] is None


def test_intervals_hold_what_they_say() -> None:
    """Over many draws, about 95 of 100 intervals of the mean contain the true one."""
    generator = np.random.default_rng(1)
    draw = generator.multinomial(80, np.full(80, 1 / 80), size=1000)
    inside = 0
    for _ in range(300):
        found = estimate(generator.normal(3.0, 2.0, 80), draw)
        assert found is not None
        inside += found.low <= 3.0 <= found.high
    assert 0.90 <= inside / 300 <= 0.985


def test_samples_without_a_value_do_not_count() -> None:
    draw = np.random.default_rng(0).multinomial(3, np.full(3, 1 / 3), size=100)
    found = estimate([1.0, float("nan"), 1.0], draw)
    assert found is not None
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)
    assert estimate([float("nan")] * 3, draw) is None


def test_rank_correlation_of_a_worked_example() -> None:
    """Ranks 1 2 3 4 against 2 1 4 3: 1 - 6 · 4 / (4 · 15) = 0.6; ties share their rank."""
    assert correlation(np.array([[0.1, 0.2, 0.3, 0.4]]), np.array([[20.0, 10, 40, 30]])) == pytest.approx(0.6)
    assert correlation(np.array([[1.0, 1, 2]]), np.array([[5.0, 5, 7]])) == pytest.approx(1.0)
    assert np.isnan(correlation(np.ones((1, 3)), np.array([[1.0, 2, 3]])))


@given(arrays(np.float64, (2, 6), elements=st.floats(0, 1, width=16)))
def test_rank_correlation_knows_ranks_only(values: np.ndarray) -> None:
    found = correlation(values, values**3 + 5)
    assert np.isnan(found) or -1 - 1e-9 <= found <= 1 + 1e-9
    reversed_ = correlation(values, -values)
    assert np.isnan(reversed_) or reversed_ == pytest.approx(-1)


def test_a_run_is_examined_and_saved(trained: regard.AnswerRun, tmp_path: Path) -> None:
    found = trained.examine(samples=12)
    stored = json.loads(found.save(tmp_path / "examined.json").read_text())
    assert [(each["layer"], each["head"]) for each in stored["heads"]] == [("cross", 0), ("cross", 1)]
    assert stored["words"] == found.sentences and stored["samples"] == 12
    assert trained.examine(samples=12) == found
    assert "too narrow for 95 %: ask 50 or more" in str(found)
    assert "mean (95 % interval over the samples)" in str(trained.examine(samples=50))
    report = trained.test(samples=5000)
    assert report.relevance is not None
    # Of fewer samples, and of each sample alike: near, not equal.
    for head, share in zip(found.heads, report.relevance.heads, strict=True):
        assert head.relevance is not None and head.relevance.mean == pytest.approx(share, abs=0.1)


def test_a_run_with_a_known_alignment(translator: regard.PairRun) -> None:
    found = translator.examine(samples=10)
    assert set(found.alignment_error) == {"decoder.cross"} and found.uniform is not None
    assert 0 <= found.alignment_error["decoder.cross"] <= 1
    assert any("what a symbol was made from" in each for each in found.sentences)


def test_a_run_on_text_knows_no_relevance(german: regard.TranslationRun) -> None:
    found = german.examine(samples=6)
    assert found.uniform is None and found.heads[0].relevance is None
    assert {(each.layer, each.head) for each in found.heads} == {("decoder.0.cross", 0), ("decoder.0.cross", 1)}
    assert set(found.importance.added) == {
        *("encoder.0.self_attention", "encoder.1.self_attention"),
        *("decoder.0.self_attention", "decoder.0.cross"),
    }


def test_without_attention(tmp_path: Path) -> None:
    run = regard.train(
        "counting", model="pooling", pooling="max", hidden=4, steps=1, savepath=tmp_path, progress=False
    )
    with pytest.raises(regard.InputError, match="the model has no heads"):
        run.examine(samples=2)


def test_a_report_page(trained: regard.AnswerRun, tmp_path: Path) -> None:
    """It has every figure of the tables, opens offline, and leads into the explorer."""
    found = trained.examine(samples=12)
    path = found.to_html(tmp_path / "page.html", explorer="http://127.0.0.1:1/")
    text = path.read_text(encoding="utf-8")
    assert found.roles is not None and len(found.roles.heads) == 4
    for each in found.sentences:
        assert html.escape(each) in text
    relevance = found.heads[0].relevance
    assert relevance is not None and relevance.percent in text and str(found.heads[1].gradient) in text
    assert text.count("data:image/svg+xml;base64,") == 4  # light and dark
    assert 'href="http://127.0.0.1:1/#layer=cross&amp;head=1"' in text
    assert not re.search(r"(?:src|href)=\"(?!data:|http://127)", text)


def test_a_report_by_command(
    command: Callable[..., tuple[int, str, str]], trained: regard.AnswerRun, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    status, out, err = command("examine", trained.folder, "--samples", "10", "--html", path)
    (trained.folder / "examined.json").unlink()
    assert (status, err) == (0, "") and "What each head does" in out and f"Saved {path}" in out
    assert "What the attention of signal2 means" in path.read_text(encoding="utf-8")
