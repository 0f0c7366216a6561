"""The card of a mechanism: scores beside softmax, cost, where weight goes, and the claims of papers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from regard.attention.mechanism import Mechanism
from regard.errors import check_range
from regard.statistics import LEVEL, Interval, paired_interval, seed_range
from regard.sweep.backends import Backend
from regard_lab.cards.cells import Results, measure_cells
from regard_lab.cards.claim_table import CLAIMS, claims_of
from regard_lab.cards.claims import ClaimResult, MeasuredPair, evaluate_claims
from regard_lab.cards.costs import Cost, read_or_measure_cost
from regard_lab.cards.mechanisms import MECHANISMS
from regard_lab.cards.probe_training import BASELINE, ProbeResult
from regard_lab.cards.probes import PROBES, card_probes
from regard_lab.cards.weight_shares import average_heads

SAVEPATH = "runs/cards"
"""Default folder of all cards."""
SEEDS = 10
"""Default number of seeds."""


@dataclass(frozen=True, kw_only=True)
class TestRow:
    """The scores of a mechanism and of softmax in one test."""

    test: str
    """Name of the probe, followed by the name of the test, such as `copy x2`."""
    score: Interval
    """Mean score of the mechanism, with the range of the seeds."""
    softmax: Interval
    """Mean score of softmax, with the range of the seeds."""
    difference: Interval
    """Mean of the differences by seed, with an interval that holds for all tests of the card at once."""

    @property
    def shown(self) -> bool:
        return self.difference.excludes_zero


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Means over seeds and heads in one probe, for the mechanism and for softmax."""

    probe: str
    relevant: tuple[float, float] | None
    """Share of weight on relevant inputs; None if they are not known."""
    best: tuple[float, float] | None
    """The same for the head with the largest share."""
    first: tuple[float, float]
    """Share of weight on the first token, in the second half of the sequence."""
    entropy: tuple[float, float]
    """Entropy of the shares in nats."""
    total: tuple[float, float]
    """Sum of the absolute weights of a row."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """Evidence about one mechanism."""

    mechanism: str
    seeds: int
    steps: int | None
    """Number of training steps instead of those of the probes; None for those of the probes."""
    rows: list[TestRow]
    shares: list[Shares]
    cost: Cost
    claims: list[ClaimResult]
    normalized: bool
    """Whether each row of weights sums to 1."""


def measure_card(
    mechanism: str,
    *,
    seeds: int = SEEDS,
    steps: int | None = None,
    savepath: str | Path = SAVEPATH,
    on: Backend | None = None,
    progress: bool = True,
) -> Card:
    """Train and measure a mechanism and softmax on all probes, and return the card.

    Stored results in `savepath` are reused. `steps`: number of training steps for every probe. `on`: the
    backend; default: this machine. Costs are always measured on this machine.

    Raises `InputError` for a mechanism that does not exist or does not fit the models.
    """
    return measure_cards([mechanism], seeds=seeds, steps=steps, savepath=savepath, on=on, progress=progress)[0]


def measure_cards(
    mechanisms: Sequence[str] = MECHANISMS,
    *,
    seeds: int = SEEDS,
    steps: int | None = None,
    savepath: str | Path = SAVEPATH,
    on: Backend | None = None,
    progress: bool = True,
) -> list[Card]:
    """Train and measure several mechanisms, and return their cards; see `measure_card`."""
    check_range("seeds", seeds, 1, 1000)
    if steps is not None:
        check_range("steps", steps, 1, 1_000_000)
    names = [Mechanism.parse(mechanism).text for mechanism in mechanisms]
    results = measure_cells(_pairs(names), seeds, Path(savepath), steps=steps, on=on, progress=progress)
    return [_make_card(name, results, seeds, steps, read_or_measure_cost(name, Path(savepath))) for name in names]


def without_baseline(cards: Sequence[Card]) -> Sequence[Card]:
    """Return the cards of other mechanisms than softmax, for tables that compare with softmax; all cards if there
    is no other."""
    return [card for card in cards if card.mechanism != BASELINE] or cards


def _pairs(mechanisms: Sequence[str]) -> list[MeasuredPair]:
    """Return the pairs of a mechanism and a probe that the cards need. Softmax is first."""
    pairs = [(name, probe) for name in (BASELINE, *mechanisms) for probe in card_probes()]
    return pairs + [pair for name in mechanisms for claim in claims_of(name) for pair in claim.needs]


def _make_card(mechanism: str, results: Results, seeds: int, steps: int | None, cost: Cost) -> Card:
    tests = [(probe, test) for probe in card_probes() for test in PROBES[probe].tests]
    level = 1 - (1 - LEVEL) / len(tests)
    rows = []
    for probe, test in tests:
        own, softmax = (
            [result.tests[test].score for result in results[name, probe]] for name in (mechanism, BASELINE)
        )
        differences = [one - other for one, other in zip(own, softmax, strict=True)]
        rows.append(
            TestRow(
                test=f"{probe} {test}".strip(),
                score=seed_range(own),
                softmax=seed_range(softmax),
                difference=paired_interval(differences, level),
            )
        )
    return Card(
        mechanism=mechanism,
        seeds=seeds,
        steps=steps,
        rows=rows,
        shares=[_shares(probe, mechanism, results) for probe in card_probes()],
        cost=cost,
        claims=evaluate_claims(results, claims_of(mechanism), of=len(CLAIMS)),
        normalized=results[mechanism, card_probes()[0]][0].normalized,
    )


def _shares(probe: str, mechanism: str, results: Results) -> Shares:
    pair = [results[name, probe] for name in (mechanism, BASELINE)]

    def both(name: str, *, largest: bool = False) -> tuple[float, float]:
        own, softmax = (_mean_share(seeds, name, largest=largest) for seeds in pair)
        return own, softmax

    known = pair[0][0].tests[""].shares.relevant is not None
    return Shares(
        probe=probe,
        relevant=both("relevant") if known else None,
        best=both("relevant", largest=True) if known else None,
        first=both("first"),
        entropy=both("entropy"),
        total=both("total"),
    )


def _mean_share(seeds: Sequence[ProbeResult], name: str, *, largest: bool) -> float:
    by_seed = [getattr(result.tests[""].shares, name) for result in seeds]
    return fmean(max(map(max, heads)) if largest else average_heads(heads) for heads in by_seed)
