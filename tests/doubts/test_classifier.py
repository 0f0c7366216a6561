"""The classifier is a multinomial logistic regression."""

import numpy as np
import pytest

from regard.doubts.classifier import GOOD, PENALTY, fit
from regard.statistics import auroc


def _data(generator: np.random.Generator) -> tuple[np.ndarray, list[str]]:
    labels = [GOOD] * 60 + ["a"] * 40 + ["b"] * 20
    centers = {GOOD: (0.0, 0.0, 0.0), "a": (2.0, 0.0, 0.0), "b": (0.0, -2.0, 0.0)}
    return np.array([generator.normal(centers[label]) for label in labels]), labels


def test_the_loss_is_smallest() -> None:
    features, labels = _data(np.random.default_rng(0))
    classifier = fit(features, labels, ("a", "b"))
    classes = [GOOD, "a", "b"]
    counts = {name: labels.count(name) for name in classes}

    def loss(weights: np.ndarray) -> float:
        total = PENALTY * float((weights[:, :-1] ** 2).sum())
        for row, label in zip(features, labels, strict=True):
            standard = [*np.clip((row - classifier.mean) / classifier.scale, -8, 8), 1.0]
            scores = [0.0, *(float(np.dot(kind, standard)) for kind in weights)]
            probability = np.exp(scores[classes.index(label)]) / np.exp(scores).sum()
            total -= float(np.log(probability)) / counts[label] / len(classes)
        return total

    best = loss(classifier.weights)
    for place in np.ndindex(classifier.weights.shape):
        for step in (-0.05, 0.05):
            moved = classifier.weights.copy()
            moved[place] += step
            assert loss(moved) > best


def test_doubt_and_contributions_agree_with_the_log_odds() -> None:
    features, labels = _data(np.random.default_rng(1))
    classifier = fit(features, labels, ("a", "b"))
    odds = classifier.log_odds(features)
    assert np.allclose(classifier.doubt(features), np.log(np.exp(odds).sum(1)))
    kinds = np.array([1, 0])
    parts = classifier.contributions(features[3:5], kinds)
    expected = odds[[3, 4], kinds] - classifier.weights[kinds, -1]
    assert parts.shape == (2, 3) and parts.sum(1) == pytest.approx(expected)


def test_a_constant_feature_has_no_effect() -> None:
    features, labels = _data(np.random.default_rng(2))
    features[:, 2] = 7.0
    classifier = fit(features, labels, ("a", "b"))
    assert np.isfinite(classifier.log_odds(features)).all()
    assert classifier.weights[:, 2] == pytest.approx(0, abs=1e-6)


def test_auroc_counts_pairs() -> None:
    generator = np.random.default_rng(3)
    faults, good = generator.integers(0, 5, 30).astype(float), generator.integers(0, 4, 20).astype(float)
    pairs = [(fault > other) + (fault == other) / 2 for fault in faults for other in good]
    truth = np.arange(50) < 30
    assert auroc(np.concatenate([faults, good]), truth) == pytest.approx(np.mean(pairs))
