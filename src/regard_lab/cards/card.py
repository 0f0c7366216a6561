"""The card of a mechanism: scores beside softmax, cost, where weight goes, and the claims of papers.

A claim is a difference for each seed and the sign that the paper expects. The verdict comes from the interval of
the median difference over seeds, at a level that holds for all claims at once (Bonferroni). The interval is that of
the sign test, which holds for every distribution of the differences:

    cannot be tested here    a condition of the claim does not hold, such as that a sink exists
    too few seeds            no interval from so few seeds has this level
    reproduced               the interval excludes zero, on the expected side
    contradicted             the interval excludes zero, on the other side
    not seen at this size    the interval contains zero
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.table import Table
from torch import Tensor

from regard.attention.mechanism import Mechanism
from regard.errors import check_range, plural
from regard.io import is_file, make_folder, read_json, write_file, write_json
from regard.machine import one_thread
from regard.models.decoder_only import DecoderOnly
from regard.result import percent, plain_table, signed, to_plain
from regard.statistics import LEVEL, Interval, describe_range, median_interval, seed_range, smallest_sample
from regard.streams import make_generator
from regard.sweep.backends import Backend
from regard.tasks.batch import TokenBatch
from regard.viz.report_page import Part, Plot, render_page
from regard_lab.cards.cells import (
    BASELINE,
    LARGEST,
    ProbeResult,
    Results,
    average_heads,
    build_model,
    code_digest,
    file_name,
    mean_loss,
    measure_cells,
    uniform_first,
)
from regard_lab.cards.probes import PROBES, card_probes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MECHANISMS = (  # Mechanisms of `regard card --all`. A mechanism without a position part has learned positions
    BASELINE,
    *("dot", "general", "concat", "additive", "cosine", "soft_capped", "scalable"),  # scores
    *("none", "sinusoidal", "rotary", "alibi", "t5"),  # positions
    *("window:8", "streaming:8:1"),  # masks
    *("softmax_one", "sink", "sigmoid", "sparsemax", "entmax", "topk:4"),  # normalizers
    *("output_gate", "head_gate"),  # gates
    *("differential", "talking_heads", "forgetting", "selective"),  # combinations
    *("multi_query", "grouped", "latent", "shifted_keys"),  # keys and values
    *("linear", "gated_linear", "delta_rule"),  # the linear family
    *("alibi,sink", "rotary,scalable", "none,forgetting", "rotary,cosine,output_gate"),  # several parts
)


Verdict = Literal["reproduced", "not seen at this size", "contradicted", "too few seeds", "cannot be tested here"]


@dataclass(frozen=True, kw_only=True)
class Precondition:
    """What must hold before a claim can be tested."""

    text: str  # The condition, and what is measured
    value: str  # A name of `VALUES`
    least: float  # The condition holds if the median over seeds is at least this value in every measurement
    where: tuple[tuple[str, str], ...] = ()  # Pairs of a mechanism and a probe; empty for all of the claim

    def measure(self, results: Results, needs: Sequence[tuple[str, str]]) -> tuple[float, str]:
        """Return the smallest median over seeds, and the mechanism and probe that have it."""
        medians = {
            pair: statistics.median(VALUES[self.value](result, pair[1]) for result in results[pair])
            for pair in self.where or needs
        }
        pair = min(medians, key=medians.__getitem__)
        return medians[pair], f"{pair[0]} on {pair[1]}"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a paper, and the experiment that tests it."""

    name: str  # The claim in one sentence
    source: str  # Paper and section
    mechanisms: tuple[str, ...]  # Mechanisms on whose cards the claim is shown
    needs: tuple[tuple[str, str], ...]  # Measurements that the difference uses: pairs of a mechanism and a probe
    measured: str  # What the difference is, with its unit
    value: str  # What is compared: a name of `VALUES` or `DIFFERENCES`
    expected: Literal["above 0", "below 0"]  # Sign of the difference if the claim holds
    conditions: tuple[Precondition, ...]  # What must hold before the claim can be tested

    @property
    def measurements(self) -> tuple[tuple[str, str], ...]:
        """All measurements that the difference and the conditions use."""
        return tuple(dict.fromkeys([*self.needs, *(pair for condition in self.conditions for pair in condition.where)]))

    def unmet(self, results: Results) -> str:
        """Return the first condition that does not hold, with the measured value; empty if all hold."""
        for condition in self.conditions:
            value, place = condition.measure(results, self.needs)
            if value < condition.least:
                return f"{condition.text} ({place}: {value:.2f}, at least {condition.least:g} needed)"
        return ""

    def difference(self, results: Results) -> list[float]:
        """Return one difference per seed: the mean over pairs of needs of the first value less the second."""
        if self.value in DIFFERENCES:
            return DIFFERENCES[self.value](results)
        value = VALUES[self.value]
        pairs = [
            [
                value(one, first[1]) - value(other, second[1])
                for one, other in zip(results[first], results[second], strict=True)
            ]
            for first, second in zip(self.needs[::2], self.needs[1::2], strict=True)
        ]
        return [fmean(row) for row in zip(*pairs, strict=True)]


BEST_OF_TEN = 0.05  # Amount by which the best seed must exceed the mean of the seeds to count as misleading


def _share(result: ProbeResult, kind: str, test: str = "") -> float:
    """Return the mean over all heads of a share that is known for the probe."""
    return average_heads(getattr(result.tests[test].shares, kind))


def _best_above_mean(results: Results) -> list[float]:
    """Return, for each pair of successive seeds, how much the better one exceeds their mean, less `BEST_OF_TEN`. The
    best of more seeds exceeds their mean by at least as much, on average."""
    scores = [result.tests[""].score for result in results[BASELINE, "parity"]]
    return [abs(one - other) / 2 - BEST_OF_TEN for one, other in zip(scores[::2], scores[1::2], strict=False)]


@cache
def _beyond(probe: str, reach: int) -> float:
    """Return the share of a probe's outputs that depend on an earlier input more than `reach` steps back."""
    task = PROBES[probe].build_task()
    relevant = task.relevance(task.sample(1000, make_generator(0, "card/reach")).inputs)
    positions = torch.arange(relevant.shape[-1])
    far = relevant & (positions[:, None] - positions > reach)
    return float(far.any(-1).sum() / relevant.any(-1).sum())


def _score(result: ProbeResult, test: str = "") -> float:
    return result.tests[test].score


# Values of a measurement of a probe, at the length of training, or at two or four times this length.
VALUES: dict[str, Callable[[ProbeResult, str], float]] = {
    "score": lambda result, probe: _score(result),
    "score_x2": lambda result, probe: _score(result, "x2"),
    "errors": lambda result, probe: 1 - _score(result),
    "remaining": lambda result, probe: _score(result, "x2") / max(_score(result), 1e-9),
    "first_token": lambda result, probe: _share(result, "first"),
    "first_weight": lambda result, probe: _share(result, "first_weight"),
    "first_over_uniform": lambda result, probe: (
        _share(result, "first") / uniform_first(PROBES[probe].build_task().lengths[-1])
    ),
    "irrelevant": lambda result, probe: 1 - _share(result, "relevant"),
    "entropy_growth": lambda result, probe: _share(result, "entropy", "x4") / max(_share(result, "entropy"), 1e-9),
    "beyond_14": lambda result, probe: _beyond(probe, 14),
}
# Differences that combine several measurements in another way.
DIFFERENCES = {"best_above_mean": _best_above_mean}


_FILE = files("regard_lab.cards") / "claims.toml"
CLAIMS = msgspec.toml.decode(_FILE.read_bytes(), type=dict[str, tuple[Claim, ...]])["claims"]


def claims_of(mechanism: str) -> list[Claim]:
    """Return the claims about a mechanism.

    >>> [claim.expected for claim in claims_of("sink")]
    ['below 0']
    """
    return [claim for claim in CLAIMS if mechanism in claim.mechanisms]


@dataclass(frozen=True)
class ClaimResult:
    """The outcome of a claim's experiment."""

    claim: Claim
    interval: Interval  # Median difference over seeds, with an interval that holds for all claims at once
    seeds: int  # Number of differences
    least_seeds: int  # Number of differences from which the interval has ends
    unmet: str  # The condition that does not hold, with the measured value; empty if all hold

    @property
    def verdict(self) -> Verdict:
        """The verdict; see the module."""
        if self.unmet:
            return "cannot be tested here"
        if self.interval.low is None:
            return "too few seeds"
        if not self.interval.excludes_zero:
            return "not seen at this size"
        return "reproduced" if (self.interval.value > 0) == (self.claim.expected == "above 0") else "contradicted"

    def describe(self) -> str:
        """Return the verdict with its reason, if the claim was not tested."""
        too_few = f": {self.least_seeds} differences are needed, {self.seeds} measured"
        reason = {"cannot be tested here": f": {self.unmet}", "too few seeds": too_few}
        return self.verdict + reason.get(self.verdict, "")

    @property
    def smallest(self) -> float | None:
        """Smallest median in the expected direction whose interval would exclude zero, with the same spread."""
        low, high = self.interval.low, self.interval.high
        if low is None or high is None:
            return None
        return self.interval.value - low if self.claim.expected == "above 0" else high - self.interval.value


def evaluate_claims(results: Results, claims: Sequence[Claim], *, of: int) -> list[ClaimResult]:
    """Return the outcome of each claim, with intervals that hold for `of` claims at once."""
    level = 1 - (1 - LEVEL) / of
    outcomes = []
    for claim in claims:
        values = claim.difference(results)
        interval, least = median_interval(values, level), smallest_sample(level)
        unmet = claim.unmet(results)
        outcomes.append(ClaimResult(claim, interval, len(values), least, unmet))
    return outcomes


# The cost of a mechanism beside softmax: step time, memory for the backward pass, parameters.
#
# The model is that of the probe `text`. Step times of both models are measured in turns in one process, so that
# other work on the machine affects both.

PROBE = "text"
ROUNDS = 40  # Number of steps of each model whose time is measured
WARM_UP = 5  # Number of steps of each model before these


@dataclass(frozen=True)
class Cost:
    """The cost of a mechanism, and that of softmax."""

    milliseconds: float  # Median time of a training step without the optimizer, on one thread
    softmax_milliseconds: float  # The same for softmax
    ratio: float  # Median of the ratios of two successive steps, the mechanism's to softmax's
    memory: int  # Bytes of the tensors that a training step keeps for the backward pass, without parameters
    softmax_memory: int  # The same for softmax
    parameters: int
    softmax_parameters: int


def measure_cost(mechanism: str, folder: Path) -> Cost:
    probe = PROBES[PROBE]
    path = folder / file_name(mechanism) / f"cost-{probe.digest()}{code_digest(mechanism)}.json"
    if is_file(path):
        return read_json(path, Cost, "delete it to measure again", most=LARGEST)
    with one_thread():
        task = probe.build_task()
        batch = task.sample(probe.batch, make_generator(0, "card/cost"))
        models = [build_model(text, probe, task, 0).train() for text in (mechanism, BASELINE)]
        memory = [_kept_bytes(model, batch) for model in models]
        times: list[list[float]] = [[], []]
        for number in range(-WARM_UP, ROUNDS):
            for model, measured in zip(models, times, strict=True):
                began = time.perf_counter()
                model.zero_grad()
                mean_loss(model, batch).backward()
                if number >= 0:
                    measured.append(time.perf_counter() - began)
    parameters = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    own_median, softmax_median = (round(1000 * statistics.median(measured), 3) for measured in times)
    ratio = round(statistics.median(own / softmax for own, softmax in zip(*times, strict=True)), 3)
    cost = Cost(own_median, softmax_median, ratio, *memory, *parameters)
    make_folder(path.parent)
    write_json(path, dataclasses.asdict(cost))
    return cost


def _kept_bytes(model: DecoderOnly, batch: TokenBatch) -> int:
    """Return the size of all storages that autograd keeps for the backward pass, without parameters."""
    storages: dict[int, int] = {}
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = mean_loss(model, batch)
    total = sum(storages.values())
    del loss  # the graph keeps the storages alive until here, so no address is used twice
    return total


SAVEPATH = "runs/cards"  # Default folder of all cards
SEEDS = 10  # Default number of seeds


@dataclass(frozen=True)
class TestRow:
    """The scores of a mechanism and of softmax in one test."""

    test: str  # Name of the probe, followed by the name of the test, such as `copy x2`
    score: Interval  # Mean score of the mechanism, with the range of the seeds
    softmax: Interval  # Mean score of softmax, with the range of the seeds
    difference: Interval
    """Median of the differences by seed, with an interval that holds for all tests of the card at once."""

    @property
    def shown(self) -> bool:
        return self.difference.excludes_zero


@dataclass(frozen=True)
class Shares:
    """Means over seeds and heads in one probe, for the mechanism and for softmax."""

    probe: str
    relevant: tuple[float, float] | None  # Share of weight on relevant inputs; None if they are not known
    best: tuple[float, float] | None  # The same for the head with the largest share
    first: tuple[float, float]  # Share of weight on the first token, in the second half of the sequence
    entropy: tuple[float, float]  # Entropy of the shares in nats
    total: tuple[float, float]  # Sum of the absolute weights of a row


@dataclass(frozen=True)
class Card:
    """Evidence about one mechanism."""

    mechanism: str
    seeds: int
    steps: int | None  # Number of training steps instead of those of the probes; None for those of the probes
    rows: list[TestRow]
    shares: list[Shares]
    cost: Cost
    claims: list[ClaimResult]
    normalized: bool  # Whether each row of weights sums to 1


def measure_cards(
    mechanisms: Sequence[str], *, seeds: int, steps: int | None, savepath: Path, on: Backend
) -> list[Card]:
    """Train and measure mechanisms and softmax on all probes, and return cards. Results in `savepath` are reused.
    `steps`: for every probe, instead of its own. `on`: the backend; costs are measured on this machine."""
    check_range("seeds", seeds, 1, 1000)
    if steps is not None:
        check_range("steps", steps, 1, 1_000_000)
    names = [Mechanism.parse(mechanism).text for mechanism in mechanisms]
    # Softmax is first, because all cards need it.
    pairs = [(name, probe) for name in (BASELINE, *names) for probe in card_probes()]
    pairs += [pair for name in names for claim in claims_of(name) for pair in claim.measurements]
    results = measure_cells(pairs, seeds, savepath, steps=steps, on=on)
    return [_make_card(name, results, seeds, steps, measure_cost(name, savepath)) for name in names]


def _make_card(mechanism: str, results: Results, seeds: int, steps: int | None, cost: Cost) -> Card:
    tests = [(probe, test) for probe in card_probes() for test in PROBES[probe].tests]
    level = 1 - (1 - LEVEL) / len(tests)
    rows = []
    for probe, test in tests:
        own, softmax = ([result.tests[test].score for result in results[name, probe]] for name in (mechanism, BASELINE))
        difference = median_interval([one - other for one, other in zip(own, softmax, strict=True)], level)
        rows.append(TestRow(f"{probe} {test}".strip(), seed_range(own), seed_range(softmax), difference))
    shares = [_shares(probe, mechanism, results) for probe in card_probes()]
    claims = evaluate_claims(results, claims_of(mechanism), of=len(CLAIMS))
    normalized = results[mechanism, card_probes()[0]][0].normalized
    return Card(mechanism, seeds, steps, rows, shares, cost, claims, normalized)


def _shares(probe: str, mechanism: str, results: Results) -> Shares:
    own, softmax = ([result.tests[""].shares for result in results[name, probe]] for name in (mechanism, BASELINE))

    def both(name: str, summary: Callable[[Any], float] = average_heads) -> tuple[float, float]:
        """Return the mean over seeds of a summary of the heads' shares, for the mechanism and for softmax."""
        return fmean(summary(getattr(s, name)) for s in own), fmean(summary(getattr(s, name)) for s in softmax)

    known = own[0].relevant is not None
    relevant, best = (both("relevant"), both("relevant", lambda heads: max(map(max, heads)))) if known else (None, None)
    return Shares(probe, relevant, best, both("first"), both("entropy"), both("total"))


def points(value: float, *, signed: bool = False) -> str:
    """Return a share as a number of percentage points.

    >>> points(0.123, signed=True)
    '+12.3'
    """
    text = percent(value).removesuffix("%")
    return f"+{text}" if signed and not text.startswith("-") else text


def interval_text(interval: Interval, form: Callable[[float], str] = points) -> str:
    """Return a value and its interval.

    >>> interval_text(Interval(value=0.5, low=0.4, high=0.6))
    '50.0 (40.0 to 60.0)'
    """
    if interval.low is None or interval.high is None:
        return form(interval.value)
    return f"{form(interval.value)} ({form(interval.low)} to {form(interval.high)})"


signed_points = partial(points, signed=True)


def difference_note(card: Card) -> str:
    """Return what the intervals of the differences say, or that the seeds are too few."""
    least = smallest_sample(1 - (1 - LEVEL) / len(card.rows))
    if card.seeds < least:
        return f"Differences have no interval that holds for {len(card.rows)} tests: {least} seeds are needed."
    return "The interval of the median difference (sign test) holds for every distribution, and says nothing of means."


def card_tables(card: Card, *, claims: bool = True) -> Group:
    difference = f"median difference (intervals hold for all {len(card.rows)} at once)"
    scores = plain_table(
        ("probe", card.mechanism, "softmax", difference, ""),
        title=f"{card.mechanism} beside softmax: correct outputs in % (regression: explained "
        f"variance), mean (range of the seeds)",
    )
    for row in card.rows:
        shown = ("higher" if row.difference.value > 0 else "lower") if row.shown else ""
        values = interval_text(row.score), interval_text(row.softmax)
        scores.add_row(row.test, *values, interval_text(row.difference, signed_points), shown)
    scores.caption, scores.caption_justify = f"{describe_range(card.seeds)} {difference_note(card)}", "left"
    if position := Mechanism.parse(card.mechanism).position:
        scores.caption += f"\n{position} replaces the learned positions that softmax has"
    how = "" if card.normalized else "; rows do not sum to 1, so shares are of the absolute weights"
    columns = (
        "probe",
        "on relevant inputs, %",
        "best head, %",
        "on the first token, %",
        "entropy, nats",
        "sum of a row",
    )
    title = f"Where weight goes, {card.mechanism} | softmax (mean over heads and seeds{how})"
    shares = plain_table(columns, title=title)
    for means in card.shares:
        shares.add_row(
            means.probe,
            *(
                "not known" if pair is None else f"{points(pair[0])} | {points(pair[1])}"
                for pair in (means.relevant, means.best, means.first)
            ),
            *(f"{pair[0]:.2f} | {pair[1]:.2f}" for pair in (means.entropy, means.total)),
        )
    cost = card.cost
    sentence = (
        f"Cost of a training step (text, one thread): {cost.ratio:.2f} times the time of softmax "
        f"({cost.milliseconds:.1f} ms and {cost.softmax_milliseconds:.1f} ms), "
        f"{cost.memory / cost.softmax_memory:.2f} times its memory for the backward pass "
        f"({cost.memory / 1e6:.1f} MB), {cost.parameters:,} parameters (softmax {cost.softmax_parameters:,})."
    )
    parts: list[RenderableType] = [scores, "", shares, "", sentence]
    if claims and card.claims:
        parts += ["", claim_table([card])]
    return Group(*parts)


def claim_table(cards: Sequence[Card]) -> Table:
    columns, rows = ("claim", "source", "expected", "median difference", "smallest to see", "verdict"), []
    for result in all_claims(cards):
        claim, smallest = result.claim, "" if result.smallest is None else f"{result.smallest:.3f}"
        numbers = interval_text(result.interval, signed), smallest
        rows.append((f"{claim.name}: {claim.measured}", claim.source, claim.expected, *numbers, result.describe()))
    return plain_table(columns, rows, "Claims of papers")


def all_claims(cards: Sequence[Card]) -> list[ClaimResult]:
    return list({result.claim.name: result for card in cards for result in card.claims}.values())


def overview_table(cards: Sequence[Card]) -> Table:
    """Return one row for each mechanism: the difference to softmax in each test."""
    title = "Correct outputs minus softmax, in percentage points, median over seeds; *: the interval excludes zero"
    rows = (
        (card.mechanism, *(signed_points(row.difference.value) + "*" * row.shown for row in card.rows))
        for card in without_baseline(cards)
    )
    return plain_table(("mechanism", *(row.test for row in cards[0].rows)), rows, title)


def without_baseline(cards: Sequence[Card]) -> Sequence[Card]:
    """Return the cards of other mechanisms than softmax; all cards if there is no other."""
    return [card for card in cards if card.mechanism != BASELINE] or cards


def card_json(card: Card) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain({name: value for name, value in vars(card).items() if name != "claims"})
    plain["claims"] = [
        {
            "claim": result.claim.name,
            "source": result.claim.source,
            "measured": result.claim.measured,
            "expected": result.claim.expected,
            "difference": to_plain(result.interval),
            "smallest": result.smallest,
            "seeds": result.seeds,
            "verdict": result.verdict,
            "unmet": result.unmet,
        }
        for result in card.claims
    ]
    return plain


# The overview picture: mechanisms x tests, the difference to softmax as a color.

DARKEST = 0.5  # Difference of scores with the darkest color


def draw_scores(card: Card, width: float) -> "Figure":
    """Draw the scores of a mechanism and of softmax in each test, with the range of the seeds."""
    from regard.viz.plots import ValueInterval, draw_rows

    names = [row.test + " *" * row.shown for row in card.rows]
    own, softmax = ([getattr(row, name) for row in card.rows] for name in ("score", "softmax"))
    scores = {"softmax": softmax} | ({} if card.mechanism == BASELINE else {card.mechanism: own})
    rows = {
        name: [ValueInterval.of(*pair, 100) for pair in zip(names, values, strict=True)]
        for name, values in scores.items()
    }
    unit = f"correct outputs (regression: explained variance) in %, mean and range of {plural(card.seeds, 'seed')}"
    return draw_rows(
        rows, width, unit + ("; *: the difference is shown" if any(row.shown for row in card.rows) else "")
    )


def draw_overview(cards: Sequence[Card], width: float = 0) -> "Figure":
    """Draw one row per mechanism and one column per test, at least `width` wide. The first row has the scores of
    softmax. Blue is better than softmax, red is worse. Numbers are percentage points, with half the width of the
    interval in small type. A number in bold type with a star has an interval that excludes zero; the interval holds for
    all tests of the mechanism at once."""
    from regard.viz.figure import new_figure  # matplotlib is slow to import
    from regard.viz.plots import better_colours, letter_colour

    tests = [row.test for row in cards[0].rows]
    cards = without_baseline(cards)
    values = np.array([[0.0] * len(tests), *([row.difference.value for row in card.rows] for card in cards)])
    figure = new_figure(max(3.2 + 0.62 * len(tests), width), 1.8 + 0.32 * len(values))
    axes = figure.subplots()
    axes.imshow(values, cmap=better_colours(), vmin=-DARKEST, vmax=DARKEST, aspect="auto")
    for column, row in enumerate(cards[0].rows):
        axes.text(column, 0, f"{100 * row.softmax.value:.0f} %", ha="center", va="center", fontsize=8)
    for number, card in enumerate(cards, start=1):
        for column, row in enumerate(card.rows):
            value = row.difference.value
            text, weight = f"{round(100 * value):+d}" + "*" * row.shown, "bold" if row.shown else "normal"
            style: dict[str, Any] = {"ha": "center", "color": letter_colour(value / DARKEST)}
            axes.text(column, number, text, va="bottom", fontsize=8, fontweight=weight, linespacing=0.8, **style)
            if row.difference.low is not None and row.difference.high is not None:
                half = 50 * (row.difference.high - row.difference.low)
                axes.text(column, number + 0.08, f"±{half:.0f}", va="top", fontsize=6, **style)
    axes.set_xticks(range(len(tests)), tests, rotation=40, ha="left", fontsize=9)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(values)), ["softmax: score", *(card.mechanism for card in cards)], fontsize=9)
    axes.tick_params(length=0)
    axes.set_xlabel(
        "correct outputs (regression: explained variance) minus softmax, in percentage points, "
        f"over seeds 0 to {cards[0].seeds - 1}\n"
        "blue: better; red: worse; ±: half the interval; * and bold: the interval excludes zero",
        fontsize=9,
    )
    return figure


METHOD = (
    "Each mechanism is trained beside softmax with the same data, the same initial values where parameters have "
    "the same shape, and the same training steps. Models have 2 layers, width 32 and 4 heads; a mechanism "
    "without positions has learned positions. Differences are paired by seed. "
    "Scores are fractions of correct outputs; for regression, the explained fraction of the "
    "variance. Results of models of this size "
    "need not hold for large models."
)


def write_page(cards: Sequence[Card], path: str | Path) -> Path:
    """Write a page with the picture and all tables, and return its path."""
    path, title = Path(path), f"Attention mechanism: {cards[0].mechanism}"
    parts: list[Part] = [METHOD, steps_note(cards[0])]
    if len(cards) == 1:
        says = f"Scores of {cards[0].mechanism} and of softmax in each test; the table has the numbers"
        parts = [Plot(partial(draw_scores, cards[0]), says), *parts, card_tables(cards[0])]
    else:
        says = "Differences to softmax: rows are mechanisms, columns tests"
        parts.insert(0, Plot(partial(draw_overview, cards), says))
        title = f"{len(cards)} attention mechanisms"
        parts += [overview_table(cards), claim_table(cards)]
        parts += [card_tables(card, claims=False) for card in cards]
    parts += [f"{name}: {PROBES[name].summary}." for name in card_probes()]
    write_file(path, render_page(title, parts).encode())
    return path


def steps_note(card: Card) -> str:
    return "" if card.steps is None else f"All probes were trained for {plural(card.steps, 'step')} only."
