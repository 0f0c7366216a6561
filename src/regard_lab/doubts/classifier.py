"""A classifier of translations: good, or one of the kinds of fault.

Each feature x has two inputs, its distance above and below the median m of good translations:

    above = clip((x - m) / a, 0, LARGEST)        a: distance from the median to the quantile of 97.5 %
    below = clip((m - x) / b, 0, LARGEST)        b: distance from the median to the quantile of 2.5 %
    log-odds of kind k against good = w_k . inputs + c_k, where w_k >= 0 (multinomial logistic regression)

Every class has the same total weight. The weights are not negative, so that an unusual value of a feature never
lowers the doubt. The log-probability has a further weight, because it also shows faults that were not planted:

    combined = log sum_k v_k exp(log-odds of kind k) - log sum_k v_k
    doubt = sigmoid(combined + FURTHER * s * (median log-probability - log-probability))

v_k is the visibility of kind k. s is the ratio of the standard deviations of good translations. Real faults are
rarer than good translations: the doubt ranks translations, and a threshold turns it into a warning.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.statistics import auroc

GOOD = "good"
PENALTY = 1e-4  # Weight of the sum of squares in the loss
LARGEST = 5.0  # Largest input: distances from the median in units of the usual distance
ONE_SIDED = ("improbable", "least", "weakest", "uneven", "no_gain", "repeated", "copied", "reverse")
"""Features whose values below the median are no sign of a fault."""
FURTHER = 0.5
"""Further weight of the log-probability. With less, some faults that were not planted (misspelled sources) have a
smaller AUROC than the log-probability alone; with more, planted faults of the source are found worse."""
VISIBILITY = 4
"""The visibility of a kind is this power of 2 AUROC - 1. Without it, kinds that are hardly visible hide others:
any good translation may have them."""


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """The fitted classifier of the translations of one origin."""

    kinds: tuple[str, ...]  # Kinds of fault, K
    probability: int  # Index of the feature that is the negative log-probability
    usual: np.ndarray  # (3, F): quantiles of 2.5, 50 and 97.5 % of the features of good translations
    scales: np.ndarray  # (2, F): distance above and below the median that counts as 1
    weights: np.ndarray  # (K, 2 F + 1): weights of the inputs, and the constant
    further: float  # Further weight of the negative log-probability
    centre: np.ndarray  # (2, F): mean and standard deviation of the distances of good translations from the median

    def inputs(self, features: np.ndarray) -> np.ndarray:
        distances = features - self.usual[1]
        return np.concatenate([distances / self.scales[0], -distances / self.scales[1]], axis=1).clip(0, LARGEST)

    def kind_odds(self, features: np.ndarray) -> np.ndarray:
        odds: np.ndarray = self.inputs(features) @ self.weights[:, :-1].T + self.weights[:, -1]
        return odds

    def log_odds(self, features: np.ndarray) -> np.ndarray:
        combined = np.logaddexp.reduce(self.kind_odds(features), axis=1)
        distance = features[:, self.probability] - self.usual[1, self.probability]
        odds: np.ndarray = combined + self.further * distance
        return odds

    def shifts(self, features: np.ndarray) -> np.ndarray:
        above, below = np.split(self.inputs(features), 2, axis=1)
        shifts: np.ndarray = (above - below - self.centre[0]) / self.centre[1]
        return shifts

    def contributions(self, features: np.ndarray, kinds: np.ndarray) -> np.ndarray:
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
        further=0.0,
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
    column = fitted.probability
    return replace(fitted, further=float(FURTHER * fitted.log_odds(good).std() / deviation[column]))


def _fit_weights(inputs: np.ndarray, truth: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Return the weights (K, D + 1) of a logistic regression from inputs (N, D) and classes (N,) from 0 to K, of equal
    total weight. Only the constants (the last column) may be negative. `used` (D,): which inputs have a weight."""
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
