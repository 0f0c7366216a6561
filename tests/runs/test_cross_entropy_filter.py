"""Dual cross-entropy filter."""

import math

import pytest

import regard
from regard.runs.cross_entropy_filter import dual_score, dual_scores
from tests.german import sentences


def test_dual_score_by_hand() -> None:
    """Junczys-Dowmunt 2018, equation 1: exp(-(|2 - 1| + 1.5))."""
    assert dual_score(2.0, 1.0) == pytest.approx(math.exp(-2.5))
    assert dual_score(0.0, 0.0) == 1


def test_true_pair_scores_higher_than_a_wrong_one(german: regard.TranslationRun) -> None:
    pairs = sentences()[240:260]
    wrong = [(source, pairs[(place + 7) % len(pairs)][1]) for place, (source, _) in enumerate(pairs)]
    right, others = dual_scores(pairs, german), dual_scores(wrong, german)
    assert all(score is not None and 0 < score <= 1 for score in right + others)
    assert sum(one > other for one, other in zip(right, others, strict=True)) > 15  # type: ignore[operator]
    [first] = german.score(pairs[:1])
    assert right[0] == pytest.approx(math.exp(first.per_token), rel=1e-4)


def test_two_directions_and_too_long_texts(german: regard.TranslationRun) -> None:
    long = " ".join(["Hund"] * 2000)
    pairs = [sentences()[0], (long, "A dog."), ("Ein Hund.", long)]
    found = dual_scores(pairs, german, german)
    assert found[0] is not None and found[1:] == [None, None]
    there, back = german.score([pairs[0]]) + german.score([pairs[0][::-1]])
    assert found[0] == pytest.approx(dual_score(-there.per_token, -back.per_token), rel=1e-3)
