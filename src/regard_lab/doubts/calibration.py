"""Calibrate the doubt of a run on planted faults, and measure how well it finds them. The calibration is stored
in trust.json in the folder of the run.

Good translations are the run's own translations and the references of the text. Faults are planted in both, and in the
sources. Each has a classifier, which is tested on each fifth of the sentences, after fitting it to the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np
from rich.console import Group
from rich.text import Text

from regard.arguments import public
from regard.data.prepare import MOST_COMPARED, describe_learned
from regard.errors import InputError, check_range
from regard.io import damaged_file
from regard.progress import counting_bar, print_status
from regard.result import Result, percent, plain_table
from regard.runs.sequence_run import SequenceRun
from regard.statistics import auroc, count_interval
from regard_lab.doubts.faults import FAULTS, SOURCE_FAULTS, Planter
from regard_lab.doubts.features import FeatureReader, Pairs, read_frequencies

# A classifier of translations: good, or one of the kinds of fault.
#
# Each feature x has two inputs, its distance above and below the median m of good translations:
#
#     above = clip((x - m) / a, 0, LARGEST)        a: distance from the median to the quantile of 97.5 %
#     below = clip((m - x) / b, 0, LARGEST)        b: distance from the median to the quantile of 2.5 %
#     log-odds of kind k against good = w_k . inputs + c_k, where w_k >= 0 (multinomial logistic regression)
#
# Every class has the same total weight. The weights are not negative, so that an unusual value of a feature never
# lowers the doubt. The log-probability has a further weight, because it also shows faults that were not planted:
#
#     combined = log sum_k v_k exp(log-odds of kind k) - log sum_k v_k
#     doubt = sigmoid(combined + FURTHER * s * (median log-probability - log-probability))
#
# v_k is the visibility of kind k. s is the ratio of the standard deviations of good translations. Real faults are
# rarer than good translations: the doubt ranks translations, and a threshold turns it into a warning.

GOOD = "good"
PENALTY = 1e-4  # Weight of the sum of squares in the loss
ITERATIONS = 2000  # Largest number of steps of a fit
LARGEST = 5.0  # Largest input: distances from the median in units of the usual distance
ONE_SIDED = ("improbable", "least", "weakest", "uneven", "no_gain", "repeated", "copied", "reverse")
"""Features whose values below the median are no sign of a fault."""
FURTHER = 0.5
"""Further weight of the log-probability, a compromise between misspelled sources and planted faults."""
VISIBILITY = 4
"""The visibility of a kind is this power of 2 AUROC - 1: kinds that are hardly visible would hide others."""


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
    result = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": ITERATIONS})
    return np.asarray(result.x.reshape(kinds, -1))


FILE = "trust.json"
FORMAT = "regard-trust/3"
MEND = "delete it, and run `regard trust` again"
FEWEST_ALARMS = 5  # Smallest number of good translations with a warning for a certain threshold
HARDLY = 0.1  # A kind of fault of which a smaller share gets a warning is hardly visible
Origin = Literal["translations", "references"]  # Translations of the run, or references of a text


@public
@dataclass(frozen=True, kw_only=True)
class FaultResult:
    """How well the doubt finds one kind of fault, on sentences that were not used for fitting."""

    kind: str
    """Kind of fault, see `regard_lab.doubts.faults`."""
    origin: Origin
    """What the faults were planted in."""
    count: int
    """Number of planted faults."""
    auroc: float
    """Probability that the doubt of a fault is above that of a good translation (0 to 1)."""
    log_probability_auroc: float
    """The same for the negative log-probability per token."""
    found: float
    """Share (0 to 1) of the faults that get a warning."""
    named: float
    """Share (0 to 1) of the faults whose kind is the stated reason."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class TrustReport(Result):
    """Result of a calibration."""

    text: str
    """Name of the text."""
    pairs: int
    """Number of sentences."""
    false_alarms: float
    """Share of good translations for which the thresholds are set."""
    thresholds: dict[Origin, float]
    """Log-odds above which a translation gets a warning: translations of the run, and other translations."""
    features: list[str]
    """Names of the features."""
    left_out: dict[str, str]
    """Features that could not be measured, and faults that could not be planted, with the reason."""
    faults: list[FaultResult]

    def table(self) -> Group:
        rows = (
            (
                *(fault.kind, fault.origin, f"{fault.count:,}", f"{fault.auroc:.3f}"),
                *(f"{fault.log_probability_auroc:.3f}", percent(fault.found, 0), percent(fault.named, 0)),
            )
            for fault in self.faults
        )
        table = plain_table(("fault", "planted in", "count", "AUROC", "log-prob.", "found", "named"), rows)
        hardly = [f"{fault.kind} ({fault.origin})" for fault in self.faults if fault.found < HARDLY]
        notes = [
            f"Faults planted in {self.pairs:,} sentences; each sentence was tested by a classifier fitted to "
            "other sentences. AUROC: probability that a fault has more doubt than a good translation, beside the "
            f"log-probability alone. found: share of faults with a warning if {percent(self.false_alarms)} of "
            "good translations have one. named: share with the right reason. Planted faults are clearer than "
            "most real ones.",
            f"Hardly visible, less than {percent(HARDLY, 0)} found: {', '.join(hardly) or 'none'}",
            *self.alarms(),
            *(f"Left out: {name} ({reason})" for name, reason in self.left_out.items()),
        ]
        return Group(table, Text(""), Text("\n".join(notes)))

    def alarms(self) -> list[str]:
        """Return which share of false alarms the calibration promises, and a warning if it has few pairs."""
        share = count_interval(self.false_alarms * self.pairs, self.pairs)
        notes = [
            f"false alarms: {percent(self.false_alarms)} of good translations in text like {self.text} "
            f"({self.pairs:,} pairs: {percent(share.low or 0)} to {percent(share.high or 0)}; good: the run's own)"
        ]
        if self.false_alarms * self.pairs < FEWEST_ALARMS:
            notes.append(
                f"warning: the doubt is calibrated on few pairs ({self.pairs:,}), so that its threshold is "
                f"uncertain: run `regard trust` with {math.ceil(FEWEST_ALARMS / self.false_alarms):,} or more"
            )
        return notes


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What is stored with a run: the classifiers, their thresholds and the basis of their features."""

    step: int  # Training step of the model
    report: TrustReport
    classifiers: dict[Origin, Classifier]
    frequencies: np.ndarray  # (V,): see `read_frequencies`
    reverse: str | None  # Folder of the run of the opposite direction


def read_calibration(run: SequenceRun) -> Calibration:
    """Return the calibration that is stored with a run."""
    content, remedy = run.files.read_derived(FILE, MEND), f"run `regard trust {run.folder}`"
    if content is not None and content.get("format") != FORMAT:
        raise InputError(
            f"the doubt of run {str(run.folder)!r} was calibrated by another version of Regard "
            f"({content.get('format')}, not {FORMAT}): {remedy} to calibrate it again"
        )
    if content is not None:
        try:
            calibration = msgspec.convert(
                content.get("calibration"), Calibration, dec_hook=lambda _, value: np.array(value)
            )
        except (msgspec.ValidationError, ValueError) as error:
            raise damaged_file(run.files.path / FILE, error, MEND) from error
        if calibration.step == run.step:
            return calibration
    raise InputError(f"the doubt of run {str(run.folder)!r} is not calibrated: {remedy} first")


FALSE_ALARMS = 0.01  # Default share of good translations that get a warning
FOLDS = 5
SMALLEST = 50  # Smallest number of pairs for a calibration
FEWEST = 20  # Smallest number of planted faults of a kind that the classifier knows
TAIL = 0.1  # Share of good translations whose log-odds set a threshold for fewer false alarms
MOST_PLANTED, MOST_SOURCES = 200, 100
"""Largest number of faulty translations, and of faulty sources, of a kind. The run translates these sources."""


@public
def calibrate_doubt(
    run: SequenceRun,
    pairs: Sequence[tuple[str, str]],
    *,
    text: str = "the calibration text",
    reverse: SequenceRun | None = None,
    false_alarms: float = FALSE_ALARMS,
    beam: int | None = None,
    seed: int = 0,
    show: bool = True,
) -> TrustReport:
    """Fit the doubt of a run to planted faults, store it with the run, and return how well it finds faults.

    `pairs`: sources and references that were not used for training, at least 50. `text`: their name in messages.
    `reverse`: a run of the opposite direction, whose probability of the source is a further feature.
    `false_alarms`: share (0 to 0.5) of good translations that get a warning. `beam`: as in `run.search`. `seed`:
    draws the faults. `show`: print progress.

    >>> pairs = list(run.unseen(500, 0))    # doctest: +SKIP
    >>> print(regard.calibrate_doubt(run, pairs))    # doctest: +SKIP

    Raises `InputError` for few pairs, pairs of the training text, and a model without attention to its source.
    """
    check_calibration(run, false_alarms=false_alarms, beam=beam, seed=seed)
    left_out = {} if reverse else {"reverse": "no run of the opposite direction was given"}
    _check_pairs(run, pairs)
    frequencies = read_frequencies(run, pairs)
    reader = FeatureReader(run, frequencies, reverse)
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    print_status(f"translating {len(pairs):,} sources", show=show)
    texts: dict[Origin, list[str]] = {"translations": run.translate(sources, beam=beam), "references": references}
    sets, classifiers, thresholds = [], {}, {}
    with counting_bar("planted faults", 0, len(FAULTS) + 1, show=show) as advance:
        for kind in (GOOD, *FAULTS):
            sets += [
                _Set(origin, kind, np.array(list(faulty)), reader.measure(list(faulty.values())))
                for origin, faulty in _plant(run, kind, sources, texts, seed, beam, left_out).items()
            ]
            advance()
    faults = []
    for origin in texts:
        own = [part for part in sets if part.origin == origin]
        kinds = [part.kind for part in own if part.kind != GOOD]
        _hold_out(own, kinds, reader.names)
        thresholds[origin] = _threshold(own[0].doubt, false_alarms)
        classifiers[origin] = _fit(own, kinds, reader.names)
        faults += [_judge(part, own[0], thresholds[origin], reader.names) for part in own[1:]]
    report = TrustReport(
        text=text,
        pairs=len(pairs),
        false_alarms=false_alarms,
        thresholds=thresholds,
        features=reader.names,
        left_out=left_out,
        faults=sorted(faults, key=lambda fault: [*FAULTS].index(fault.kind)),
    )
    calibration = Calibration(
        step=run.step,
        report=report,
        classifiers=classifiers,
        frequencies=frequencies,
        reverse=None if reverse is None else str(reverse.folder.resolve()),
    )
    content = msgspec.to_builtins(calibration, enc_hook=lambda array: array.tolist())
    run.files.write_derived(FILE, {"format": FORMAT, "calibration": content})
    return report


def _check_pairs(run: SequenceRun, pairs: Pairs) -> None:
    """Raise `InputError` for a model without attention to its source, for too few pairs, and for pairs that do not show
    how the model translates: copies of the source, and the text of training."""
    if not run.model.cross_layers:
        raise InputError("the model has no attention to its source, which the doubt needs: train with attention")
    if (different := len(set(pairs))) < SMALLEST:
        raise InputError(
            f"too few different pairs to calibrate the doubt ({different}): give at least {SMALLEST}, preferably 500"
        )
    equal = sum(source == target for source, target in pairs)
    if 2 * equal > len(pairs):
        raise InputError(f"in {equal} of {len(pairs)} pairs, the reference equals the source: give translations")
    try:
        training = [] if run.task.draws else run.trained_on(MOST_COMPARED)
    except InputError:  # the file was moved
        training = []
    if learned := describe_learned(pairs, training):
        raise InputError(
            f"{learned} of the run, which it translates better than other text: give pairs that were not used "
            "for training"
        )


def check_calibration(run: SequenceRun, *, false_alarms: float, beam: int | None, seed: int) -> None:
    if not 0 < false_alarms < 0.5:
        raise InputError(f"false_alarms {false_alarms} is out of range: choose above 0 and less than 0.5")
    check_range("seed", seed, 0, 2**32 - 1)
    run.search([], beam=beam)


@dataclass
class _Set:
    """Translations of one kind and origin."""

    origin: Origin
    kind: str  # `GOOD` or a kind of fault
    indices: np.ndarray  # (N,): indices of the sources
    features: np.ndarray  # (N, F)

    def __post_init__(self) -> None:
        # Log-odds of a fault, and whether the kind is the most likely one, by a classifier of other sentences.
        self.doubt, self.named = np.zeros(len(self.indices)), np.zeros(len(self.indices), bool)


def _plant(
    run: SequenceRun,
    kind: str,
    sources: Sequence[str],
    texts: dict[Origin, list[str]],
    seed: int,
    beam: int | None,
    left_out: dict[str, str],
) -> dict[Origin, dict[int, tuple[str, str]]]:
    """Return the pairs of one kind, by the index of their source. Rare kinds of fault go to `left_out`."""
    if kind == GOOD:
        return {origin: dict(enumerate(zip(sources, good, strict=True))) for origin, good in texts.items()}
    planted: dict[Origin, dict[int, tuple[str, str]]] = {}
    if kind in SOURCE_FAULTS:
        faulty = Planter(sources, texts["references"], seed).plant(kind)
        short = [index for index, source in faulty.items() if run.too_long(source) is None][:MOST_SOURCES]
        own = run.translate([faulty[index] for index in short], beam=beam)
        planted["translations"] = {index: (faulty[index], target) for index, target in zip(short, own, strict=True)}
        planted["references"] = {index: (faulty[index], texts["references"][index]) for index in short}
    else:
        for origin, good in texts.items():
            faulty = Planter(sources, good, seed).plant(kind)
            planted[origin] = {index: (sources[index], faulty[index]) for index in [*faulty][:MOST_PLANTED]}
    for origin in [origin for origin, pairs in planted.items() if len(pairs) < FEWEST]:
        count = len(planted.pop(origin))
        left_out[f"faults {kind}, {origin}"] = f"only {count} could be planted"
    return planted


def _fit(sets: Sequence[_Set], kinds: Sequence[str], names: Sequence[str], without: int | None = None) -> Classifier:
    rows = [part.indices % FOLDS != without for part in sets]
    features = np.concatenate([part.features[own] for part, own in zip(sets, rows, strict=True)])
    labels = [part.kind for part, own in zip(sets, rows, strict=True) for _ in range(own.sum())]
    return fit(features, labels, kinds, names)


def _hold_out(sets: Sequence[_Set], kinds: Sequence[str], names: Sequence[str]) -> None:
    """Judge each translation by a classifier that was fitted to other sentences."""
    for fold in range(FOLDS):
        classifier = _fit(sets, kinds, names, without=fold)
        for part in sets:
            rows = part.indices % FOLDS == fold
            part.doubt[rows] = classifier.log_odds(part.features[rows])
            likely = classifier.kind_odds(part.features[rows]).argmax(1)
            part.named[rows] = np.array(kinds)[likely] == part.kind


def _threshold(doubt: np.ndarray, false_alarms: float) -> float:
    """Return the log-odds above which a share of good translations lies. Above the quantile of 90 %, the log-odds are
    taken as exponentially distributed, so that a tenth of the translations sets the threshold and not the few above it.
    Quantiles and generalised Pareto tails are farther from the stated share (docs/dev/doubt.md)."""
    if false_alarms >= TAIL:
        return float(np.quantile(doubt, 1 - false_alarms))
    begin = np.quantile(doubt, 1 - TAIL)
    return float(begin + (doubt[doubt > begin] - begin).mean() * math.log(TAIL / false_alarms))


def _judge(part: _Set, good: _Set, threshold: float, names: Sequence[str]) -> FaultResult:
    """Compare one kind of fault with good translations of the same origin."""
    column = names.index("improbable")
    surprise, usual = part.features[:, column], good.features[:, column]
    truth = np.arange(len(part.doubt) + len(good.doubt)) < len(part.doubt)
    return FaultResult(
        kind=part.kind,
        origin=part.origin,
        count=len(part.indices),
        auroc=auroc(np.concatenate([part.doubt, good.doubt]), truth) or 0.0,
        log_probability_auroc=auroc(np.concatenate([surprise, usual]), truth) or 0.0,
        found=float((part.doubt > threshold).mean()),
        named=float(part.named.mean()),
    )
