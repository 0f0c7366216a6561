"""The card of a mechanism: scores beside softmax, cost, where weight goes, and the claims of papers.

A claim is a difference for each seed and the sign that the paper expects. The verdict comes from the interval of
the mean difference over seeds, at a level that holds for all claims at once (Bonferroni):

    reproduced               the interval excludes zero, on the expected side
    contradicted             the interval excludes zero, on the other side
    not seen at this size    the interval contains zero
"""

import dataclasses
import statistics
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import torch
from torch import Tensor

from regard.attention.mechanism import Mechanism
from regard.errors import check_range
from regard.io import is_file, make_folder, read_json, write_json
from regard.models.decoder_only import DecoderOnly
from regard.statistics import LEVEL, Interval, paired_interval, seed_range
from regard.streams import make_generator
from regard.sweep.backends import Backend
from regard.tasks.batch import TokenBatch
from regard_lab.cards.cells import LARGEST, Results, code_digest, file_name, measure_cells
from regard_lab.cards.probe_training import (
    BASELINE,
    ProbeResult,
    average_heads,
    build_model,
    mean_loss,
    one_thread,
)
from regard_lab.cards.probes import PROBES, card_probes

MECHANISMS = (
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
"""Mechanisms of `regard card --all`. A mechanism without a position part has learned positions."""


Verdict = Literal["reproduced", "not seen at this size", "contradicted", "unknown with one seed"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a paper, and the experiment that tests it."""

    name: str
    """The claim in one sentence."""
    source: str
    """Paper and section."""
    mechanisms: tuple[str, ...]
    """Mechanisms on whose cards the claim is shown."""
    needs: tuple[tuple[str, str], ...]
    """Measurements that the difference uses: pairs of a mechanism and a probe."""
    measured: str
    """What the difference is, with its unit."""
    value: str
    """What is compared: a name of `VALUES` or `DIFFERENCES`."""
    expected: Literal["above 0", "below 0"]
    """Sign of the difference if the claim holds."""

    def difference(self, results: Results) -> list[float]:
        """Return one difference per seed: the mean over pairs of needs of the first value less the second."""
        if self.value in DIFFERENCES:
            return DIFFERENCES[self.value](results)
        value = VALUES[self.value]
        pairs = [
            [value(one) - value(other) for one, other in zip(results[first], results[second], strict=True)]
            for first, second in zip(self.needs[::2], self.needs[1::2], strict=True)
        ]
        return [fmean(row) for row in zip(*pairs, strict=True)]


BEST_OF_TEN = 0.05
"""Amount by which the best seed must exceed the mean of the seeds to count as misleading."""


def _irrelevant(result: ProbeResult) -> float:
    relevant = result.tests[""].shares.relevant
    assert relevant is not None, "the probe has known relevance"
    return 1 - average_heads(relevant)


def _entropy_growth(result: ProbeResult) -> float:
    longer, trained = (average_heads(result.tests[test].shares.entropy) for test in ("x4", ""))
    return longer / max(trained, 1e-9)


def _width_effect(results: Results) -> list[float]:
    """Return how much more the linear mechanism gains from width 32 than softmax, over 4 and 8 pairs."""

    def gains(name: str) -> list[float]:
        by_pairs = [
            [
                wide.tests[""].score - narrow.tests[""].score
                for wide, narrow in zip(*(results[name, f"mqar{n}_width{w}"] for w in (32, 16)), strict=True)
            ]
            for n in (4, 8)
        ]
        return [fmean(row) for row in zip(*by_pairs, strict=True)]

    return [linear - softmax for linear, softmax in zip(gains("linear"), gains(BASELINE), strict=True)]


def _best_above_mean(results: Results) -> list[float]:
    scores = [result.tests[""].score for result in results[BASELINE, "parity"]]
    return [max(scores) - score - BEST_OF_TEN for score in scores]


VALUES: dict[str, Callable[[ProbeResult], float]] = {
    "score": lambda result: result.tests[""].score,
    "score_x2": lambda result: result.tests["x2"].score,
    "remaining": lambda result: result.tests["x2"].score / max(result.tests[""].score, 1e-9),
    "first_token": lambda result: average_heads(result.tests[""].shares.first),
    "irrelevant": _irrelevant,
    "entropy_growth": _entropy_growth,
}
"""Values of a measurement, of a probe at the length of training, or at two or four times this length."""
DIFFERENCES: dict[str, Callable[[Results], list[float]]] = {
    "width_effect": _width_effect,
    "best_above_mean": _best_above_mean,
}
"""Differences that combine several measurements in another way."""


def _read_claims() -> tuple[Claim, ...]:
    table = tomllib.loads(files("regard_lab.cards").joinpath("claims.toml").read_text(encoding="utf-8"))
    return tuple(
        Claim(**{**row, "mechanisms": tuple(row["mechanisms"]), "needs": tuple(map(tuple, row["needs"]))})
        for row in table["claims"]
    )


CLAIMS = _read_claims()
"""All claims."""


def claims_of(mechanism: str) -> list[Claim]:
    """Return the claims about a mechanism.

    >>> [claim.expected for claim in claims_of("sink")]
    ['below 0']
    """
    return [claim for claim in CLAIMS if mechanism in claim.mechanisms]


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """The outcome of a claim's experiment."""

    claim: Claim
    interval: Interval
    """Mean difference over seeds, with an interval that holds for all claims at once."""
    seeds: int

    @property
    def verdict(self) -> Verdict:
        """The verdict; see the module."""
        if self.seeds < 2:
            return "unknown with one seed"
        if not self.interval.excludes_zero:
            return "not seen at this size"
        return "reproduced" if (self.interval.value > 0) == (self.claim.expected == "above 0") else "contradicted"

    @property
    def smallest(self) -> float | None:
        low, high = self.interval.low, self.interval.high
        return None if low is None or high is None else (high - low) / 2


def evaluate_claims(results: Results, claims: Sequence[Claim], *, of: int) -> list[ClaimResult]:
    """Return the outcome of each claim, with intervals that hold for `of` claims at once."""
    level = 1 - (1 - LEVEL) / of
    outcomes = []
    for claim in claims:
        values = claim.difference(results)
        outcomes.append(ClaimResult(claim=claim, interval=paired_interval(values, level), seeds=len(values)))
    return outcomes


# The cost of a mechanism beside softmax: step time, memory for the backward pass, parameters.
#
# The model is that of the probe `text`. Step times of both models are measured in turns in one process, so that
# other work on the machine affects both.

PROBE = "text"
ROUNDS = 40
"""Number of steps of each model whose time is measured."""
WARM_UP = 5
"""Number of steps of each model before these."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a mechanism, and that of softmax."""

    milliseconds: float
    """Median time of a training step without the optimizer, on one thread."""
    softmax_milliseconds: float
    """The same for softmax."""
    ratio: float
    """Median of the ratios of two successive steps, the mechanism's to softmax's."""
    memory: int
    """Bytes of the tensors that a training step keeps for the backward pass, without parameters."""
    softmax_memory: int
    """The same for softmax."""
    parameters: int
    softmax_parameters: int


def measure_cost(mechanism: str, folder: Path) -> Cost:
    """Return the stored cost of a mechanism beside softmax, or measure and store it."""
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
    cost = Cost(
        milliseconds=round(1000 * statistics.median(times[0]), 3),
        softmax_milliseconds=round(1000 * statistics.median(times[1]), 3),
        ratio=round(statistics.median(one / other for one, other in zip(*times, strict=True)), 3),
        memory=memory[0],
        softmax_memory=memory[1],
        parameters=parameters[0],
        softmax_parameters=parameters[1],
    )
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


def measure_cards(
    mechanisms: Sequence[str], *, seeds: int, steps: int | None, savepath: Path, on: Backend
) -> list[Card]:
    """Train and measure mechanisms and softmax on all probes, and return the cards of the mechanisms.

    Stored results in `savepath` are reused. `steps`: number of training steps for every probe, instead of its
    own. `on`: the backend. Costs are always measured on this machine.

    Raises `InputError` for a mechanism that does not exist or does not fit the models.
    """
    check_range("seeds", seeds, 1, 1000)
    if steps is not None:
        check_range("steps", steps, 1, 1_000_000)
    names = [Mechanism.parse(mechanism).text for mechanism in mechanisms]
    # Softmax is first, because all cards need it.
    pairs = [(name, probe) for name in (BASELINE, *names) for probe in card_probes()]
    pairs += [pair for name in names for claim in claims_of(name) for pair in claim.needs]
    results = measure_cells(pairs, seeds, savepath, steps=steps, on=on)
    return [_make_card(name, results, seeds, steps, measure_cost(name, savepath)) for name in names]


def _make_card(mechanism: str, results: Results, seeds: int, steps: int | None, cost: Cost) -> Card:
    tests = [(probe, test) for probe in card_probes() for test in PROBES[probe].tests]
    level = 1 - (1 - LEVEL) / len(tests)
    rows = []
    for probe, test in tests:
        own, softmax = ([result.tests[test].score for result in results[name, probe]] for name in (mechanism, BASELINE))
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
    own, softmax = ([result.tests[""].shares for result in results[name, probe]] for name in (mechanism, BASELINE))

    def both(name: str, summary: Callable[[Any], float] = average_heads) -> tuple[float, float]:
        """Return the mean over seeds of a summary of the heads' shares, for the mechanism and for softmax."""
        return fmean(summary(getattr(s, name)) for s in own), fmean(summary(getattr(s, name)) for s in softmax)

    known = own[0].relevant is not None
    return Shares(
        probe=probe,
        relevant=both("relevant") if known else None,
        best=both("relevant", lambda heads: max(map(max, heads))) if known else None,
        first=both("first"),
        entropy=both("entropy"),
        total=both("total"),
    )
