"""Head importance, and pruning by it."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.attention import MultiHeadAttention, intervene, keep_heads
from regard.evaluation import fresh_batches
from regard.runs import prune
from regard.streams import generator_of
from regard.training import RunFolder


def test_importance_is_the_loss_without_the_head(trained: regard.AnswerRun) -> None:
    found = trained.importance(samples=50)
    [(inputs, targets, _)] = fresh_batches(trained.task, 50, generator_of(0, "importance"))

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
        from regard.exchange.ctranslate2 import export_ctranslate2

        export_ctranslate2(prune(german, 1, tmp_path / "g").run, tmp_path / "e")  # type: ignore[arg-type]


def test_a_pruned_run_cannot_be_resumed(trained: regard.AnswerRun, tmp_path: Path) -> None:
    smaller = prune(trained, 1, tmp_path / "signal2").run
    assert not RunFolder(smaller.folder).path.joinpath("trainer").exists()
    with pytest.raises(regard.InputError, match="the state of its training is missing"):
        regard.train("signal2", savepath=tmp_path, resume=True, progress=False)
