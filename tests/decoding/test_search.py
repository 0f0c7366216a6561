"""Greedy and beam search agree with exhaustive search, with each other, and with teacher forcing."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from regard.data.batch import collate
from regard.data.vocabulary import BOS, EOS
from regard.decoding.search import Hypothesis, beam_search, greedy_search, length_penalty, sample
from regard.errors import InputError
from regard.models.base import Seq2Seq
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from regard.models.transformer import Transformer, TransformerConfig

LETTERS = (4, 5, 6)
LONGEST = 4


def make(seed: int, scale: float = 3.0, **options: Any) -> Any:
    """Return a small model with diverse probable answers. Its vocabulary is `LETTERS` and the end symbol."""
    torch.manual_seed(seed)
    config = RecurrentConfig(hidden=8, embedding=4, **options)
    model = RecurrentSeq2Seq(config, source_symbols=7, target_symbols=7).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
        model.output.bias[EOS] -= 1.0  # otherwise the empty target wins too often
    return model


def make_transformer(seed: int) -> Any:
    """Return a small Transformer whose output layer has no bias."""
    torch.manual_seed(seed)
    config = TransformerConfig(hidden=8, heads=2, inner=8, dec_layers=1)
    model = Transformer(config, source_symbols=7, target_symbols=7, longest=9).double().eval()
    with torch.no_grad():
        model.target_embedding.weight.mul_(2.0)
    return model


@torch.no_grad()
def probability(model: Seq2Seq, source: Tensor, tokens: tuple[int, ...], *, ended: bool = True) -> float:
    """Return the log-probability of a target, computed with teacher forcing."""
    target = torch.tensor([[*tokens, EOS]]) if ended else torch.tensor([list(tokens)])
    target_in = torch.cat([torch.tensor([[BOS]]), target[:, :-1]], dim=1)
    logits = model(source, source != 0, target_in)
    return float(logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).sum())


def every_target(model: Seq2Seq, source: Tensor, alpha: float = 0.0) -> list[tuple[float, list[int]]]:
    """Return all targets of up to `LONGEST` tokens with their scores, best first."""
    found = []
    for length in range(LONGEST + 1):
        for tokens in itertools.product(LETTERS, repeat=length):
            score = probability(model, source, tokens) / length_penalty(length + 1, alpha)
            found.append((score, list(tokens)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("of", [make, make_transformer])
def test_wide_beam_finds_the_best_target(of: Callable[[int], Seq2Seq], seed: int, alpha: float) -> None:
    model = of(seed)
    source = collate([[4, 5, 6]])
    best = every_target(model, source, alpha)
    [found] = beam_search(model, source, source != 0, width=400, max_len=LONGEST, alpha=alpha, n_best=5)
    assert [each.tokens for each in found] == [tokens for _, tokens in best[:5]]
    for each, (score, _) in zip(found, best[:5], strict=True):
        assert each.finished and each.score == pytest.approx(score, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_beam_scores_never_exceed_the_best_and_wide_beams_reach_it(seed: int) -> None:
    model, source = make(seed), collate([[5, 4]])
    best = every_target(model, source)[0][0]
    widths = (1, 2, 3, 5, 9, 27, 81, 324, 400)
    found = [beam_search(model, source, source != 0, width=width, max_len=LONGEST)[0][0] for width in widths]
    assert all(each.log_probability <= best + 1e-9 for each in found if each.finished)
    for each in found[-2:]:
        assert each.log_probability == pytest.approx(best, abs=1e-9)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    sources=st.lists(st.lists(st.sampled_from(LETTERS), max_size=5), min_size=1, max_size=4),
    score=st.sampled_from(["none", "general", "additive", "transformer"]),
    max_len=st.integers(0, 6),
    alpha=st.sampled_from([0.0, 1.0]),
)
def test_a_beam_of_one_is_greedy_search(
    seed: int, sources: list[list[int]], score: str, max_len: int, alpha: float
) -> None:
    model = make_transformer(seed) if score == "transformer" else make(seed, score=score)
    source = collate(sources)
    greedy = greedy_search(model, source, source != 0, max_len=max_len)
    beam = beam_search(model, source, source != 0, width=1, max_len=max_len, alpha=alpha)
    for one, [other] in zip(greedy, beam, strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)


@pytest.mark.parametrize("width", [1, 4])
def test_log_probabilities_equal_teacher_forcing(width: int) -> None:
    model, source = make(3), collate([[4, 4, 5]])
    [found] = beam_search(model, source, source != 0, width=width, max_len=3, n_best=width)
    for each in found:
        expected = probability(model, source, tuple(each.tokens), ended=each.finished)
        assert each.log_probability == pytest.approx(expected, abs=1e-6)
    greedy = greedy_search(model, source, source != 0, max_len=3)[0]
    expected = probability(model, source, tuple(greedy.tokens), ended=greedy.finished)
    assert greedy.log_probability == pytest.approx(expected, abs=1e-6)


def test_n_best_are_distinct_and_ordered() -> None:
    model, source = make(1), collate([[4, 5]])
    [found] = beam_search(model, source, source != 0, width=8, max_len=5, n_best=8)
    assert len({tuple(each.tokens) for each in found}) == len(found) == 8
    ranks = [(not each.finished, -each.score) for each in found]
    assert ranks == sorted(ranks)


def test_unfinished_targets_are_cut_and_marked() -> None:
    model = make(0)
    with torch.no_grad():
        model.output.bias[EOS] = -1e4
    source = collate([[4, 5]])
    for found in (
        greedy_search(model, source, source != 0, max_len=3)[0],
        beam_search(model, source, source != 0, width=3, max_len=3)[0][0],
    ):
        assert len(found.tokens) == 3 and not found.finished


def test_search_stops_when_the_result_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(0)
    with torch.no_grad():
        model.output.bias[EOS] = 1e4
    steps: list[Tensor] = []
    step = model.step

    def counted(tokens: Tensor, state: Any) -> Any:
        steps.append(tokens)
        return step(tokens, state)

    monkeypatch.setattr(model, "step", counted)
    source = collate([[4, 5], [6]])
    assert greedy_search(model, source, source != 0, max_len=100)[0] == Hypothesis(
        tokens=[], log_probability=0.0, score=0.0, finished=True
    )
    assert len(steps) == 1
    beam_search(model, source, source != 0, width=4, max_len=100)
    assert len(steps) == 2


def test_finished_sources_take_no_more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = make(5), collate([[4, 5, 6], [6], [], [5, 5]])
    alone = [greedy_search(model, row[None], row[None] != 0, max_len=9)[0] for row in source]
    rows: list[int] = []
    step = model.step

    def counted(tokens: Tensor, state: Any) -> Any:
        rows.append(len(tokens))
        return step(tokens, state)

    monkeypatch.setattr(model, "step", counted)
    greedy_search(model, source, source != 0, max_len=9)
    assert sum(rows) == sum(min(len(each.tokens) + 1, 10) for each in alone)


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("begin", [BOS, -1], ids=["later step", "first step"])
def test_probabilities_that_are_not_finite_are_an_error(begin: int, scored: bool) -> None:
    model, source = make(0), collate([[4]])
    embedding = [module for module in model.modules() if isinstance(module, nn.Embedding)][-1]  # the target embedding
    with torch.no_grad():  # the first step reads only BOS
        embedding.weight[torch.arange(len(embedding.weight)) != begin] = float("nan")
    for width in (2, 3):
        with pytest.raises(InputError, match="probabilities are not finite"):
            beam_search(model, source, source != 0, max_len=3, width=width)
    with pytest.raises(InputError, match="probabilities are not finite"):
        greedy_search(model, source, source != 0, max_len=3, scored=scored)
    with pytest.raises(InputError, match="probabilities are not finite"):
        sample(model, source, source != 0, max_len=3, temperature=1.0, seeds=[0])
