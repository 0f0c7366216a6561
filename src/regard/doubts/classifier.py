"""A classifier of translations: good, or one of the kinds of fault.

Each feature x has two inputs, its distance above and below the median m of good translations:

    above = clip((x - m) / a, 0, LARGEST)        a: distance from the median to the quantile of 97.5 %
    below = clip((m - x) / b, 0, LARGEST)        b: distance from the median to the quantile of 2.5 %
    log-odds of kind k against good = w_k . inputs + c_k, where w_k >= 0 (multinomial logistic regression)

Every class has the same total weight. The weights are not negative, so that an unusual value of a feature never
lowers the doubt. A fault that was not planted has at least the doubt that the log-probability alone gives it:

    combined = log sum_k v_k exp(log-odds of kind k) - log sum_k v_k
    doubt = sigmoid(max(combined, slope * -log-probability + constant))

v_k is the visibility of kind k. The line gives a log-probability the value of `combined` that HANDICAP times as
many good translations exceed, if the upper tenth of both is exponentially distributed. Real faults are rarer than
good translations: the doubt ranks translations, and a threshold turns it into a warning.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.statistics import auroc

GOOD = "good"
PENALTY = 1e-4
"""Weight of the sum of squares in the loss."""
LARGEST = 5.0
"""Largest input: distances from the median in units of the usual distance."""
ONE_SIDED = ("improbable", "least", "weakest", "uneven", "no_gain", "repeated", "copied", "reverse")
"""Features whose values below the median are no sign of a fault."""
TAIL = 0.1
"""Share of good translations that are taken as exponentially distributed."""
HANDICAP = 3
"""How many times rarer a log-probability must be than the combination that it exceeds. Such a rule for every
feature finds planted faults worse: many good translations have an unusual value of some feature."""
VISIBILITY = 4
"""The visibility of a kind is this power of 2 AUROC - 1. Without it, kinds that are hardly visible hide others:
any good translation may have them."""


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """The fitted classifier of the translations of one origin."""

    kinds: tuple[str, ...]
    """Kinds of fault, K."""
    probability: int
    """Index of the feature that is the negative log-probability."""
    usual: np.ndarray
    """(3, F): quantiles of 2.5, 50 and 97.5 % of the features of good translations."""
    scales: np.ndarray
    """(2, F): distance above and below the median that counts as 1."""
    weights: np.ndarray
    """(K, 2 F + 1): weights of the inputs, and the constant."""
    alone: np.ndarray
    """(2,): slope and constant of the log-odds from the negative log-probability alone."""
    centre: np.ndarray
    """(2, F): mean and standard deviation of the distances of good translations from the median."""

    def inputs(self, features: np.ndarray) -> np.ndarray:
        """Return the inputs (N, 2 F) of features (N, F)."""
        distances = features - self.usual[1]
        return np.concatenate([distances / self.scales[0], -distances / self.scales[1]], axis=1).clip(0, LARGEST)

    def kind_odds(self, features: np.ndarray) -> np.ndarray:
        """Return the log-odds (N, K) of each kind of fault against good, for features (N, F)."""
        odds: np.ndarray = self.inputs(features) @ self.weights[:, :-1].T + self.weights[:, -1]
        return odds

    def log_odds(self, features: np.ndarray) -> np.ndarray:
        """Return the log-odds (N,) of any fault against good, for features (N, F)."""
        combined = np.logaddexp.reduce(self.kind_odds(features), axis=1)
        odds: np.ndarray = np.maximum(combined, self.alone[0] * features[:, self.probability] + self.alone[1])
        return odds

    def shifts(self, features: np.ndarray) -> np.ndarray:
        """Return how far the features (N, F) are from the mean of good translations, in standard deviations."""
        above, below = np.split(self.inputs(features), 2, axis=1)
        shifts: np.ndarray = (above - below - self.centre[0]) / self.centre[1]
        return shifts

    def contributions(self, features: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        """Return what each feature of translations (N, F) adds to the log-odds of their kinds (N,): (N, F)."""
        parts: np.ndarray = (self.inputs(features) * self.weights[kinds, :-1]).reshape(len(kinds), 2, -1).sum(1)
        return parts


def fit(features: np.ndarray, labels: Sequence[str], kinds: Sequence[str], names: Sequence[str]) -> Classifier:
    """Fit the classifier to features (N, F) with `names` (F,), and labels (N,): `GOOD` or one of `kinds`."""
    classes = [GOOD, *kinds]
    truth = np.array([classes.index(name) for name in labels])
    good = features[truth == 0]
    low, median, high = usual = np.quantile(good, (0.025, 0.5, 0.975), axis=0)
    deviation = good.std(0)
    deviation[deviation < 1e-6] = 1.0
    fitted = Classifier(
        kinds=tuple(kinds),
        probability=names.index("improbable"),
        usual=usual,
        # A feature that is nearly always equal has a quantile at its median.
        scales=np.maximum([high - median, median - low], deviation / 2),
        weights=np.zeros((len(kinds), 2 * features.shape[1] + 1)),
        alone=np.array([0.0, -np.inf]),
        centre=np.array([np.zeros(len(median)), np.ones(len(median))]),
    )
    used = np.array([True] * len(names) + [name not in ONE_SIDED for name in names])
    weights = _fit_weights(fitted.inputs(features), truth, used)
    shifts = fitted.shifts(good)
    fitted = replace(fitted, weights=weights, centre=np.array([shifts.mean(0), shifts.std(0).clip(1e-6)]))
    odds, areas = fitted.kind_odds(features), []
    for kind in range(len(kinds)):
        rows = (truth == 0) | (truth == kind + 1)
        areas.append(auroc(odds[rows, kind], truth[rows] > 0) or 0)
    visibility = (2 * np.array(areas) - 1).clip(0.01) ** VISIBILITY
    weights[:, -1] += np.log(visibility / visibility.sum())
    values = np.column_stack([fitted.log_odds(good), good[:, fitted.probability]])
    begin = np.quantile(values, 1 - TAIL, axis=0)
    excess = ((values - begin).clip(0).mean(0) / TAIL).clip(1e-3)
    slope = excess[0] / excess[1]
    return replace(fitted, alone=np.array([slope, begin[0] - slope * begin[1] - excess[0] * math.log(HANDICAP)]))


def _fit_weights(inputs: np.ndarray, truth: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Return the weights (K, D + 1) of a logistic regression from inputs (N, D) and classes (N,) from 0 to K, of
    equal total weight. Only the constants (the last column) may be negative. `used` (D,): which inputs have a
    weight."""
    from scipy.optimize import minimize

    kinds, weight = int(truth.max()), 1 / np.bincount(truth)[truth] / (truth.max() + 1)
    extended, rows = np.column_stack([inputs, np.ones(len(inputs))]), np.arange(len(inputs))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        table = flat.reshape(kinds, -1)
        scores = np.column_stack([np.zeros(len(extended)), extended @ table.T])
        log_probabilities = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        error = np.exp(log_probabilities)
        error[rows, truth] -= 1
        penalized = table.copy()
        penalized[:, -1] = 0
        value = -(weight * log_probabilities[rows, truth]).sum() + PENALTY * (penalized**2).sum()
        gradient = (error[:, 1:] * weight[:, None]).T @ extended + 2 * PENALTY * penalized
        return float(value), gradient.ravel()

    bounds = ([(0, None if use else 0) for use in used] + [(None, None)]) * kinds
    start = np.zeros(len(bounds))
    result = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 2000})
    return np.asarray(result.x.reshape(kinds, -1))
