"""Head importance, and pruning by it."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard.attention import MultiHeadAttention, intervene, keep_heads
from regard.evaluation import fresh_batches
from regard.interpret import Estimate, HeadImportance
from regard.runs import prune
from regard.streams import make_generator
from regard.training import RunFolder


def test_importance_is_the_loss_without_the_head(trained: regard.AnswerRun) -> None:
    found = trained.importance(samples=50)
    [(inputs, targets, _)] = fresh_batches(trained.task, 50, make_generator(0, "importance"))

    def loss() -> float:
        return F.cross_entropy(trained.model(inputs).flatten(0, 1), targets.flatten()).item()

    with torch.inference_mode():
        assert found.loss == pytest.approx(loss(), rel=1e-5)
        with intervene(trained.model, "cross", heads=[1]):
            assert found.loss + found.added["cross"][1] == pytest.approx(loss(), rel=1e-5)
    assert set(found.added) == {"encoder.0.self_attention", "cross"}
    ranked = found.ranked()
    assert ranked == sorted(ranked) and len(ranked) == 4


def test_kept_heads_do_what_they_did() -> None:
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
def test_heads_that_cannot_stay(heads: list[int]) -> None:
    with pytest.raises(regard.InputError, match="cannot stay"):
        keep_heads(MultiHeadAttention(8, 4), heads)
    with pytest.raises(regard.InputError, match="only be taken out of multi-head attention"):
        keep_heads(MultiHeadAttention(8, 4, groups=2), [0])


def test_a_pruned_run_is_a_run(trained: regard.AnswerRun, tmp_path: Path) -> None:
    report = prune(trained, 2, tmp_path / "smaller")
    smaller = regard.load(tmp_path / "smaller")
    assert isinstance(smaller, regard.AnswerRun) and len(report.removed) == 2
    assert report.parameters_after < report.parameters_before
    assert report.loss_after == pytest.approx(smaller.importance(samples=1000).loss)
    assert report.loss_before == pytest.approx(trained.importance(samples=1000).loss)
    # As if the heads were off in the run that was pruned.
    text = "BCCCBAABACCCA"
    from contextlib import ExitStack

    with ExitStack() as stack:
        for layer, head in report.removed:
            stack.enter_context(intervene(trained.model, layer, heads=[head]))
        without = trained.attend(text)
    assert smaller.attend(text).probabilities == pytest.approx(without.probabilities, abs=1e-5)
    assert smaller.metrics == trained.metrics and smaller.config.kept_heads


def test_pruning_a_pruned_run(german: regard.TranslationRun, tmp_path: Path) -> None:
    """Heads are called by their number in the whole model, whatever is left of it."""
    once = prune(german, 1, tmp_path / "once").run
    twice = prune(once, 1, tmp_path / "twice").run
    assert sum(map(len, twice.config.kept_heads.values())) == 4 * 2 - 2
    for layer, heads in twice.config.kept_heads.items():
        before = once.config.kept_heads.get(layer, [0, 1])
        assert set(heads) <= set(before)
    assert isinstance(twice, regard.TranslationRun)
    assert twice.translate(["Heute läuft der alte Hund."])[0]


def test_what_cannot_be_pruned(trained: regard.AnswerRun, german: regard.TranslationRun, tmp_path: Path) -> None:
    with pytest.raises(regard.InputError, match="heads 3 is out of range"):
        prune(trained, 3, tmp_path / "none")
    single = regard.train("counting", hidden=4, steps=1, savepath=tmp_path, progress=False)
    with pytest.raises(regard.InputError, match="no layer with two heads"):
        prune(single, 1, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(regard.InputError, match="is pruned: CTranslate2"):
        from regard.convert import export

        export(prune(german, 1, tmp_path / "g").run, tmp_path / "e")  # type: ignore[arg-type]


def test_a_pruned_run_cannot_be_resumed(trained: regard.AnswerRun, tmp_path: Path) -> None:
    smaller = prune(trained, 1, tmp_path / "signal2").run
    assert not RunFolder(smaller.folder).path.joinpath("trainer").exists()
    with pytest.raises(regard.InputError, match="the state of its training is missing"):
        regard.train("signal2", savepath=tmp_path, resume=True, progress=False)


def test_each_head_has_an_interval_over_the_samples(trained: regard.AnswerRun) -> None:
    found = trained.importance(samples=60)
    inputs = trained.unseen(60, 0, purpose="importance")
    with regard.intervene(trained.model, "cross", heads=[0]):
        off = trained.losses(inputs)
    base = trained.losses(inputs)
    assert found.loss == pytest.approx(base[:, 0].sum() / base[:, 1].sum())
    each = (off - base)[:, 0] / base[:, 1]
    known = found.intervals["cross"][0]
    assert known is not None and known.mean == pytest.approx(found.added["cross"][0])
    error = each.std(ddof=1) / len(each) ** 0.5
    assert known.high - known.low == pytest.approx(2 * 2.0 * error, rel=0.15)  # Student's t of 59 is 2.001


def test_an_interval_weighs_inputs_by_their_outputs() -> None:
    from regard.interpret.importance import _interval

    outputs = np.array([1.0, 3.0, 5.0, 2.0] * 10)
    found = _interval(0.25 * outputs, outputs, 0)  # every output has as much more: no flag varies
    assert found is not None and (found.low, found.mean, found.high) == pytest.approx((0.25, 0.25, 0.25))
    assert _interval(np.ones(1), np.ones(1), 0) is None
    random = np.random.default_rng(0)
    many = _interval(random.normal(0.5, 1, 5000), np.ones(5000), 0)
    assert many is not None and many.high - many.low == pytest.approx(2 * 1.96 / 5000**0.5, rel=0.15)


def test_what_may_be_nothing_stands_in_brackets() -> None:
    sure, unsure = Estimate(mean=0.2, low=0.1, high=0.3), Estimate(mean=-0.01, low=-0.03, high=0.01)
    found = HeadImportance(
        samples=9, loss=1.0, added={"cross": [0.2, -0.01]}, intervals={"cross": [sure, unsure]}
    )
    said = str(found)
    assert (
        "+0.2000" in said and "(+0.2000)" not in said and "(-0.0100)" in said and "0 is in the interval" in said
    )
    assert found.json()["intervals"]["cross"][0]["low"] == 0.1
