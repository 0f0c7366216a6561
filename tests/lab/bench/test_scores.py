"""AUROC of rankings against its definition, with ties, by level."""

import numpy as np
import pytest

from regard.statistics import auroc
from regard_lab.bench.bench import assign_letters
from regard_lab.bench.rankings import merge_truths, score_edges, score_heads, score_inputs


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_auroc_is_the_fraction_of_pairs_in_order(levels: int) -> None:
    random = np.random.default_rng(levels)
    for _ in range(50):
        scores = random.integers(levels, size=12) / levels
        truth = random.random(12) < 0.4
        if truth.any() and not truth.all():
            pairs = [(a, b) for a in scores[truth] for b in scores[~truth]]
            expected = float(np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs]))  # a tie: one half
            assert auroc(scores, truth) == pytest.approx(expected)
        else:
            assert auroc(scores, truth) is None


def test_infinite_scores_rank_and_nan_is_refused() -> None:
    assert auroc(np.array([-np.inf, 0.0, np.inf]), np.array([False, False, True])) == 1.0
    with pytest.raises(ValueError, match="NaN"):
        auroc(np.array([np.nan, 1.0]), np.array([True, False]))


def test_steps_with_one_class_are_left_out() -> None:
    scores = np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    truth = np.array([[False, False, True], [False, False, True], [True, True, True]])
    assert score_inputs(scores, truth) == 0.5  # the mean of a perfect and a reversed ranking
    assert score_inputs(scores[2:], truth[2:]) is None


def test_only_candidates_are_ranked() -> None:
    scores, truth = np.array([[9.0, 9.0], [0.0, 1.0]]), np.array([[True, False], [False, True]])
    assert score_inputs(scores, truth) == 0.75
    assert score_inputs(scores, truth, np.tri(2, dtype=bool)) == 1.0  # the first step has one candidate only


def test_heads_without_a_truth_are_left_out() -> None:
    scores = {"a": np.array([3.0, 9.0]), "b": np.array([1.0])}
    assert score_heads(scores, {"a": (True, None), "b": (False,)}) == 1.0
    assert score_heads(scores, {"a": (True, False)}) == 0.0
    assert score_heads(scores, {"a": (None, None)}) is None


def test_edges_outside_the_circuit_are_false() -> None:
    scores = {("inputs", "logits"): 1.0, ("inputs", "x"): 2.0, ("x", "logits"): 3.0}
    assert score_edges(scores, frozenset({("inputs", "x"), ("x", "logits")})) == 1.0
    assert score_edges(scores, frozenset({("inputs", "logits")})) == 0.0


def test_truths_that_differ_stay_apart() -> None:
    truths = {"needed": {"a": (False, False)}, "used": {"a": (True, True)}, "sufficient": {"a": (True, True)}}
    assert list(merge_truths(truths)) == ["needed", "used, sufficient"]


def test_methods_share_a_letter_unless_they_differ() -> None:
    random, names = np.random.default_rng(0), list("abcdefgh")
    for _ in range(30):
        pairs = {frozenset(pair) for pair in random.choice(names, (8, 2)) if pair[0] != pair[1]}
        letters = assign_letters(names, pairs)
        for first in names:
            for second in names:
                if first != second:
                    shared = set(letters[first]) & set(letters[second])
                    assert bool(shared) != (frozenset((first, second)) in pairs)
