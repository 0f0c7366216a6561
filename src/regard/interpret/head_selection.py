"""Which heads align: chosen by known links on one half of some pairs, drawn at random, and reported on the other.

Asked are single heads, sets of heads whose weights are averaged, each added because it helps most, and all heads;
each at the step that writes a word and at the one that is fed it (see `linking`). Letters are those of `linking`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from regard.attention import short_name
from regard.data.links import KnownLinks, Link
from regard.errors import InputError
from regard.interpret.agreement import Agreement, agreement, alignment_error_rate
from regard.interpret.estimates import Estimate
from regard.interpret.word_links import Head, extract_links
from regard.result import Result

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_HEADS = 8
"""In a set."""
MIN_PAIRS = 20
"""Pairs by which heads are chosen, at least, those included by which they are reported."""
By = Literal["head", "set", "all"]
ASKED = {False: "as it is written", True: "with the word itself"}
WAYS: dict[By, str] = {"head": "best head", "set": "set of heads", "all": "all heads"}


@dataclass(frozen=True, kw_only=True)
class AligningHeads:
    """Heads whose averaged weights say which source word a target word comes from."""

    heads: tuple[Head, ...]
    shifted: bool
    """Whether a step asks with the word itself, having been fed it; else the step counts that writes it."""

    @property
    def name(self) -> str:
        """What their weights are called: of one head, or their mean."""
        if len(self.heads) > 1:
            return f"mean of {len(self.heads)} heads"
        [(layer, head)] = self.heads
        return f"{short_name(layer)} {head}"

    def __str__(self) -> str:
        named = ", ".join(f"{short_name(layer)} {head}" for layer, head in self.heads[:MOST_HEADS])
        more = len(self.heads) - MOST_HEADS
        return f"{named}{f' and {more} more' if more > 0 else ''}, {ASKED[self.shifted]}"


@dataclass(frozen=True, kw_only=True)
class KeptHeads:
    """The choice that a run keeps."""

    best: By
    ways: dict[By, AligningHeads]
    writing: AligningHeads
    """The best head of those that are asked at the step that writes a word."""


@dataclass(frozen=True, kw_only=True, repr=False)
class AlignmentChoice(Result):
    """Which heads align best, and how well they do on pairs by which they were not chosen."""

    against: str
    """What they are held against, for people."""
    chosen_on: int
    """Pairs by which they were chosen."""
    reported_on: int
    best: By
    """Which way had the lowest error rate where they were chosen."""
    ways: dict[By, AligningHeads]
    writing: AligningHeads
    """The best head of those that are asked at the step that writes a word, for programs that know no other."""
    found: dict[str, Agreement]
    """For each way, and for others beside it, how well it does on the other pairs."""
    heads: tuple[Head, ...]
    """All heads that read the source."""
    error_rates: np.ndarray
    """(2, C), of each head on the other pairs: as a word is written, and with the word itself."""

    def table(self) -> "RenderableType":
        """Return how well each way does, and then each head."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        ways = Table("", "error rate", "precision", "recall", box=None, pad_edge=False)
        for name, each in self.found.items():
            ways.add_row(name, *map(_cell, (each.error_rate, each.precision, each.recall)))
        all_heads = Table("error rate of each head", *ASKED.values(), box=None, pad_edge=False)
        for (layer, head), rates in zip(self.heads, self.error_rates.T, strict=True):
            all_heads.add_row(f"{short_name(layer)} {head}", *(f"{rate:.1%}" for rate in rates))
        told = (
            f"Alignment error rate, precision and recall against {self.against}, on {self.reported_on:,} pairs, "
            f"with 95 % intervals over them. Chosen on {self.chosen_on:,} others: {WAYS[self.best]}, "
            f"{self.ways[self.best]}."
        )
        return Group(ways, Text(""), all_heads, Text(""), Text(told))


def _cell(estimate: Estimate | None) -> str:
    """Return an estimate of a share as 33.7% (32.4-35.1), which leaves room for three in a line."""
    if estimate is None:
        return "none"
    return f"{estimate.mean:.1%} ({100 * estimate.low:.1f}-{100 * estimate.high:.1f})"


def choose_heads(
    weights: Sequence[np.ndarray],
    heads: Sequence[Head],
    known: Sequence[KnownLinks],
    *,
    against: str,
    beside: Callable[[Sequence[int], AligningHeads], dict[str, Sequence[frozenset[Link]]]] | None = None,
    seed: int = 0,
) -> AlignmentChoice:
    """Return which heads align best, and how well.

    `weights`: of each pair as `word_weights` yields them; `known`: its links. One half, drawn by
    `seed`, chooses; the other reports. `beside`: what else is to be reported, by name: the links of those pairs
    whose numbers are given, with the heads that were chosen. Raises `InputError` where there are too few pairs.
    """
    if len(known) < MIN_PAIRS:
        raise InputError(
            f"{len(known)} pairs are too few to choose heads by: give {FEWEST} or more, better hundreds"
        )
    order = np.random.default_rng(seed).permutation(len(known)).tolist()
    chosen_by, others = sorted(order[: len(known) // 2]), sorted(order[len(known) // 2 :])
    counts = np.stack([_tallies(each, links) for each, links in zip(weights, known, strict=True)])
    some = [(weights[pair], known[pair]) for pair in chosen_by]
    rates = alignment_error_rate(counts[chosen_by].sum(0))  # (2, C)
    shift, best = np.unravel_index(rates.argmin(), rates.shape)
    ways: dict[By, AligningHeads] = {"head": AligningHeads(heads=(heads[int(best)],), shifted=bool(shift))}
    errors: dict[By, float] = {"head": float(rates.min())}
    sets = [(*_grown(some, shifted, int(rates[shifted].argmin())), bool(shifted)) for shifted in (0, 1)]
    errors["set"], places, shifted = min(sets, key=lambda each: each[0])
    ways["set"] = AligningHeads(heads=tuple(heads[place] for place in places), shifted=shifted)
    everything = range(len(heads))
    errors["all"], shifted = min((_error(some, everything, bool(each)), bool(each)) for each in (0, 1))
    ways["all"] = AligningHeads(heads=tuple(heads), shifted=shifted)
    chosen = min(ways, key=lambda way: errors[way])  # of equal ones the simplest
    report = [(weights[pair], known[pair]) for pair in others]
    found = {WAYS[way]: _report(report, heads, each, seed) for way, each in ways.items()}
    for shifted in (False, True):
        last = [head for head in heads if head[0] == heads[-1][0]]
        usual = AligningHeads(heads=tuple(last), shifted=shifted)
        found["last layer, itself" if shifted else "last layer"] = _report(report, heads, usual, seed)
    for name, links in (beside(others, ways[chosen]) if beside else {}).items():
        found[name] = agreement(links, [known[pair] for pair in others], seed=seed)
    return AlignmentChoice(
        against=against,
        chosen_on=len(chosen_by),
        reported_on=len(others),
        best=chosen,
        ways=ways,
        writing=AligningHeads(heads=(heads[int(rates[0].argmin())],), shifted=False),
        found=found,
        heads=tuple(heads),
        error_rates=alignment_error_rate(counts[others].sum(0)),
    )


def combine_heads(weights: np.ndarray, heads: Sequence[Head], chosen: AligningHeads) -> np.ndarray:
    """Return what target words attend to by the heads chosen of `heads`, (Wt, Ws + 1), of (2, C, Wt, Ws + 1)."""
    places = [list(heads).index(head) for head in chosen.heads]
    found: np.ndarray = weights[int(chosen.shifted), places].mean(0)
    return found


Asked = Sequence[tuple[np.ndarray, KnownLinks]]
"""Pairs by what their words attend to, with their known links."""


def _report(pairs: Asked, heads: Sequence[Head], chosen: AligningHeads, seed: int) -> Agreement:
    links = [extract_links(combine_heads(weights, heads, chosen)) for weights, _ in pairs]
    return agreement(links, [known for _, known in pairs], seed=seed)


def _tallies(weights: np.ndarray, known: KnownLinks) -> np.ndarray:
    """Return |A|, |S|, |A and S| and |A and P| of every head's links, (..., 4), of weights (..., Wt, Ws + 1)."""
    *_, targets, sources = weights.shape
    kinds = np.zeros((2, targets, sources), dtype=bool)
    for kind, links in zip(kinds, (known.sure, known.possible), strict=True):
        for source, target in links:
            kind[target, source] = True
    best = weights.argmax(-1)
    hits, possible = (kind[np.arange(targets), best].sum(-1) for kind in kinds)
    found = (best != sources - 1).sum(-1)
    return np.stack([found, np.full_like(found, len(known.sure)), hits, possible], -1)


def _error(pairs: Asked, places: Sequence[int], shifted: bool) -> float:
    """Return the error rate of some heads together."""
    counts = sum(_tallies(weights[int(shifted), list(places)].mean(0), known) for weights, known in pairs)
    return float(alignment_error_rate(np.asarray(counts)))


def _grown(pairs: Asked, shifted: int, first: int) -> tuple[float, list[int]]:
    """Return a set of heads that begins with the best one, to which are added those that help most; and its error
    rate."""
    places, error = [first], _error(pairs, [first], bool(shifted))
    sums = [weights[shifted, first].copy() for weights, _ in pairs]
    while len(places) < MOST_HEADS:
        counts = sum(
            _tallies(weights[shifted] + total, known) for (weights, known), total in zip(pairs, sums, strict=True)
        )
        rates = alignment_error_rate(np.asarray(counts))
        rates[places] = 2
        best = int(rates.argmin())
        if rates[best] >= error:
            break
        places, error = [*places, best], float(rates[best])
        sums = [total + weights[shifted, best] for (weights, _), total in zip(pairs, sums, strict=True)]
    return error, places
