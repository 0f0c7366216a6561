"""A classifier of translations: good, or one of the kinds of fault (multinomial logistic regression).

    log-odds of kind k against good = w_k . (x - mean) / scale + b_k
    doubt = 1 - P(good | x)

Every class has the same total weight, so the doubt is the probability of a fault if each kind were as frequent as
good translations. Real faults are rarer: the doubt ranks translations, and a threshold turns it into a warning.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

GOOD = "good"
PENALTY = 1e-3
"""Weight of the sum of squares in the loss."""
LARGEST = 8.0
"""Features are clipped to this number of standard deviations of good translations."""


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """The fitted classifier."""

    kinds: tuple[str, ...]
    """Kinds of fault, K."""
    mean: np.ndarray
    """(F,): means of the features of good translations."""
    scale: np.ndarray
    """(F,): standard deviations of the features of good translations."""
    weights: np.ndarray
    """(K, F + 1): weights of the features, and the constant."""

    def log_odds(self, features: np.ndarray) -> np.ndarray:
        """Return the log-odds (N, K) of each kind of fault against good, for features (N, F)."""
        odds: np.ndarray = _standardize(features, self.mean, self.scale) @ self.weights.T
        return odds

    def doubt(self, features: np.ndarray) -> np.ndarray:
        """Return the log-odds (N,) of any fault against good, for features (N, F)."""
        odds: np.ndarray = np.logaddexp.reduce(self.log_odds(features), axis=1)
        return odds

    def contributions(self, features: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        """Return what each feature of translations (N, F) adds to the log-odds of their kinds (N,): (N, F)."""
        parts: np.ndarray = (_standardize(features, self.mean, self.scale) * self.weights[kinds])[:, :-1]
        return parts


def fit(features: np.ndarray, labels: Sequence[str], kinds: Sequence[str]) -> Classifier:
    """Fit the classifier to features (N, F) and labels (N,): `GOOD` or one of `kinds`."""
    from scipy.optimize import minimize

    names = np.array(labels)
    good = features[names == GOOD]
    scale = good.std(0)
    scale[scale < 1e-6] = 1.0
    mean = good.mean(0)
    inputs = _standardize(features, mean, scale)
    classes = (GOOD, *kinds)
    truth = np.array([classes.index(name) for name in names])
    counts = np.bincount(truth, minlength=len(classes))
    weight = 1 / (counts[truth] * len(classes))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        table = flat.reshape(len(kinds), -1)
        scores = np.concatenate([np.zeros((len(inputs), 1)), inputs @ table.T], axis=1)
        log_probabilities = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        error = np.exp(log_probabilities)
        error[np.arange(len(truth)), truth] -= 1
        gradient = (error[:, 1:] * weight[:, None]).T @ inputs
        penalized = table.copy()
        penalized[:, -1] = 0
        value = -(weight * log_probabilities[np.arange(len(truth)), truth]).sum() + PENALTY * (penalized**2).sum()
        return float(value), (gradient + 2 * PENALTY * penalized).ravel()

    start = np.zeros(len(kinds) * inputs.shape[1])
    result = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    return Classifier(kinds=tuple(kinds), mean=mean, scale=scale, weights=result.x.reshape(len(kinds), -1))


def _standardize(features: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return standardized features (N, F + 1), the last of which is 1."""
    standard = np.clip((features - mean) / scale, -LARGEST, LARGEST)
    return np.concatenate([standard, np.ones((len(standard), 1))], axis=1)
