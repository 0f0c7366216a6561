"""Agreement of attention with what is known: the inputs that an answer depends on, and links between words.

A task defines the inputs on which each output depends. The relevance of a head is its attention mass on these
inputs. For uniform attention, this mass equals the fraction of relevant inputs in the sequence. Output steps that
depend on no input of the sample (the count of a letter that does not occur) are left out.

The alignment error rate of a layer tells whether the largest weight of each target step is on the source step from
which it originates. A is the set of predicted links: for each target step with a known origin, the source step with
the largest weight. P is the set of possible links: all source steps from which the target step originates. S is the
set of sure links: the possible links of target steps with a single origin.

    precision = |A and P| / |A|      recall = |A and S| / |S|
    alignment error rate = 1 - (|A and S| + |A and P|) / (|A| + |S|)      Och and Ney 2003, equations 11 to 13

Heads that align words are selected with pairs whose links are known; see `choose_heads`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import public
from regard.attention.functional import uniform_weights
from regard.attention.interventions import record_own
from regard.attention.names import short_name
from regard.data.batch import PairBatch, collate
from regard.data.tokenization import TokenizedText, Unit, tokenize
from regard.data.vocabulary import Vocabulary
from regard.data.word_alignment import Link, WordAlignment
from regard.errors import InputError, plural
from regard.interpret.estimates import Estimate
from regard.models.base import AnswerModel, Seq2Seq
from regard.result import Result, percent, plain_table
from regard.statistics import Interval, ratio_interval
from regard.tasks.base import Task
from regard.tasks.batch import Batch
from regard.tasks.pairs import Pair, PairTask, alignment_mask

if TYPE_CHECKING:
    from rich.console import RenderableType


@public
@dataclass(frozen=True, kw_only=True)
class RelevanceShare:
    """Mean attention mass (0 to 1) on the relevant inputs."""

    heads: list[float]
    """Mean attention mass of each head."""
    uniform: float
    """Mean attention mass under uniform attention."""


@torch.inference_mode()
def relevance_share(model: AnswerModel, task: Task, batches: Iterable[Batch]) -> RelevanceShare:
    """Return the relevance of each head, averaged over all output steps that depend on any input. Measures the first
    layer of the model in which outputs attend to inputs."""
    layer, heads, uniform = model.cross_layers[0], [], []
    for inputs, _, mask in batches:
        with record_own(model, layers=[layer]) as records:
            model(inputs, mask)
        cross = records[layer]
        # The memory may have a key more than the input, that of the rest step, which is not relevant.
        relevant = task.relevance(inputs)
        relevant = F.pad(relevant, (0, cross.weights.shape[-1] - relevant.shape[-1]), value=False)
        counted = relevant.any(-1)
        heads.append((cross.weights * relevant.unsqueeze(1)).sum(-1).transpose(1, 2)[counted])
        uniform.append((uniform_weights(cross.weights, cross.mask)[:, 0] * relevant).sum(-1)[counted])
    # The average is computed in float64, because a test has up to 10^8 output steps, more than float32 can count.
    return RelevanceShare(
        heads=torch.cat(heads).double().mean(0).tolist(), uniform=torch.cat(uniform).double().mean().item()
    )


@public
@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Agreement of the weights of one attention layer with a known alignment."""

    error_rate: float
    """0: every largest weight is on a correct source step; 1: every largest weight is on an incorrect step."""
    interval: Interval
    """The error rate with its 95 % interval over the pairs; without ends for fewer than two pairs."""
    share: float
    """Mean attention mass (0 to 1) on the possible links."""
    uniform: float
    """The mean attention mass on the possible links under uniform attention."""

    @property
    def error_text(self) -> str:
        """The error rate as a percentage, with its interval."""
        low, high = self.interval.low, self.interval.high
        ends = "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"
        return f"{percent(self.error_rate)}{ends}"


def error_rate(weights: Tensor, known: Tensor) -> float:
    """Return the alignment error rate of weights (B, Tt, Ts) for known links (B, Tt, Ts) bool. Target steps without
    known links are ignored. Returns NaN if no step has known links."""
    predicted = torch.zeros_like(known).scatter_(2, weights.argmax(-1, keepdim=True), True)
    predicted &= known.any(-1, keepdim=True)
    # If a target step has several origins, a link to any of them is possible, and no link is sure.
    sure = known & (known.sum(-1, keepdim=True) == 1)
    hits = (predicted & sure).sum() + (predicted & known).sum()
    total = predicted.sum() + sure.sum()
    return float("nan") if not total else 1.0 - (hits / total).item()


@torch.inference_mode()
def alignment(model: Seq2Seq, task: PairTask, batches: Iterable[list[Pair]]) -> dict[str, Alignment]:
    """Measure how well each cross-attention layer agrees with the known alignment. The decoder receives the true
    targets, whose origin is known. Heads are averaged."""
    model.eval()
    layers: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {name: [] for name in model.cross_layers}
    pair_of_step: list[np.ndarray] = []
    count = 0
    for pairs in batches:
        batch = task.batch(pairs)
        known = alignment_mask(pairs, batch.source.shape[1], batch.target.shape[1])
        counted = known.any(-1)
        pair_of_step.append(count + counted.nonzero()[:, 0].numpy())
        count += len(pairs)
        lengths = batch.source_mask.sum(1, keepdim=True).expand_as(counted)[counted]
        with record_own(model, layers=model.cross_layers) as records:
            model(batch.source, batch.source_mask, batch.target_in)
        for name, parts in layers.items():
            # The heads are averaged, because this function selects no head; `choose_heads` compares single heads.
            weights = records[name].weights.mean(1)
            if weights.shape[:2] != counted.shape:
                recorded, expected = tuple(weights.shape[:2]), tuple(counted.shape)
                raise InputError(
                    f"layer {name} was recorded at {recorded} steps of {expected}: if it runs step by step, "
                    f"call it with step=, the index of the target step"
                )
            # The target steps of all batches are concatenated; zeros fill the source steps up to the widest batch.
            parts.append((weights[counted], known[counted], lengths))
    result = {}
    for name, parts in layers.items():
        widest = max(weights.shape[-1] for weights, _, _ in parts)
        weights, known = (torch.cat([F.pad(p[i], (0, widest - p[i].shape[-1])) for p in parts]) for i in (0, 1))
        lengths = torch.cat([part[2] for part in parts])
        rate = error_rate(weights.unsqueeze(0), known.unsqueeze(0))
        hits = known.gather(1, weights.argmax(-1, keepdim=True))[:, 0].numpy()
        links = 1.0 + (known.sum(-1) == 1).numpy()  # of a step with one origin, the link counts in A and in S
        wrong, total = (np.bincount(np.concatenate(pair_of_step), counts) for counts in (links * ~hits, links))
        result[name] = Alignment(
            error_rate=rate,
            interval=ratio_interval(wrong, total) or Interval(value=rate, low=None, high=None),
            share=(weights * known).sum(-1).double().mean().item(),
            uniform=(known.sum(-1) / lengths).double().mean().item(),
        )
    return result


# Links between words from cross-attention weights.
#
# At step t, a decoder reads target token t - 1 and writes token t. Two rows of weights may therefore show the
# origin of token t: the row of the step that writes token t, and the row of the next step, whose query depends on
# token t (shifted attention: Zenkel et al. 2019, section 4; Chen et al. 2020, section 3.1).
#
# Letters: C: number of heads that attend to the source, in all layers; Wt and Ws: number of target and source words.

Head = tuple[str, int]  # The name of a layer in the model, and the index of a head
BATCH = 64  # Pairs in a batch


@torch.inference_mode()
def word_weights(
    model: Seq2Seq, pairs: Sequence[tuple[TokenizedText, TokenizedText]], heads: Sequence[Head] | None = None
) -> Iterator[np.ndarray]:
    """Yield the weights between the words of each pair of source and target, (2, C, Wt, Ws + 1) float32.

    Index 0 contains the steps that write the pieces of a word; index 1 contains the steps that read these pieces. The
    row of a target word is the mean over its pieces; the column of a source word is the sum over its pieces. The last
    column is the end symbol of the source. `heads`: by default all heads that attend to the source.

    Raises `InputError` for a model without heads that attend to the source.
    """
    chosen = cross_attention_heads(model) if heads is None else list(heads)
    if not chosen:
        raise InputError(
            "the model has no attention to its source, so it cannot align words: train a model with attention"
        )
    names = list(dict.fromkeys(layer for layer, _ in chosen))
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    for begin in range(0, len(pairs), BATCH):
        chunk = pairs[begin : begin + BATCH]
        batch = PairBatch(
            collate([source.indices for source, _ in chunk]), collate([target.indices for _, target in chunk])
        ).to(device)
        with record_own(model, layers=names) as records:
            model(batch.source, batch.source_mask, batch.target_in)
        layers = {name: records[name].weights.float().cpu().numpy() for name in names}
        for row, (source, target) in enumerate(chunk):
            weights = np.stack([layers[layer][row, head] for layer, head in chosen])
            yield _merge_pieces(weights, source, target)
    model.train(was_training)


def cross_attention_heads(model: Seq2Seq) -> list[Head]:
    modules = dict(model.named_modules())
    return [(name, head) for name in model.cross_layers for head in range(int(modules[name].heads))]


def _merge_pieces(weights: np.ndarray, source: TokenizedText, target: TokenizedText) -> np.ndarray:
    """Return the weights of words (2, C, Wt, Ws + 1) from the weights of pieces and end symbols (C, Tt, Ts)."""
    to_words = np.zeros((len(source.indices) + 1, len(source.spans) + 1), dtype=np.float32)
    to_words[np.arange(len(to_words)), [*source.word_ids, len(source.spans)]] = 1
    mean = np.zeros((len(target.spans), len(target.indices)), dtype=np.float32)
    mean[target.word_ids, np.arange(len(target.indices))] = 1
    mean /= np.maximum(mean.sum(1, keepdims=True), 1)
    steps = len(target.indices)
    # The last step writes the end symbol, so the rows of the steps that read a token begin one step later.
    rows = np.stack([weights[:, :steps], weights[:, 1 : steps + 1]])
    merged: np.ndarray = mean @ rows[..., : len(to_words)] @ to_words
    return merged


def extract_links(weights: np.ndarray) -> frozenset[Link]:
    """Return a link from each target word to the source word with the largest weight, from weights (Wt, Ws + 1). A word
    whose largest weight is on the end of the source has no link."""
    if not weights.size:
        return frozenset()
    # A word without pieces has only zero weights, and gets no link.
    best = np.where(weights.max(1) > 0, weights.argmax(1), weights.shape[1] - 1)
    return frozenset((source, target) for target, source in enumerate(best.tolist()) if source != weights.shape[1] - 1)


def all_weights(
    model: Seq2Seq, pairs: Iterable[tuple[str, str]], vocabularies: tuple[Vocabulary, Vocabulary], unit: Unit
) -> tuple[list[tuple[TokenizedText, TokenizedText]], list[np.ndarray]]:
    """Return tokenized pairs with their words, and the weights from `word_weights`."""
    source_vocabulary, target_vocabulary = vocabularies
    tokenized = [
        (tokenize(source, source_vocabulary, unit), tokenize(target, target_vocabulary, unit))
        for source, target in pairs
    ]
    return tokenized, list(word_weights(model, tokenized))


# The selection of the heads that best align source and target words.
#
# Pairs with known links are split at random into two halves. The heads are selected on the first half, and their
# alignment error rate is reported on the second half. Candidates are single heads, sets of heads whose weights are
# averaged (grown greedily), and all heads together. The weights of each candidate are read at the step that writes a
# word, and at the step that reads the word. A, S and P are the sets of predicted links, sure reference links and
# possible reference links. Counts are summed over all sentences. Intervals are those of counts that depend on each
# other within a sentence (Korn and Graubard 1998, see `regard.statistics`): a bootstrap over ten sentences covers an
# error rate of 0.5 % in 37 % of cases only.


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Agreement(Result):
    """Agreement of predicted links with reference links; a ratio without a denominator is None."""

    error_rate: Estimate | None
    """Alignment error rate. 0: all sure and only possible links were predicted; 1: all are incorrect."""
    precision: Estimate | None
    """Fraction (0 to 1) of the predicted links that are possible."""
    recall: Estimate | None
    """Fraction (0 to 1) of the sure links that were predicted."""


def alignment_error_rate(counts: np.ndarray) -> np.ndarray:
    """Return the error rate for counts |A|, |S|, |A and S| and |A and P| (..., 4), summed over sentences. The rate is 1
    if the counts contain neither predicted nor sure links."""
    predicted, sure, hits, possible = np.moveaxis(counts, -1, 0)
    total = predicted + sure
    # A head without links gets the worst rate, 1, instead of NaN, so that it is last in a comparison.
    rate: np.ndarray = 1 - np.divide(hits + possible, total, out=np.zeros(total.shape), where=total > 0)
    return rate


def agreement(predicted: Sequence[frozenset[Link]], known: Sequence[WordAlignment]) -> Agreement:
    pairs = list(zip(predicted, known, strict=True))
    counts = np.array([(len(a), len(k.sure), len(a & k.sure), len(a & k.possible)) for a, k in pairs])
    links, sure, hits, possible = counts.T.astype(np.float64)
    # Each rate is a ratio of sums, not a mean of ratios, so that long sentences count more, as in the definition.
    ratios = [(links + sure - hits - possible, links + sure), (possible, links), (hits, sure)]
    rates = [ratio_interval(*counts) for counts in ratios]
    error_rate, precision, recall = (None if rate is None else Estimate.of(rate) for rate in rates)
    return Agreement(error_rate=error_rate, precision=precision, recall=recall)


MAX_HEADS = 8  # Largest number of heads in a set
MIN_PAIRS = 20  # Smallest number of pairs in both halves together
By = Literal["head", "set", "all"]
STEP_NAMES = {False: "as it is written", True: "with the word itself"}
METHODS: dict[By, str] = {"head": "best head", "set": "set of heads", "all": "all heads"}
DIAGONAL = "equal positions"  # A baseline without a model: each target word is linked to the source word beside it


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
    """The best single head at the step that writes a word, for programs that support only this."""


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
    """Error rates (2, C) of the heads on the reported pairs: at the step that writes a word, or reads it."""

    def table(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        methods = plain_table(
            ("", "error rate", "precision", "recall"),
            ((name, *map(_cell, (of.error_rate, of.precision, of.recall))) for name, of in self.found.items()),
        )
        rates = zip(self.heads, self.error_rates.T, strict=True)
        rows = ((f"{short_name(layer)} {head}", *map(percent, of_head)) for (layer, head), of_head in rates)
        all_heads = plain_table(("error rate of each head", *STEP_NAMES.values()), rows)
        caption = (
            f"Alignment error rate, precision and recall against {self.against}, on "
            f"{plural(self.reported_on, 'pair')}, with 95 % intervals over the pairs. Selected on "
            f"{self.chosen_on:,} other pairs: {METHODS[self.best]}, {self.ways[self.best]}."
        )
        chosen, diagonal = (self.found[name].error_rate for name in (METHODS[self.best], DIAGONAL))
        if chosen and diagonal and chosen.mean >= diagonal.mean:
            caption += f" They are no better than {DIAGONAL}: check that each line of links belongs to its pair."
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
    reported = [known[pair] for pair in others]

    def report(selected: AligningHeads) -> Agreement:
        return agreement([extract_links(combine_heads(weights[pair], heads, selected)) for pair in others], reported)

    quality = {METHODS[way]: report(selected) for way, selected in ways.items()}
    for shifted in (False, True):
        # The baseline is the mean over the last layer, the usual choice without a selection.
        last = [head for head in heads if head[0] == heads[-1][0]]
        baseline = AligningHeads(heads=tuple(last), shifted=shifted)
        quality["last layer, itself" if shifted else "last layer"] = report(baseline)
    shapes = [weights[pair].shape[2:] for pair in others]
    diagonal = [frozenset((row * (keys - 1) // rows, row) for row in range(rows)) for rows, keys in shapes]
    quality[DIAGONAL] = agreement(diagonal, reported)
    for name, links in (beside(others, ways[method]) if beside else {}).items():
        quality[name] = agreement(links, reported)
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
