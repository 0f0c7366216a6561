"""The classifier is a logistic regression whose doubt never falls when a feature becomes less usual."""

from dataclasses import replace

import numpy as np
import pytest

from regard_lab.doubts.calibration import GOOD, LARGEST, PENALTY, Classifier, _fit_weights, fit


def _data(generator: np.random.Generator) -> tuple[np.ndarray, list[str]]:
    labels = [GOOD] * 60 + ["a"] * 40 + ["b"] * 20
    centers = {GOOD: (0.0, 0.0, 0.0), "a": (2.0, 0.0, 0.0), "b": (-2.0, -2.0, 0.0)}
    return np.array([generator.normal(centers[label]) for label in labels]), labels


def _fit(features: np.ndarray, labels: list[str]) -> Classifier:
    return fit(features, labels, ("a", "b"), ("length", "copied", "improbable"))


def test_the_loss_is_smallest_and_no_weight_is_negative() -> None:
    features, labels = _data(np.random.default_rng(0))
    inputs = _fit(features, labels).inputs(features)
    truth = np.array([(GOOD, "a", "b").index(label) for label in labels])
    fitted = _fit_weights(inputs, truth, np.arange(6) != 4)
    assert fitted.shape == (2, 7) and (fitted[:, :-1] >= 0).all() and (fitted[:, :-1] == 0).any()

    def loss(weights: np.ndarray) -> float:
        total = PENALTY * float((weights[:, :-1] ** 2).sum())
        for row, kind in zip(inputs, truth, strict=True):
            scores = [0.0, *(float(np.dot(line, [*row, 1.0])) for line in weights)]
            total -= np.log(np.exp(scores[kind]) / np.exp(scores).sum()) / list(truth).count(kind) / 3
        return total

    best = loss(fitted)
    for place in np.ndindex(fitted.shape):
        for step in (-0.05, 0.05):
            moved = fitted.copy()
            moved[place] += step
            assert loss(moved) > best or place[1] == 4 or (place[1] < 6 and moved[place] < 0)


@pytest.mark.parametrize("seed", range(4))
def test_the_doubt_never_falls_away_from_the_median(seed: int) -> None:
    generator = np.random.default_rng(seed)
    features, labels = _data(generator)
    classifier = _fit(features, labels)
    points = generator.normal(scale=3, size=(50, 3))
    for feature in range(3):
        for side in (-1, 1):
            moved = np.repeat(points[None], 30, axis=0)
            distances = np.linspace(0, 3 * LARGEST, 30)[:, None]
            moved[:, :, feature] = classifier.usual[1, feature] + side * distances
            doubts = classifier.log_odds(moved.reshape(-1, 3)).reshape(30, 50)
            # A log-probability below the median is one that is usual: only the combination can see it.
            assert (np.diff(doubts, axis=0) >= -1e-9).all() or (feature == 2 and side == -1)


def test_a_value_below_the_median_of_a_one_sided_feature_is_no_sign_of_a_fault() -> None:
    features, labels = _data(np.random.default_rng(6))
    classifier = _fit(features, labels)
    assert (classifier.weights[:, 4:6] == 0).all() and (classifier.weights[:, 3] > 0).any()


def test_a_fault_that_was_not_planted_is_found_by_the_log_probability() -> None:
    features, labels = _data(np.random.default_rng(5))
    classifier = _fit(features, labels)
    silent = replace(classifier, weights=np.zeros_like(classifier.weights))
    improbable = np.column_stack([np.zeros((20, 2)), np.linspace(4, 40, 20)])
    for own in (classifier, silent):
        assert (own.log_odds(improbable) > own.log_odds(features[:60]).max()).all()
        assert (np.diff(own.log_odds(improbable)) > 0).all()


def test_contributions_agree_with_the_log_odds() -> None:
    features, labels = _data(np.random.default_rng(1))
    classifier = _fit(features, labels)
    odds = classifier.kind_odds(features)
    kinds = np.array([1, 0])
    parts = classifier.contributions(features[3:5], kinds)
    expected = odds[[3, 4], kinds] - classifier.weights[kinds, -1]
    assert parts.shape == (2, 3) and parts.sum(1) == pytest.approx(expected)


def test_a_constant_feature_has_no_effect() -> None:
    features, labels = _data(np.random.default_rng(2))
    features[:, 1] = 7.0
    classifier = _fit(features, labels)
    assert np.isfinite(classifier.log_odds(features)).all()
    assert classifier.weights[:, [1, 4]] == pytest.approx(0, abs=1e-6)


def test_shifts_are_standard_scores_of_good_translations() -> None:
    features, labels = _data(np.random.default_rng(4))
    shifts = _fit(features, labels).shifts(features[:60])
    assert shifts.mean(0) == pytest.approx(np.zeros(3)) and shifts.std(0) == pytest.approx(np.ones(3))
