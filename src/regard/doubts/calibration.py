"""Calibrate the doubt of a run on planted faults, and measure how well it finds them.

Good translations are the run's own translations and the references of the text. Faults are planted in both. The
classifier is tested on a fifth of the sentences at a time, after fitting it to the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from regard.doubts.basis import read_basis
from regard.doubts.calibration_file import Calibration, Origin, store_calibration
from regard.doubts.calibration_pairs import check_pairs
from regard.doubts.classifier import GOOD, Classifier, fit
from regard.doubts.faults import FAULTS, plant
from regard.doubts.features import FeatureReader
from regard.errors import InputError
from regard.progress import counting_bar, print_status
from regard.result import Result, percent, signed
from regard.runs import SequenceRun
from regard.statistics import Interval, auroc

if TYPE_CHECKING:
    from rich.console import RenderableType

FALSE_ALARMS = 0.01
"""Default share of good translations that get a warning."""
FOLDS = 5
RESAMPLES = 1000
TAIL = 0.1
"""Share of good translations whose log-odds set a threshold for fewer false alarms."""
FEWEST_ALARMS = 5
"""Smallest number of good translations with a warning for a certain threshold."""
FEWEST = 20
"""Smallest number of planted faults of a kind that the classifier knows."""


@dataclass(frozen=True, kw_only=True)
class FaultResult:
    """How well the doubt finds one kind of fault, on sentences that were not used for fitting."""

    kind: str
    """Kind of fault, see `regard.doubts.faults`."""
    origin: Origin
    """What the faults were planted in."""
    count: int
    """Number of planted faults."""
    auroc: float
    """Probability that the doubt of a fault is above that of a good translation (0 to 1)."""
    log_probability_auroc: float
    """The same for the negative log-probability per token."""
    gain: Interval
    """`auroc` minus `log_probability_auroc`, with its 95 % bootstrap interval over sentences."""
    found: float
    """Share (0 to 1) of the faults that get a warning."""
    named: float
    """Share (0 to 1) of the faults whose kind is the stated reason."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TrustReport(Result):
    """Result of a calibration."""

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

    def table(self) -> RenderableType:
        """Return the results as a table, with the meaning of its columns."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table("fault", "planted in", "count", "AUROC", "log-prob.", "gain", "found", "named", box=None)
        table.pad_edge = False
        for fault in self.faults:
            gain = fault.gain
            table.add_row(
                fault.kind,
                fault.origin,
                f"{fault.count:,}",
                f"{fault.auroc:.3f}",
                f"{fault.log_probability_auroc:.3f}",
                f"{signed(gain.value)} ({gain.low:+.3f} to {gain.high:+.3f})",
                percent(fault.found, 0),
                percent(fault.named, 0),
            )
        caption = (
            f"Faults planted in {self.pairs:,} sentences; each sentence was tested by a classifier fitted to "
            "other sentences. AUROC: probability that a fault has more doubt than a good translation, beside the "
            f"log-probability alone. found: share of faults with a warning if {percent(self.false_alarms)} of "
            "good translations have one. named: share with the right reason. Planted faults are clearer than "
            "most real ones."
        )
        notes = [f"Left out: {name} ({reason})" for name, reason in self.left_out.items()]
        if self.pairs * self.false_alarms < FEWEST_ALARMS:
            notes.append(
                f"The threshold is uncertain: only {self.pairs * self.false_alarms:.1f} of {self.pairs:,} good "
                f"translations are above it. Use {math.ceil(FEWEST_ALARMS / self.false_alarms):,} pairs or more."
            )
        return Group(table, Text(""), Text("\n".join([caption, *notes])))


def calibrate_doubt(
    run: SequenceRun,
    pairs: Sequence[tuple[str, str]],
    *,
    reverse: SequenceRun | None = None,
    false_alarms: float = FALSE_ALARMS,
    beam: int | None = None,
    seed: int = 0,
    show: bool = True,
) -> TrustReport:
    """Fit the doubt of a run to planted faults, store it with the run, and return how well it finds faults.

    `pairs`: sources and references that were not used for training, at least 50. `reverse`: a run of the opposite
    direction, whose probability of the source is a further feature. `false_alarms`: share (0 to 0.5) of good
    translations that get a warning. `beam`: as in `run.search`. `seed`: draws the faults. `show`: print progress.

    >>> pairs = list(run.unseen(500, 0))    # doctest: +SKIP
    >>> print(regard.calibrate_doubt(run, pairs))    # doctest: +SKIP

    Raises `InputError` for few pairs, pairs of the training text, and a model without attention to its source.
    """
    check_calibration(run, false_alarms=false_alarms, beam=beam, seed=seed)
    left_out = {} if reverse else {"reverse": "no run of the opposite direction was given"}
    if not (training := check_pairs(run, pairs)):
        left_out["from_data"] = "the training text is not here"
    basis = read_basis(run, pairs, training)
    reader = FeatureReader(run, basis, reverse)
    names, sources = reader.names, [source for source, _ in pairs]
    print_status(f"translating {len(pairs):,} sources", show=show)
    texts: dict[Origin, list[str]] = {
        "translations": run.translate(sources, beam=beam),
        "references": [target for _, target in pairs],
    }
    planted, kinds = _plant_faults(sources, texts, seed, left_out)
    sets = []
    with counting_bar("planted faults", 0, len(planted), show=show) as advance:
        for origin, kind, faulty in planted:
            faulty_pairs = [(sources[index], text) for index, text in faulty.items()]
            sets.append(_Set(origin, kind, np.array(list(faulty)), reader.measure(faulty_pairs)))
            advance()
    judged = _hold_out(sets, kinds)
    thresholds = {part.origin: _threshold(part.doubt, false_alarms) for part in judged if part.good}
    improbable = names.index("improbable")
    faults = [
        _judge(part, judged, thresholds[part.origin], improbable, kinds) for part in judged if not part.good
    ]
    report = TrustReport(
        pairs=len(pairs),
        false_alarms=false_alarms,
        thresholds=thresholds,
        features=names,
        left_out=left_out,
        faults=faults,
    )
    usual = np.concatenate([part.features for part in sets if part.good])
    calibration = Calibration(
        classifier=_fit(sets, kinds),
        features=names,
        usual=np.quantile(usual, (0.025, 0.975), axis=0),
        thresholds=thresholds,
        basis=basis,
        reverse=None if reverse is None else str(reverse.folder.resolve()),
    )
    store_calibration(run, calibration, report.json())
    return report


def check_calibration(run: SequenceRun, *, false_alarms: float, beam: int | None, seed: int) -> None:
    """Raise `InputError` for options of `calibrate_doubt` out of range."""
    if not 0 < false_alarms < 0.5:
        raise InputError(f"false_alarms {false_alarms} is out of range: choose above 0 and less than 0.5")
    run.search([], beam=beam)


@dataclass(frozen=True)
class _Set:
    """Translations of one kind and origin."""

    origin: Origin
    kind: str
    """`GOOD` or a kind of fault."""
    indices: np.ndarray
    """(N,): indices of the sources."""
    features: np.ndarray
    """(N, F)."""

    @property
    def good(self) -> bool:
        """Whether the translations are good."""
        return self.kind == GOOD


@dataclass(frozen=True)
class _JudgedSet(_Set):
    """Translations that a classifier of other sentences has judged."""

    doubt: np.ndarray
    """(N,): log-odds of a fault."""
    likely: np.ndarray
    """(N,): index of the most likely kind of fault."""


Planted = list[tuple[Origin, str, dict[int, str]]]
"""Origin, kind, and the text of each source by its index."""


def _plant_faults(
    sources: Sequence[str], texts: dict[Origin, list[str]], seed: int, left_out: dict[str, str]
) -> tuple[Planted, tuple[str, ...]]:
    """Return good translations and planted faults, and the kinds of fault. Rare kinds go to `left_out`."""
    planted: Planted = [(origin, GOOD, dict(enumerate(good))) for origin, good in texts.items()]
    kinds = []
    for kind in FAULTS:
        faulty = [(origin, kind, plant(kind, sources, good, seed)) for origin, good in texts.items()]
        count = sum(len(found) for _, _, found in faulty)
        if count < FEWEST:
            left_out[f"faults {kind}"] = f"only {count} could be planted in these texts"
            continue
        kinds.append(kind)
        planted += [part for part in faulty if part[2]]
    return planted, tuple(kinds)


def _fit(sets: Sequence[_Set], kinds: Sequence[str]) -> Classifier:
    features = np.concatenate([part.features for part in sets])
    return fit(features, [part.kind for part in sets for _ in part.indices], kinds)


def _hold_out(sets: Sequence[_Set], kinds: Sequence[str]) -> list[_JudgedSet]:
    """Judge each translation by a classifier that was fitted to other sentences."""
    judged = [
        _JudgedSet(part.origin, part.kind, part.indices, part.features, np.zeros(count), np.zeros(count, int))
        for part in sets
        if (count := len(part.indices))
    ]
    for fold in range(FOLDS):
        others = [part.indices % FOLDS != fold for part in judged]
        classifier = _fit(
            [
                _Set(part.origin, part.kind, part.indices[rows], part.features[rows])
                for part, rows in zip(judged, others, strict=True)
            ],
            kinds,
        )
        for part, rows in zip(judged, others, strict=True):
            part.doubt[~rows] = classifier.doubt(part.features[~rows])
            part.likely[~rows] = classifier.log_odds(part.features[~rows]).argmax(1)
    return judged


def _threshold(doubt: np.ndarray, false_alarms: float) -> float:
    """Return the log-odds above which a share of good translations lies.

    Above the quantile of 90 %, the log-odds are taken as exponentially distributed, so that a tenth of the
    translations sets the threshold and not the few above it. Quantiles and generalised Pareto tails are farther
    from the stated share (docs/dev/doubt.md).
    """
    if false_alarms >= TAIL:
        return float(np.quantile(doubt, 1 - false_alarms))
    begin = np.quantile(doubt, 1 - TAIL)
    return float(begin + (doubt[doubt > begin] - begin).mean() * math.log(TAIL / false_alarms))


def _judge(
    part: _JudgedSet, judged: Sequence[_JudgedSet], threshold: float, improbable: int, kinds: Sequence[str]
) -> FaultResult:
    """Compare one kind of fault with good translations of the same origin."""
    [good] = [other for other in judged if other.origin == part.origin and other.good]
    doubt, good_doubt = part.doubt, good.doubt
    surprise, good_surprise = part.features[:, improbable], good.features[:, improbable]

    def gain(rows: np.ndarray, good_rows: np.ndarray) -> float:
        own = _separation(doubt[rows], good_doubt[good_rows])
        return own - _separation(surprise[rows], good_surprise[good_rows])

    generator = np.random.default_rng(0)
    row_of = np.full(len(good.indices), -1)
    row_of[part.indices] = np.arange(len(part.indices))
    gains = []
    for _ in range(RESAMPLES):  # of sentences: a good translation and its fault are drawn together
        drawn = generator.integers(0, len(good.indices), len(good.indices))
        rows = row_of[drawn]
        gains.append(gain(rows[rows >= 0], drawn))
    low, high = np.quantile(gains, (0.025, 0.975))
    everything = np.arange(len(part.indices)), np.arange(len(good.indices))
    return FaultResult(
        kind=part.kind,
        origin=part.origin,
        count=len(part.indices),
        auroc=_separation(doubt, good_doubt),
        log_probability_auroc=_separation(surprise, good_surprise),
        gain=Interval(value=gain(*everything), low=float(low), high=float(high)),
        found=float((doubt > threshold).mean()),
        named=float((part.likely == kinds.index(part.kind)).mean()),
    )


def _separation(faults: np.ndarray, good: np.ndarray) -> float:
    """Return the probability that a fault has a larger value than a good translation; 0.5 without a fault."""
    area = auroc(np.concatenate([faults, good]), np.arange(len(faults) + len(good)) < len(faults))
    return 0.5 if area is None else area
