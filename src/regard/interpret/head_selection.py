"""Select the attention heads that best align source and target words.

Pairs with known links are split at random into two halves. The heads are selected on the first half, and their
alignment error rate is reported on the second half. Candidates are single heads, sets of heads whose weights are
averaged (grown greedily), and all heads together. The weights of each candidate are read at the step that writes a
word, and at the step that reads the word (see `regard.interpret.alignment`, which also explains the letters in the
shapes).

    precision = |A and P| / |A|      recall = |A and S| / |S|
    alignment error rate = 1 - (|A and S| + |A and P|) / (|A| + |S|)      Och and Ney 2003, equations 11 to 13

A, S and P are the sets of predicted links, sure reference links and possible reference links. Counts are summed over
all sentences. Intervals are those of counts that depend on each other within a sentence (Korn and Graubard 1998, see
`regard.statistics`): a bootstrap over ten sentences covers an error rate of 0.5 % in 37 % of cases only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from regard.arguments import public
from regard.attention.names import short_name
from regard.data.word_alignment import Link, WordAlignment
from regard.errors import InputError, plural
from regard.interpret.alignment import Head, extract_links
from regard.interpret.estimates import Estimate
from regard.result import Result, percent
from regard.statistics import ratio_interval

if TYPE_CHECKING:
    from rich.console import RenderableType


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Agreement(Result):
    """Agreement of predicted links with reference links; a ratio without a denominator is None."""

    error_rate: Estimate | None
    """Alignment error rate. 0: all sure links and only possible links were predicted; 1: all predicted links are
    incorrect."""
    precision: Estimate | None
    """Fraction (0 to 1) of the predicted links that are possible."""
    recall: Estimate | None
    """Fraction (0 to 1) of the sure links that were predicted."""


def count_links(predicted: frozenset[Link], known: WordAlignment) -> tuple[int, int, int, int]:
    """Return |A|, |S|, |A and S| and |A and P| of one sentence pair.

    >>> count_links(frozenset({(0, 0), (1, 2)}), WordAlignment.of([(0, 0)], [(1, 1)]))
    (2, 1, 1, 1)
    """
    return len(predicted), len(known.sure), len(predicted & known.sure), len(predicted & known.possible)


def alignment_error_rate(counts: np.ndarray) -> np.ndarray:
    """Return the error rate for counts (..., 4) from `count_links`, summed over sentences.

    The rate is 1 if the counts contain neither predicted nor sure links.

    >>> float(alignment_error_rate(np.array([2, 1, 1, 1])).round(3))
    0.333
    """
    predicted, sure, hits, possible = np.moveaxis(counts, -1, 0)
    total = predicted + sure
    # A head without links gets the worst rate, 1, instead of NaN, so that it is last in a comparison.
    rate: np.ndarray = 1 - np.divide(hits + possible, total, out=np.zeros(total.shape), where=total > 0)
    return rate


def agreement(predicted: Sequence[frozenset[Link]], known: Sequence[WordAlignment]) -> Agreement:
    counts = np.array([count_links(*pair) for pair in zip(predicted, known, strict=True)])
    links, sure, hits, possible = counts.T.astype(np.float64)
    return Agreement(
        error_rate=_ratio(links + sure - hits - possible, links + sure),
        precision=_ratio(possible, links),
        recall=_ratio(hits, sure),
    )


def _ratio(part: np.ndarray, whole: np.ndarray) -> Estimate | None:
    # Each rate is a ratio of sums, not a mean of ratios, so that long sentences count more, as in the definition.
    interval = ratio_interval(part, whole)
    if interval is None or interval.low is None or interval.high is None:
        return None
    return Estimate(mean=interval.value, low=interval.low, high=interval.high)


MAX_HEADS = 8  # Largest number of heads in a set
MIN_PAIRS = 20  # Smallest number of pairs in both halves together
By = Literal["head", "set", "all"]
STEP_NAMES = {False: "as it is written", True: "with the word itself"}
METHODS: dict[By, str] = {"head": "best head", "set": "set of heads", "all": "all heads"}


@public
@dataclass(frozen=True, kw_only=True)
class AligningHeads:
    """A set of heads whose averaged weights link each target word to a source word."""

    heads: tuple[Head, ...]
    shifted: bool
    """Whether the weights of a word are read at the step that reads the word, instead of the step that writes it."""

    @property
    def name(self) -> str:
        """Names of the heads, and the step at which their weights are read."""
        if len(self.heads) > 1:
            return f"mean of {len(self.heads)} heads"
        [(layer, head)] = self.heads
        return f"{short_name(layer)} {head}"

    def __str__(self) -> str:
        names = ", ".join(f"{short_name(layer)} {head}" for layer, head in self.heads[:MAX_HEADS])
        more = len(self.heads) - MAX_HEADS
        return f"{names}{f' and {more} more' if more > 0 else ''}, {STEP_NAMES[self.shifted]}"


@public
@dataclass(frozen=True, kw_only=True)
class KeptHeads:
    """The selection that is stored with a run."""

    best: By
    """The method with the lowest error rate on the pairs used for the selection."""
    ways: dict[By, AligningHeads]
    """The selected heads by method."""
    writing: AligningHeads
    """The best single head if weights are read at the step that writes a word. Some programs support only a
    single head and only this step."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class AlignmentChoice(Result, KeptHeads):
    """The selected heads, and their quality on pairs that were not used for the selection."""

    against: str
    """The name of the reference alignment."""
    chosen_on: int
    """Number of pairs used for the selection."""
    reported_on: int
    """Number of pairs used for the report."""
    found: dict[str, Agreement]
    """Quality of each method and of the baselines on the reported pairs."""
    heads: tuple[Head, ...]
    """All heads that attend to the source."""
    error_rates: np.ndarray
    """Error rates (2, C) of the heads on the reported pairs: at the step that writes a word, and at the step that reads
    it."""

    def table(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        methods = Table("", "error rate", "precision", "recall", box=None, pad_edge=False)
        for name, quality in self.found.items():
            methods.add_row(name, *map(_cell, (quality.error_rate, quality.precision, quality.recall)))
        all_heads = Table("error rate of each head", *STEP_NAMES.values(), box=None, pad_edge=False)
        for (layer, head), rates in zip(self.heads, self.error_rates.T, strict=True):
            all_heads.add_row(f"{short_name(layer)} {head}", *map(percent, rates))
        caption = (
            f"Alignment error rate, precision and recall against {self.against}, on "
            f"{plural(self.reported_on, 'pair')}, with 95 % intervals over the pairs. Selected on "
            f"{self.chosen_on:,} other pairs: {METHODS[self.best]}, {self.ways[self.best]}."
        )
        return Group(methods, Text(""), all_heads, Text(""), Text(caption))


def _cell(estimate: Estimate | None) -> str:
    """Format a fraction as 33.7% (32.4-35.1), so that three such texts fit into one line."""
    if estimate is None:
        return "none"
    return f"{percent(estimate.mean)} ({100 * estimate.low:.1f}-{100 * estimate.high:.1f})"


def choose_heads(
    weights: Sequence[np.ndarray],
    heads: Sequence[Head],
    known: Sequence[WordAlignment],
    *,
    against: str,
    beside: Callable[[Sequence[int], AligningHeads], dict[str, Sequence[frozenset[Link]]]] | None = None,
    seed: int = 0,
) -> AlignmentChoice:
    """Select the heads that best align source and target words, and report their quality on other pairs.

    `weights`: one array per pair, as `word_weights` yields them. `known`: the reference links of each pair.
    `seed`: draws the two halves. `beside`: a function from the indices of the reported pairs and the selected
    heads to the links of further aligners by name, which the report includes.

    Raises `InputError` for fewer than 20 pairs.
    """
    if len(known) < MIN_PAIRS:
        raise InputError(
            f"too few pairs to choose heads ({len(known)}): give at least {MIN_PAIRS}, preferably hundreds"
        )
    # Heads are selected and reported on different pairs: the error rate of the best of many heads is biased on
    # the pairs of the selection.
    order = np.random.default_rng(seed).permutation(len(known)).tolist()
    selection, others = sorted(order[: len(known) // 2]), sorted(order[len(known) // 2 :])
    counts = np.stack([_count_links(array, links) for array, links in zip(weights, known, strict=True)])
    pairs = [(weights[pair], known[pair]) for pair in selection]
    rates = alignment_error_rate(counts[selection].sum(0))  # (2, C)
    shift, best = np.unravel_index(rates.argmin(), rates.shape)
    ways: dict[By, AligningHeads] = {"head": AligningHeads(heads=(heads[int(best)],), shifted=bool(shift))}
    errors: dict[By, float] = {"head": float(rates.min())}
    sets = [(*_grow_set(pairs, shifted, int(rates[shifted].argmin())), bool(shifted)) for shifted in (0, 1)]
    # The step is chosen for each method: averages of heads that read at different steps mean nothing.
    errors["set"], indices, shifted = min(sets, key=lambda candidate: candidate[0])
    ways["set"] = AligningHeads(heads=tuple(heads[index] for index in indices), shifted=shifted)
    all_indices = range(len(heads))
    errors["all"], shifted = min((_error_rate(pairs, all_indices, flag), flag) for flag in (False, True))
    ways["all"] = AligningHeads(heads=tuple(heads), shifted=shifted)
    method = min(ways, key=lambda way: errors[way])  # the first, so the simplest, of equally good methods
    report = [(weights[pair], known[pair]) for pair in others]
    quality = {METHODS[way]: _report(report, heads, selected) for way, selected in ways.items()}
    for shifted in (False, True):
        # The baseline is the mean over the last layer, the usual choice without a selection.
        last = [head for head in heads if head[0] == heads[-1][0]]
        baseline = AligningHeads(heads=tuple(last), shifted=shifted)
        quality["last layer, itself" if shifted else "last layer"] = _report(report, heads, baseline)
    for name, links in (beside(others, ways[method]) if beside else {}).items():
        quality[name] = agreement(links, [known[pair] for pair in others])
    return AlignmentChoice(
        against=against,
        chosen_on=len(selection),
        reported_on=len(others),
        best=method,
        ways=ways,
        writing=AligningHeads(heads=(heads[int(rates[0].argmin())],), shifted=False),
        found=quality,
        heads=tuple(heads),
        error_rates=alignment_error_rate(counts[others].sum(0)),
    )


def combine_heads(weights: np.ndarray, heads: Sequence[Head], chosen: AligningHeads) -> np.ndarray:
    """Return the mean weights (Wt, Ws + 1) of the `chosen` heads, from `weights` (2, C, Wt, Ws + 1) of `heads`."""
    # Weights are averaged before the links are read, so that heads that agree on a word outvote a single head.
    indices = [list(heads).index(head) for head in chosen.heads]
    mean: np.ndarray = weights[int(chosen.shifted), indices].mean(0)
    return mean


LinkedPairs = Sequence[tuple[np.ndarray, WordAlignment]]
"""Pairs as their word weights (2, C, Wt, Ws + 1) and their known links."""


def _report(pairs: LinkedPairs, heads: Sequence[Head], chosen: AligningHeads) -> Agreement:
    links = [extract_links(combine_heads(weights, heads, chosen)) for weights, _ in pairs]
    return agreement(links, [known for _, known in pairs])


def _count_links(weights: np.ndarray, known: WordAlignment) -> np.ndarray:
    """Return |A|, |S|, |A and S| and |A and P| (..., 4) of the links from weights (..., Wt, Ws + 1)."""
    *_, targets, sources = weights.shape
    kinds = np.zeros((2, targets, sources), dtype=bool)
    for kind, links in zip(kinds, (known.sure, known.possible), strict=True):
        for source, target in links:
            kind[target, source] = True
    best = weights.argmax(-1)
    hits, possible = (kind[np.arange(targets), best].sum(-1) for kind in kinds)
    predicted = (best != sources - 1).sum(-1)
    return np.stack([predicted, np.full_like(predicted, len(known.sure)), hits, possible], -1)


def _error_rate(pairs: LinkedPairs, indices: Sequence[int], shifted: bool) -> float:
    counts = sum(_count_links(weights[int(shifted), list(indices)].mean(0), known) for weights, known in pairs)
    return float(alignment_error_rate(np.asarray(counts)))


def _grow_set(pairs: LinkedPairs, shifted: int, first: int) -> tuple[float, list[int]]:
    """Grow a set of heads greedily from the best head; return its error rate and the indices of its heads."""
    indices, error = [first], _error_rate(pairs, [first], bool(shifted))
    sums = [weights[shifted, first].copy() for weights, _ in pairs]
    while len(indices) < MAX_HEADS:
        # A sum and a mean have the same largest entries, so the sum is not divided.
        counts = sum(
            _count_links(weights[shifted] + total, known) for (weights, known), total in zip(pairs, sums, strict=True)
        )
        rates = alignment_error_rate(np.asarray(counts))
        rates[indices] = 2  # above every error rate: a head joins only once
        best = int(rates.argmin())
        if rates[best] >= error:  # further heads would describe the pairs of the selection only
            break
        indices, error = [*indices, best], float(rates[best])
        sums = [total + weights[shifted, best] for (weights, _), total in zip(pairs, sums, strict=True)]
    return error, indices
