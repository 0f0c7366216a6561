"""Head importance and pruning."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard.attention.interventions import intervene
from regard.attention.multihead import MultiHeadAttention, keep_heads
from regard.evaluation.accuracy import fresh_batches
from regard.interpret.estimates import Estimate
from regard.interpret.importance import HeadImportance
from regard.runs.derived_runs import prune
from regard.streams import make_generator
from regard.training.run_folder import RunFolder


def test_importance_is_the_loss_increase_without_the_head(trained: regard.AnswerRun) -> None:
    result = trained.importance(samples=50)
    [(inputs, targets, _)] = fresh_batches(trained.task, 50, make_generator(0, "importance"))

    def loss() -> float:
        return F.cross_entropy(trained.model(inputs).flatten(0, 1), targets.flatten()).item()

    with torch.inference_mode():
        assert result.loss == pytest.approx(loss(), rel=1e-5)
        with intervene(trained.model, "cross", heads=[1]):
            assert result.loss + result.added["cross"][1] == pytest.approx(loss(), rel=1e-5)
    assert set(result.added) == {"encoder.0.self_attention", "cross"}
    ranked = result.ranked()
    assert ranked == sorted(ranked) and len(ranked) == 4


def test_keep_heads_preserves_the_remaining_heads() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 4, bias=True, rotary=False)
    states = torch.randn(2, 5, 12)
    holder = torch.nn.ModuleDict({"layer": layer})
    with intervene(holder, "layer", heads=[0, 2]):
        expected = layer(states)
    keep_heads(layer, [1, 3])
    torch.testing.assert_close(layer(states), expected)
    assert layer.heads == 2 and layer.query.weight.shape == (6, 12)


@pytest.mark.parametrize("heads", [[], [0, 0], [1, 0], [4], [-1]])
def test_keep_heads_refuses_invalid_heads(heads: list[int]) -> None:
    with pytest.raises(regard.InputError, match="cannot stay|is empty"):
        keep_heads(MultiHeadAttention(8, 4), heads)
    with pytest.raises(regard.InputError, match="only multi-head attention in which each head has its own keys"):
        keep_heads(MultiHeadAttention(8, 4, groups=2), [0])


def test_a_pruned_run_can_be_loaded(trained: regard.AnswerRun, tmp_path: Path) -> None:
    report = prune(trained, 2, tmp_path / "smaller")
    smaller = regard.load(tmp_path / "smaller")
    assert isinstance(smaller, regard.AnswerRun) and len(report.removed) == 2
    assert report.parameters_after < report.parameters_before
    assert report.loss_after == pytest.approx(smaller.importance(samples=1000).loss)
    assert report.loss_before == pytest.approx(trained.importance(samples=1000).loss)
    # Removed heads and disabled heads give the same output.
    text = "BCCCBAABACCCA"
    from contextlib import ExitStack

    with ExitStack() as stack:
        for layer, head in report.removed:
            stack.enter_context(intervene(trained.model, layer, heads=[head]))
        without = trained.attend(text)
    assert smaller.attend(text).probabilities == pytest.approx(without.probabilities, abs=1e-5)
    assert smaller.metrics == trained.metrics and smaller.config.kept_heads


def test_pruning_a_pruned_run(german: regard.TranslationRun, tmp_path: Path) -> None:
    """Heads keep their numbers from the whole model."""
    once = prune(german, 1, tmp_path / "once").run
    twice = prune(once, 1, tmp_path / "twice").run
    assert sum(map(len, twice.config.kept_heads.values())) == 4 * 2 - 2
    for layer, heads in twice.config.kept_heads.items():
        before = once.config.kept_heads.get(layer, [0, 1])
        assert set(heads) <= set(before)
    assert isinstance(twice, regard.TranslationRun)
    assert twice.translate(["Heute läuft der alte Hund."])[0]


def test_refuses_models_that_cannot_be_pruned(
    trained: regard.AnswerRun, german: regard.TranslationRun, tmp_path: Path
) -> None:
    with pytest.raises(regard.InputError, match="heads 3 is out of range"):
        prune(trained, 3, tmp_path / "none")
    single = regard.train("counting", hidden=4, steps=1, savepath=tmp_path, progress=False)
    with pytest.raises(regard.InputError, match="no layer with two or more heads"):
        prune(single, 1, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(regard.InputError, match="is pruned: CTranslate2"):
        from regard.convert.exchange import export

        export(prune(german, 1, tmp_path / "g").run, tmp_path / "e")  # type: ignore[arg-type]


def test_a_pruned_run_cannot_be_resumed(trained: regard.AnswerRun, tmp_path: Path) -> None:
    smaller = prune(trained, 1, tmp_path / "signal2").run
    assert not RunFolder(smaller.folder).path.joinpath("trainer").exists()
    with pytest.raises(regard.InputError, match="its training state is missing"):
        regard.train("signal2", savepath=tmp_path, resume=True, progress=False)


def test_each_head_has_an_interval_over_the_samples(trained: regard.AnswerRun) -> None:
    result = trained.importance(samples=60)
    inputs = trained.unseen(60, 0, purpose="importance")
    with regard.intervene(trained.model, "cross", heads=[0]):
        off = trained.losses(inputs)
    base = trained.losses(inputs)
    assert result.loss == pytest.approx(base[:, 0].sum() / base[:, 1].sum())
    increase = (off - base)[:, 0] / base[:, 1]
    known = result.intervals["cross"][0]
    assert known is not None and known.mean == pytest.approx(result.added["cross"][0])
    error = increase.std(ddof=1) / len(increase) ** 0.5
    assert known.high - known.low == pytest.approx(2 * 2.0 * error, rel=0.15)  # Student's t of 59 is 2.001


def test_an_interval_weighs_inputs_by_their_outputs() -> None:
    from regard.interpret.importance import _interval

    outputs = np.array([1.0, 3.0, 5.0, 2.0] * 10)
    result = _interval(0.25 * outputs, outputs, 0)  # the same increase for every output: no variance
    assert result is not None and (result.low, result.mean, result.high) == pytest.approx((0.25, 0.25, 0.25))
    assert _interval(np.ones(1), np.ones(1), 0) is None
    random = np.random.default_rng(0)
    many = _interval(random.normal(0.5, 1, 5000), np.ones(5000), 0)
    assert many is not None and many.high - many.low == pytest.approx(2 * 1.96 / 5000**0.5, rel=0.15)


def test_brackets_mark_intervals_that_include_0() -> None:
    sure, unsure = Estimate(mean=0.2, low=0.1, high=0.3), Estimate(mean=-0.01, low=-0.03, high=0.01)
    result = HeadImportance(samples=9, loss=1.0, added={"cross": [0.2, -0.01]}, intervals={"cross": [sure, unsure]})
    text = str(result)
    assert "+0.2000" in text and "(+0.2000)" not in text and "(-0.0100)" in text and "0 is inside the interval" in text
    assert result.json()["intervals"]["cross"][0]["low"] == 0.1
    single = dataclasses.replace(result, samples=1, intervals={"cross": [None, None]})
    assert "1 sample)" in str(single) and "a single sample has no intervals" in str(single)
