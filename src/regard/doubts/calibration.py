"""Calibrate the doubt of a run on planted faults, and measure how well it finds them.

Good translations are the run's own translations and the references of the text. Faults are planted in both. The
classifier is tested on a fifth of the sentences at a time, after fitting it to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from regard.doubts.calibration_file import Calibration, Origin, store_calibration
from regard.doubts.classifier import GOOD, fit
from regard.doubts.faults import FAULTS, plant
from regard.doubts.features import feature_names, measure_features, read_references
from regard.errors import InputError, check_range
from regard.progress import counting_bar, print_status
from regard.result import Result, percent
from regard.runs import TranslationRun
from regard.statistics import Interval

if TYPE_CHECKING:
    from rich.console import RenderableType

FALSE_ALARMS = 0.01
"""Default share of good translations that get a warning."""
FOLDS = 5
RESAMPLES = 1000
SMALLEST = 50
"""Smallest number of pairs for a calibration."""
FEWEST = 20
"""Smallest number of planted faults of a kind that the classifier knows."""
REFERENCES = 1000
"""Number of training pairs that `from_data` compares."""


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
    """Share of good translations that get a warning, by construction on these sentences."""
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
                f"{gain.value:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})",
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
        return Group(table, Text(""), Text("\n".join([caption, *notes])))


def calibrate_doubt(
    run: TranslationRun,
    pairs: Sequence[tuple[str, str]],
    *,
    reverse: TranslationRun | None = None,
    false_alarms: float = FALSE_ALARMS,
    beam: int | None = None,
    seed: int = 0,
    show: bool = True,
) -> TrustReport:
    """Fit the doubt of a run to planted faults, store it with the run, and return how well it finds faults.

    `pairs`: sources and references that were not used for training, at least 50. `reverse`: a run of the opposite
    direction, whose probability of the source is a further feature. `false_alarms`: share (0 to 0.5) of good
    translations that get a warning. `beam`: as in `run.search`. `seed`: draws the faults.
    `show`: print the progress to standard error.

    >>> pairs = list(run.unseen(500, 0))    # doctest: +SKIP
    >>> print(regard.calibrate_doubt(run, pairs))    # doctest: +SKIP

    Raises `InputError` for too few pairs, and for a model without attention to its source.
    """
    if not 0 < false_alarms < 0.5:
        raise InputError(f"false_alarms is {false_alarms}, and must be between 0 and 0.5")
    check_range("seed", seed, 0, 2**32 - 1)
    if len(pairs) < SMALLEST:
        raise InputError(
            f"{len(pairs)} pairs are too few to calibrate the doubt: give at least {SMALLEST}, preferably 500"
        )
    left_out = {} if reverse else {"reverse": "no run of the opposite direction was given"}
    training = run.trained_on(REFERENCES)
    references = read_references(run, training) if training else None
    if references is None:
        left_out["from_data"] = "the training text is not here"
    names = feature_names(run, references, reverse)
    sources = [source for source, _ in pairs]
    print_status(f"translating {len(pairs):,} sources", show=show)
    texts: dict[Origin, list[str]] = {
        "translations": run.translate(sources, beam=beam),
        "references": [target for _, target in pairs],
    }
    sets = [
        _Set(origin, kind, *_plant(kind, sources, translations, seed))
        for origin, translations in texts.items()
        for kind in (GOOD, *FAULTS)
    ]
    counts = {kind: sum(len(part.indices) for part in sets if part.kind == kind) for kind in FAULTS}
    kinds = tuple(kind for kind in FAULTS if counts[kind] >= FEWEST)
    for kind in FAULTS:
        if kind not in kinds:
            left_out[f"faults {kind}"] = f"only {counts[kind]} could be planted in these texts"
    sets = [part for part in sets if part.kind in (GOOD, *kinds) and part.indices]
    features = {}
    with counting_bar("planted faults", 0, len(sets), show=show) as advance:
        for part in sets:
            pairs_of_part = part.pairs(sources)
            features[part.origin, part.kind] = measure_features(run, pairs_of_part, references, reverse)
            advance()
    held_out = _hold_out(sets, features, kinds)
    thresholds = {origin: float(np.quantile(held_out[origin, GOOD][0], 1 - false_alarms)) for origin in texts}
    classifier = fit(
        np.concatenate([features[part.origin, part.kind] for part in sets]),
        [part.kind for part in sets for _ in part.indices],
        kinds,
    )
    improbable = names.index("improbable")
    faults = [
        _judge(part, sets, features, held_out, thresholds[part.origin], improbable, kinds)
        for part in sets
        if part.kind != GOOD
    ]
    report = TrustReport(
        pairs=len(pairs),
        false_alarms=false_alarms,
        thresholds=thresholds,
        features=names,
        left_out=left_out,
        faults=faults,
    )
    good = np.concatenate([features[origin, GOOD] for origin in texts])
    calibration = Calibration(
        classifier=classifier,
        features=names,
        usual=np.quantile(good, (0.025, 0.975), axis=0),
        thresholds=thresholds,
        references=references,
        reverse=None if reverse is None else str(reverse.folder.resolve()),
    )
    store_calibration(run, calibration, report.json())
    return report


@dataclass(frozen=True)
class _Set:
    """Translations of one kind and origin."""

    origin: Origin
    kind: str
    indices: list[int]
    """Indices of the sources."""
    texts: list[str]

    def pairs(self, sources: Sequence[str]) -> list[tuple[str, str]]:
        """Return the pairs of source and translation."""
        return [(sources[index], text) for index, text in zip(self.indices, self.texts, strict=True)]


def _plant(
    kind: str, sources: Sequence[str], translations: Sequence[str], seed: int
) -> tuple[list[int], list[str]]:
    planted = dict(enumerate(translations)) if kind == GOOD else plant(kind, sources, translations, seed)
    return list(planted), list(planted.values())


HeldOut = dict[tuple[Origin, str], tuple[np.ndarray, np.ndarray]]
"""Doubt (N,) and index of the most likely kind (N,) of each set."""


def _hold_out(
    sets: Sequence[_Set], features: dict[tuple[Origin, str], np.ndarray], kinds: Sequence[str]
) -> HeldOut:
    """Return the doubt of each translation by a classifier that was fitted to other sentences."""
    result: HeldOut = {
        (part.origin, part.kind): (np.zeros(len(part.indices)), np.zeros(len(part.indices), int)) for part in sets
    }
    for fold in range(FOLDS):
        test = [np.array(part.indices) % FOLDS == fold for part in sets]
        inputs = [features[part.origin, part.kind][~chosen] for part, chosen in zip(sets, test, strict=True)]
        labels = [part.kind for part, rows in zip(sets, inputs, strict=True) for _ in rows]
        classifier = fit(np.concatenate(inputs), labels, kinds)
        for part, chosen in zip(sets, test, strict=True):
            doubt, kind = result[part.origin, part.kind]
            rows = features[part.origin, part.kind][chosen]
            doubt[chosen], kind[chosen] = classifier.doubt(rows), classifier.log_odds(rows).argmax(1)
    return result


def _judge(
    part: _Set,
    sets: Sequence[_Set],
    features: dict[tuple[Origin, str], np.ndarray],
    held_out: HeldOut,
    threshold: float,
    improbable: int,
    kinds: Sequence[str],
) -> FaultResult:
    """Compare one kind of fault with good translations of the same origin."""
    [good] = [other for other in sets if other.origin == part.origin and other.kind == GOOD]
    doubt, likely = held_out[part.origin, part.kind]
    good_doubt = held_out[part.origin, GOOD][0]
    surprise, good_surprise = (features[part.origin, kind][:, improbable] for kind in (part.kind, GOOD))

    def gain(rows: np.ndarray, good_rows: np.ndarray) -> float:
        own = auroc(doubt[rows], good_doubt[good_rows])
        return own - auroc(surprise[rows], good_surprise[good_rows])

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
        auroc=auroc(doubt, good_doubt),
        log_probability_auroc=auroc(surprise, good_surprise),
        gain=Interval(value=gain(*everything), low=float(low), high=float(high)),
        found=float((doubt > threshold).mean()),
        named=float((likely == kinds.index(part.kind)).mean()),
    )


def auroc(faults: np.ndarray, good: np.ndarray) -> float:
    """Return the probability that a fault has a larger value than a good translation; ties count half.

    >>> auroc(np.array([2.0, 1.0]), np.array([1.0, 0.0]))
    0.875
    """
    good = np.sort(good)
    below, not_above = np.searchsorted(good, faults, "left"), np.searchsorted(good, faults, "right")
    return float((below + not_above).mean() / 2 / len(good))
