"""The timeline of the heads of runs: the step at which each role forms, and the order of roles over seeds.

A head has formed at the first snapshot from which its score stays at the threshold or above until the last snapshot. A
role has formed with the first of its heads. Seeds are matched by role: head numbers have no meaning across seeds.

The median over seeds has an interval of order statistics (`regard.statistics.median_rank`), which holds for every
distribution. Fewer than 6 seeds do not reach 95 %: their interval is the range, and `coverage` is its probability. A
seed on which the role has not formed counts as infinitely late, so that it is not left out.

Every head is measured on fixed samples. The score of a role is its strength of `regard.interpret.roles`, averaged over
the queries that have keys of the role:

    (weight on the role's keys - fraction of these keys) / (1 - fraction of these keys)

It is 0 for uniform attention, and 1 for attention to only these keys. A score is linear in the weights. The factors of
all roles are therefore computed once for the samples, and one matrix product gives the scores of all heads of a layer.
Roles of language models follow Olsson et al. 2022, "In-context Learning and Induction Heads". The in-context score also
follows this paper: the loss late in a sequence minus the loss early in the sequence. The paper subtracts the loss of
token 50 from the loss of token 500; here, the first and last quarters of the outputs of each sequence are compared.

Letters: B samples, T tokens, Tq queries, Tk keys, To outputs, R roles, H heads of a layer, N heads of all layers, S
snapshots.
"""

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Group, RenderableType
from rich.table import Column, Table
from torch import Tensor, nn

from regard.activations.weights import intervene, record_weights
from regard.arguments import public
from regard.data.vocabulary import PAD
from regard.errors import InputError
from regard.evaluation.accuracy import output_losses
from regard.io import write_file
from regard.result import Result, plain_table, signed, to_plain
from regard.statistics import median_rank, range_confidence
from regard.streams import make_generator
from regard.tasks.pairs import alignment_mask
from regard.viz.maps import CROSS, LayerKind, layer_kind
from regard.viz.report_page import Part, Plot, render_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RELEVANT = "relevant-input"
REPEATED = 24  # tokens that are repeated in the samples of a model of transformers
ROUNDING = 1e-2  # Largest difference of the sum of a row of weights from 1 by rounding, in half precision


class Head(NamedTuple):
    """A head by the name of its layer and its number in the layer."""

    layer: str
    number: int


class KeySets:
    """The keys to which heads of each role attend, for the layers of one kind.

    `visible` (B, Tq, Tk) bool: keys that each query may attend to; False in rows of padding. `roles`: by name,
    (B, Tq, Tk) bool. `relevant`: (B, Tq, Tk) bool, the inputs on which each answer depends, None if unknown.
    """

    def __init__(self, visible: Tensor, roles: Mapping[str, Tensor], relevant: Tensor | None) -> None:
        self.visible, self.relevant = visible, relevant
        counts = visible.sum(-1)
        self.counted = counts > 1  # (B, Tq) bool, queries with a choice between keys
        self.even = visible / counts.clamp(min=1).unsqueeze(-1)
        factors, self.offsets = {}, {}
        for name, keys in roles.items():
            share = ((keys & visible).sum(-1) / counts.clamp(min=1)).double()
            rows = (share > 0) & (share < 1)
            if rows.any():
                scale = torch.where(rows, 1 / (1 - share), 0.0) / rows.sum()
                factors[name] = ((keys & visible) * scale.unsqueeze(-1)).float()
                self.offsets[name] = float((share * scale).sum())
        self.factors = torch.stack([*factors.values()]).flatten(1) if factors else torch.zeros(0, visible.numel())

    def scores(self, weights: Tensor) -> dict[str, Tensor]:
        """Return the score of each role for the heads (H,) of a layer with weights (B, H, Tq, Tk)."""
        products = self.factors @ weights.transpose(0, 1).flatten(1).T
        return {name: row - self.offsets[name] for name, row in zip(self.offsets, products, strict=True)}


@dataclass(frozen=True)
class Samples:
    """Samples on which all snapshots are measured."""

    forward: Callable[[Any], Tensor]  # Returns the logits (B, To, V) of a model
    targets: Tensor  # (B, To) int64 classes, or float32 values of real outputs (B, To)
    is_output: Tensor  # (B, To) bool, False where the target is ignored
    keys: Mapping[LayerKind, KeySets]
    note: str = "Snapshots have half precision."

    def losses(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        """Return the loss (B, To) of each output in nats, or half the squared error, and which outputs are correct."""
        return output_losses(self.forward(model), self.targets, self.is_output)

    def mean(self, values: Tensor) -> float:
        """Return the mean of values (B, To) over the outputs."""
        return float(values[self.is_output].double().mean())

    def in_context(self, losses: Tensor) -> float:
        """Return the in-context score of losses (B, To): the mean loss of the last quarter of each sequence's
        outputs, minus the mean loss of the first quarter. NaN if no sequence has four outputs."""
        rank, outputs = self.is_output.cumsum(1) - 1, self.is_output.sum(1, keepdim=True)
        quarter = outputs // 4
        early = self.is_output & (rank < quarter)
        late = self.is_output & (rank >= outputs - quarter)
        means = [(losses * part).sum(1).double() / part.sum(1) for part in (late, early)]
        return float((means[0] - means[1])[quarter.squeeze(1) > 0].mean())


class HeadScores(NamedTuple):
    """Measurements of one model, as in `Development`, with one number per head."""

    heads: list[Head]
    roles: dict[str, np.ndarray]
    uniform: np.ndarray
    relevance: np.ndarray
    entropy: np.ndarray
    importance: np.ndarray
    loss: float
    accuracy: float
    in_context: float


@torch.inference_mode()
def measure_heads(model: nn.Module, samples: Samples) -> HeadScores:
    """Measure every head of a model in evaluation mode. Raises `InputError` for a model without attention, or with
    layers that are recorded in another shape."""
    model.eval()
    with record_weights(model) as records:
        losses, right = samples.losses(model)
    heads, columns = list[Head](), list[dict[str, float]]()
    base = samples.mean(losses)
    for name, record in records.items():
        keys = next(iter(samples.keys.values())) if len(samples.keys) == 1 else samples.keys[layer_kind(name)]
        weights = record.weights.float()
        shape, visible = (len(weights), *weights.shape[2:]), keys.visible.shape
        if shape != visible:
            raise InputError(
                f"layer {name} has weights of shape {tuple(weights.shape)}, not {tuple(visible)} for each head"
            )
        counted = keys.counted.unsqueeze(1)
        entropy = (torch.special.entr(weights).sum(-1) * counted).sum((0, 2)) / counted.sum()
        sums = weights.sum(-1)[counted.expand(weights.shape[:3])]
        if (weights < 0).any() or (sums.numel() and (sums - 1).abs().max() > ROUNDING):
            entropy = torch.full_like(entropy, torch.nan)
        deviation = ((weights - keys.even.unsqueeze(1)).abs().sum(-1) * counted).sum((0, 2)) / counted.sum() / 2
        relevance = torch.full_like(entropy, torch.nan)
        if keys.relevant is not None:
            rows = keys.relevant.any(-1)
            relevance = (weights * keys.relevant.unsqueeze(1)).sum(-1).transpose(1, 2)[rows].double().mean(0)
        measured = {"uniform": 1 - deviation, "relevance": relevance, "entropy": entropy, **keys.scores(weights)}
        for head in range(weights.shape[1]):
            with intervene(model, name, heads=[head]):
                increase = samples.mean(samples.losses(model)[0]) - base
            heads.append(Head(name, head))
            columns.append({"importance": increase} | {key: float(row[head]) for key, row in measured.items()})
    if not heads:
        raise InputError("the model has no heads: train a model with attention")
    names = dict.fromkeys(key for column in columns for key in column)
    table = {key: np.array([column.get(key, np.nan) for column in columns]) for key in names}
    known = {key: table.pop(key) for key in ("uniform", "relevance", "entropy", "importance")}
    accuracy, in_context = samples.mean(right.float()), samples.in_context(losses)
    return HeadScores(heads, table, loss=base, accuracy=accuracy, in_context=in_context, **known)


def token_samples(task: Any, count: int, seed: int) -> Samples:
    """Draw samples of a task for language models: held-out samples if the task holds out samples."""
    batch = task.sample(count, make_generator(seed, "timeline"), unseen=True)
    relevant = task.relevance(batch.inputs) if task.knows_relevance else None
    present = torch.ones(batch.inputs.shape[:2], dtype=torch.bool) if batch.mask is None else batch.mask
    if relevant is not None:
        relevant = relevant & batch.is_output.unsqueeze(2)
    symbols = None if task.input_width else batch.inputs
    # A previous-token head prepares positions that are read later, by noting which token came before. At an
    # output it often does something else: the previous-token heads of `induction` (seeds 0 to 2) put 0.84 to 0.86
    # of their weight on the previous token where there is no output, and 0.11 to 0.17 where there is one.
    preparing = present & ~batch.is_output
    preparing = preparing if preparing.any() else present
    keys = _self_attention(symbols, present, relevant, causal=True, preparing=preparing)
    run = lambda model: model(batch.inputs, batch.mask)  # noqa: E731
    return Samples(run, batch.targets, batch.is_output, {"decoder": keys})


def answer_samples(task: Any, count: int, seed: int) -> Samples:
    """Draw samples of full length of a task whose answers are numbers."""
    inputs, targets, _ = task.sample(count, make_generator(seed, "timeline"))
    present, relevant = torch.ones_like(inputs, dtype=torch.bool), task.relevance(inputs)
    keys: dict[LayerKind, KeySets] = {
        "encoder": _self_attention(inputs, present, None, causal=False),
        CROSS: _cross_attention(present, torch.ones_like(targets, dtype=torch.bool), relevant),
    }
    return Samples(lambda model: model(inputs), targets, torch.ones_like(targets, dtype=torch.bool), keys)


def pair_samples(task: Any, count: int, seed: int) -> Samples:
    """Draw pairs of a sequence-to-sequence task that are not in the training data; the decoder reads the target."""
    pairs = task.pairs(count, make_generator(seed, "timeline"), unseen=True)
    batch = task.batch(pairs)
    present, is_output = batch.source_mask, batch.target != PAD
    relevant = alignment_mask(pairs, batch.source.shape[1], batch.target.shape[1])
    keys: dict[LayerKind, KeySets] = {
        "encoder": _self_attention(batch.source, present, None, causal=False),
        "decoder": _self_attention(batch.target_in, is_output, None, causal=True),
        CROSS: _cross_attention(present, is_output, relevant),
    }
    return Samples(lambda model: model(batch.source, present, batch.target_in), batch.target, is_output, keys)


def repeated_samples(vocabulary: int, count: int, seed: int) -> Samples:
    """Draw random tokens that are repeated once, for a language model of transformers (Olsson et al. 2022, "In-context
    Learning and Induction Heads", the prefix matching score). Outputs are the tokens of the repetition."""
    half = torch.randint(vocabulary, (count, REPEATED), generator=make_generator(seed, "timeline"))
    tokens = torch.cat([half, half], 1)
    present = torch.ones_like(tokens, dtype=torch.bool)
    is_output = present & (torch.arange(2 * REPEATED) >= REPEATED) & (torch.arange(2 * REPEATED) < 2 * REPEATED - 1)
    keys = _self_attention(tokens, present, None, causal=True)
    note = f"Samples: {REPEATED} random tokens, repeated once; outputs are the tokens of the repetition."
    run = lambda model: model(input_ids=tokens).logits.float()  # noqa: E731
    return Samples(run, tokens.roll(-1, 1), is_output, {"decoder": keys}, note)


SAMPLES = {"tokens": token_samples, "numbers": answer_samples, "text": pair_samples}
"""Function that draws the samples, by the form of the task's answers."""


def _self_attention(
    symbols: Tensor | None, present: Tensor, relevant: Tensor | None, *, causal: bool, preparing: Tensor | None = None
) -> KeySets:
    """Return the key sets of self-attention over tokens `symbols` (B, T); None for real-valued inputs. `preparing` (B,
    T) bool: queries that count for the previous-token role; None for all of them."""
    steps = torch.arange(present.shape[1])
    earlier = steps[:, None] > steps
    visible = present.unsqueeze(1) & present.unsqueeze(2) & ((steps[:, None] >= steps) | (not causal))
    before = (steps[:, None] - 1 == steps).expand(visible.shape)
    roles = {"previous-token": before if preparing is None else before & preparing.unsqueeze(2)}
    roles["current-token"] = steps[:, None] == steps
    if not causal:
        roles["next-token"] = steps[:, None] + 1 == steps
    if symbols is not None:
        equal = symbols.unsqueeze(2) == symbols.unsqueeze(1)
        roles["duplicate-token"] = equal & (earlier if causal else steps[:, None] != steps)
        # The keys after earlier occurrences of the query's token; a key never lies behind the query.
        roles["induction"] = F.pad(equal & earlier, (1, 0))[:, :, :-1] & earlier
    roles["first-token"] = steps.expand(len(steps), -1) == 0
    return KeySets(visible, {name: keys.expand(visible.shape) for name, keys in roles.items()}, relevant)


def _cross_attention(present: Tensor, is_output: Tensor, relevant: Tensor) -> KeySets:
    """Return the key sets of attention from outputs (B, Tq) to inputs (B, Tk)."""
    visible = present.unsqueeze(1) & is_output.unsqueeze(2)
    same = torch.arange(is_output.shape[1])[:, None] == torch.arange(present.shape[1])
    return KeySets(visible, {RELEVANT: relevant, "same-position": same.expand(visible.shape)}, relevant & visible)


# The measurements of runs at their snapshots, and when each role forms.

THRESHOLD = 0.3
"""Score from which a head has a role. `regard.interpret.roles` names the role of a trained head from a larger
score, because it says where the head attends; here, a head that begins to attend to the role's keys counts."""
COVERAGE = 0.95
SAMPLE_COUNT = 100  # Default number of samples


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Development:
    """The measurements of one run at all its snapshots: S snapshots, N heads."""

    run: str
    seed: int
    steps: list[int]
    """Training steps of the snapshots, (S,)."""
    heads: list[Head]
    roles: dict[str, np.ndarray]
    """Score of each role, (S, N); NaN for heads without keys of the role."""
    uniform: np.ndarray
    """1 minus the fraction of the weight that differs from uniform attention, (S, N)."""
    relevance: np.ndarray
    """Fraction of the weight on the inputs on which the answer depends, (S, N)."""
    entropy: np.ndarray
    """Mean entropy of the weights of a query, in nats, (S, N)."""
    importance: np.ndarray
    """Increase of the loss when the head is ablated, (S, N)."""
    loss: np.ndarray
    """Loss over the samples, (S,)."""
    accuracy: np.ndarray
    """Fraction (0 to 1) of correct outputs, (S,)."""
    in_context: np.ndarray
    """Loss late in a sequence minus loss early in the sequence, (S,)."""

    def __repr__(self) -> str:
        return f"<Development: {self.run}, {len(self.heads)} heads at {len(self.steps)} snapshots>"


def formed_at(scores: np.ndarray, threshold: float = THRESHOLD) -> np.ndarray:
    """Return for scores (S, N) the first snapshot of each head from which its score stays at `threshold` or above, (N,)
    int; S for a head whose last score is below it."""
    above = scores >= threshold  # False for NaN
    stays: np.ndarray = np.logical_and.accumulate(above[::-1], axis=0).sum(0)
    return len(scores) - stays


@public
@dataclass(frozen=True, kw_only=True)
class RoleHead:
    """The head of a run that has a role, or the head with the largest score for the role."""

    head: int
    """Index of the head in `Development.heads`."""
    snapshot: int | None
    """Index of the snapshot at which the head has formed; None if no head has formed."""
    heads: int
    """Number of heads with this role at the last snapshot."""


def role_head(scores: np.ndarray, threshold: float = THRESHOLD) -> RoleHead:
    """Return the first head that has formed, of several the one with the largest last score; without such a head,
    the one with the largest last score. `scores` (S, N)."""
    formed, last = formed_at(scores, threshold), np.nan_to_num(scores[-1], nan=-np.inf)
    first = int(formed.min())
    head = int(np.argmax(np.where(formed == first, last, -np.inf)))
    snapshot = None if first == len(scores) else first
    return RoleHead(head=head, snapshot=snapshot, heads=int((formed < len(scores)).sum()))


@public
@dataclass(frozen=True, kw_only=True)
class MedianInterval:
    """The median of values over seeds and its interval; None beyond the last step, where the role has not formed."""

    median: float | None
    low: float | None
    high: float | None
    coverage: float
    """Probability with which an interval like this contains the median; 0 for a single seed."""


def interval_rank(seeds: int) -> tuple[int, float]:
    """Return the rank k of the interval's ends, counted from 1, and the coverage of the interval."""
    rank = max(median_rank(seeds, COVERAGE), 1)
    return rank, range_confidence(seeds, rank)


def median_interval(values: Sequence[float]) -> MedianInterval:
    """Return the median of values and its interval; infinite values are those of seeds without the event."""
    ends = median_curves(np.asarray(values, dtype=np.float64))
    median, low, high = (float(end) if np.isfinite(end) else None for end in ends)
    return MedianInterval(median=median, low=low, high=high, coverage=interval_rank(len(values))[1])


def median_curves(curves: np.ndarray) -> tuple[Any, Any, Any]:
    ordered = np.sort(curves, axis=0)
    rank, _ = interval_rank(len(ordered))
    return np.median(ordered, axis=0), ordered[rank - 1], ordered[-rank]


def count_in_order(events: Sequence[Sequence[float]]) -> tuple[int, int]:
    """Return on how many seeds all events come strictly one after the other, and on how many besides no event comes
    before its predecessor, but some are in the same snapshot."""
    pairs = [list(itertools.pairwise(steps)) for steps in zip(*events, strict=True)]
    known = [pair for pair in pairs if all(max(steps) < math.inf for steps in pair)]
    strict = sum(all(first < second for first, second in pair) for pair in known)
    weak = sum(all(first <= second for first, second in pair) for pair in known)
    return strict, weak - strict


CORRECT = 0.5
"""Fraction of correct outputs whose step is an event, like the formation of a head."""
EVEN = 0.9  # Score from which a head counts as uniform
ANSWERS = "half of the outputs correct"


@public
@dataclass(frozen=True, kw_only=True)
class RoleTimeline:
    """A role over all seeds. Lists have one entry per run; medians over seeds are of the role's head (`heads`)."""

    role: str
    formed: int
    """Number of seeds on which the role has formed."""
    step: MedianInterval
    """Step at which the role has formed."""
    steps: list[int | None]
    """Training step in each run at which the role has formed; None if it has not formed."""
    heads: list[str]
    """The role's head in each run: layer and number."""
    layers: dict[str, int]
    """Number of seeds by the layer of the head, of seeds on which the role has formed."""
    count: float
    """Median number of heads with the role at the last snapshot."""
    first_score: float
    """Median of the largest score of any head at the first snapshot, before training."""
    score: float
    """Median score at the last snapshot."""
    importance: float
    """Median increase of the loss at the last snapshot when the head is ablated."""
    relevance: float
    """Median fraction of the weight on relevant inputs at the last snapshot; NaN if unknown."""
    entropy: float
    """Median entropy of the weights at the last snapshot, in nats."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Timeline(Result):
    """The development of all heads of runs that differ in their seed; `print` shows sentences and a table."""

    task: str
    kind: str
    """Name of the model."""
    samples: int
    """Number of samples on which every snapshot is measured; 0: the probe of `regard.watch`."""
    threshold: float
    """Score from which a head has a role."""
    runs: list[Development]
    remark: str = ""
    """What distinguishes the weights from those of a softmax; empty for a softmax."""
    note: str = Samples.note
    """What holds for the samples or the snapshots."""

    @property
    def steps(self) -> list[int]:
        """Training steps of the snapshots."""
        return self.runs[0].steps

    @cached_property
    def matched(self) -> dict[str, list[RoleHead]]:
        """The head of each role, for each run."""
        roles = {role: [role_head(run.roles[role], self.threshold) for run in self.runs] for role in self.runs[0].roles}
        middle = len(self.runs) // 2

        def key(item: tuple[str, list[RoleHead]]) -> tuple[float, list[float]]:
            steps = sorted(self._steps_of(item[1]))
            return steps[middle], steps  # of equal medians, the one with earlier seeds is first

        return dict(sorted(roles.items(), key=key))

    def _steps_of(self, heads: Sequence[RoleHead]) -> list[float]:
        """Return the step of formation in each run; infinite where the role has not formed."""
        return [math.inf if head.snapshot is None else self.steps[head.snapshot] for head in heads]

    @property
    def events(self) -> dict[str, list[float]]:
        """Step of each run at which each role forms, and half of the outputs are correct; infinite for never."""
        answers = [formed_at(run.accuracy[:, None], CORRECT)[0] for run in self.runs]
        events = {role: self._steps_of(heads) for role, heads in self.matched.items()}
        return {**events, ANSWERS: [[*self.steps, math.inf][snapshot] for snapshot in answers]}

    @cached_property
    def roles(self) -> list[RoleTimeline]:
        """All roles, the earliest first."""
        return [self._role(role, heads) for role, heads in self.matched.items()]

    def _role(self, role: str, heads: Sequence[RoleHead]) -> RoleTimeline:
        def median(measure: Callable[[Development], np.ndarray]) -> float:
            """Return the median over seeds of a measure (S, N) of the role's head at the last snapshot."""
            pairs = zip(self.runs, heads, strict=True)
            return float(np.median([measure(run)[-1, head.head] for run, head in pairs]))

        steps = self._steps_of(heads)
        names = [run.heads[head.head] for run, head in zip(self.runs, heads, strict=True)]
        formed = [name.layer for name, step in zip(names, steps, strict=True) if step < math.inf]
        layers = [layer.removesuffix(".self_attention") for layer in formed]
        return RoleTimeline(
            role=role,
            formed=len(layers),
            step=median_interval(steps),
            steps=[None if step == math.inf else int(step) for step in steps],
            heads=[f"{name.layer} head {name.number}" for name in names],
            layers={layer: layers.count(layer) for layer in sorted(set(layers))},
            count=float(np.median([head.heads for head in heads])),
            first_score=float(np.median([np.nanmax(run.roles[role][0]) for run in self.runs])),
            score=median(lambda run: run.roles[role]),
            importance=median(lambda run: run.importance),
            relevance=median(lambda run: run.relevance),
            entropy=median(lambda run: run.entropy),
        )

    @property
    def sentences(self) -> list[str]:
        """The result in words."""
        seeds, frequent = len(self.runs), [role for role in self.roles if 2 * role.formed > len(self.runs)]
        parts = [
            f"{'an' if role.role[0] in 'aeiou' else 'a'} {role.role} head at step {format_steps(role.step)}"
            + (f" on {role.formed} of {seeds} seeds" if role.formed < seeds else "")
            for role in frequent
        ]
        if len(parts) > 1:
            strict, same = count_in_order([self.events[role.role] for role in frequent])
            parts.append(f"in this order on {strict} of {seeds} seeds")
            parts[-1] += f" (and on {same} with some in the same snapshot)" if same else ""
        text = ", ".join(parts)
        counted = f" ({{}} of {seeds})" if seeds > 1 else ""
        rare = ", ".join(role.role + counted.format(role.formed) for role in self.roles if role not in frequent)
        answers = self.events[ANSWERS]
        reached = f" on {sum(step < math.inf for step in answers)} of {seeds} seeds," if seeds > 1 else ""
        of_one, of_two = (" (median)", " (medians)") if seeds > 1 else ("", "")
        correct, loss = (np.median([getattr(run, name)[-1] for run in self.runs]) for name in ("accuracy", "loss"))
        even = np.median([(run.uniform[-1] >= EVEN).sum() for run in self.runs])
        performance = [
            f"The loss at the end is {loss:.4f}{of_one}."
            if math.isnan(correct)
            else f"Half of the outputs are correct{reached} from this step on: {format_steps(median_interval(answers))}"
            f"; at the end {correct:.1%} are correct, at a loss of {loss:.4f}{of_two}.",
            f"At the end, {even:g} of {len(self.runs[0].heads)} heads attend uniformly{of_one}.",
        ]
        scores = np.median([run.in_context for run in self.runs], axis=0)
        if np.isfinite(scores).all():
            lowest = int(scores.argmin())
            performance.append(
                f"In-context score (loss late in the sequence minus loss early in it){of_one}: lowest at step "
                f"{self.steps[lowest]:,} with {signed(scores[lowest])} nats, {signed(scores[-1])} at the end."
            )
        return [
            *([f"{text[0].upper()}{text[1:]}."] if text else []),
            *([f"{'On at most half of the seeds' if counted else 'Not formed'}: {rare}."] if rare else []),
            *performance,
        ]

    @property
    def notes(self) -> list[str]:
        """Meaning and limits of the numbers."""
        seeds, coverage = len(self.runs), median_interval([0.0] * len(self.runs)).coverage
        interval = f"Steps are medians over {seeds} seeds, in brackets the {coverage:.1%} interval (order statistics)"
        if seeds < 6:
            interval += ", because fewer than 6 seeds cannot give 95 %"
        if seeds == 1:
            interval = "Steps are those of 1 seed: give more seeds for intervals and orders"
        measured = f"Measured on {self.samples:,} samples, the same for all snapshots. " if self.samples else ""
        return [
            f"{interval}. A step is that of the first snapshot that shows the head, so the head may have formed "
            f"at any step after the previous snapshot. never: not formed at the last step, {self.steps[-1]:,}.",
            *(["Score: 0 for uniform attention, 1 for attention to only the role's keys."] if self.samples else []),
            f"A head has formed at the first snapshot from which its score stays at {self.threshold:g} or above. Seeds "
            f"are matched by role: the head of a role is the first to form, of several at once the strongest.",
            f"{measured}{self.note}",
            "How often a role of this table is wrong is not measured; `regard examine` names the roles of the "
            "trained model with their error rates.",
            *([f"Attention weights: {self.remark}."] if self.remark else []),
        ]

    def table(self) -> RenderableType:
        """Return sentences, a table of roles, and notes."""
        return Group(*self.sentences, "", self.role_table(), "", *self.notes)

    def role_table(self) -> Table:
        """Return a table with one row for each role."""
        rows = []
        for role in self.roles:
            where = "\n".join(f"{layer} ({seeds})" for layer, seeds in role.layers.items())
            relevance = "" if math.isnan(role.relevance) else f"{role.relevance:.2f}"
            step = format_steps(role.step) if role.formed else "never"
            place = (role.role, f"{role.formed} of {len(self.runs)}", step, where, f"{role.count:g}")
            importance = "" if math.isnan(role.importance) else signed(role.importance, 4)
            scores = (f"{role.first_score:.2f}", f"{role.score:.2f}", importance)
            rows.append((*place, *scores, relevance, f"{role.entropy:.2f}"))
        columns = (Column(name, no_wrap=True) for name in ROLE_COLUMNS)
        return plain_table(columns, rows, f"Roles of the heads of {self.summary()}")

    def json(self) -> dict[str, Any]:
        """Return everything as plain values: the runs' measurements by snapshot and head, roles, sentences."""
        derived = {"steps": self.steps, "roles": self.roles, "events": self.events}
        return {**super().json(), **to_plain(derived), "words": self.sentences, "notes": self.notes}

    def summary(self) -> str:
        seeds = f"{len(self.runs)} seed{'s' * (len(self.runs) > 1)}"
        return f"{self.task}, {seeds}, {len(self.steps)} snapshots"

    def to_html(self, path: str | Path) -> Path:
        """Write a page with plots, tables and sentences that opens offline, and return its path.

        Raises `MachineError` if the file cannot be written.
        """
        roles = ", ".join(f"{role}: {COLOURS[role]}" for role in self.matched)
        parts: list[Part] = [
            Plot(
                lambda width: draw_heads(self.runs, self.matched, width),
                f"Role of each head at each snapshot, by color: {roles}",
            ),
            "Each row is a head of one seed. Its color is that of the role with the largest score, "
            "stronger for a larger score; no color for scores of 0.",
            Group(*self.sentences),
            Plot(
                lambda width: draw_roles(self.runs, self.matched, self.threshold, width),
                "Score of each role, loss and accuracy",
            ),
            "Each strip: score of the role's head, median over seeds as a line, interval as a band. Ticks below: "
            "step at which the role forms on each seed. Dashed: threshold. Snapshots stand at equal distances.",
            self.role_table(),
            Group(*self.notes),
        ]
        write_file(Path(path), render_page(f"When the heads of {self.task} form", parts).encode())
        return Path(path)


ROLE_COLUMNS = (
    *("role", "seeds", "formed at step", "layer (seeds)", "heads", "score at 0", "last", "off: loss"),
    *("relevant", "entropy"),
)


def format_steps(interval: MedianInterval) -> str:
    """Return the median step with its interval.

    >>> format_steps(MedianInterval(median=210.0, low=180.0, high=None, coverage=0.95))
    '210 (180 to never)'
    """
    ends = (interval.median, interval.low, interval.high)
    median, low, high = ("never" if end is None else f"{end:,.0f}" for end in ends)
    return median if not interval.coverage or low == high else f"{median} ({low} to {high})"


# The page: a strip for each role with its interval over seeds and the loss below, a strip for each head.

COLOURS = {
    "previous-token": "#0072b2",
    "induction": "#d55e00",
    "duplicate-token": "#009e73",
    "current-token": "#e69f00",
    "first-token": "#cc79a7",
    "next-token": "#56b4e9",
    RELEVANT: "#882255",
    "same-position": "#999933",
}
"""Colors of Okabe and Ito (2008), and two of Tol (2021), which are distinct for color-blind readers."""
GREY = "#7f8894"
STRIP, ROW = 1.05, 0.2  # Height of a role's strip and of a head's row, in inches


def draw_roles(
    runs: Sequence[Development], matched: Mapping[str, Sequence[RoleHead]], threshold: float, width: float
) -> "Figure":
    """Draw a strip for each role, the loss and the correct outputs. `matched`: head in each run, by role."""
    from regard.viz.figure import new_figure  # matplotlib takes long to import

    rows = len(matched) + 2
    figure = new_figure(width, STRIP * rows + 0.5)
    axes: list[Axes] = list(figure.subplots(rows, 1, sharex=True))
    for axis, (role, heads) in zip(axes, matched.items(), strict=False):
        curves = [run.roles[role][:, head.head] for run, head in zip(runs, heads, strict=True)]
        _draw_band(axis, np.array(curves), COLOURS[role])
        axis.axhline(threshold, color=GREY, linewidth=0.6, linestyle="--")
        formed = [head.snapshot for head in heads if head.snapshot is not None]
        # Seeds that form at the same snapshot stand beside each other.
        places = [snapshot + 0.15 * formed[:seed].count(snapshot) for seed, snapshot in enumerate(formed)]
        axis.plot(places, [-0.15] * len(places), "|", color=COLOURS[role], markersize=6)
        axis.set(ylim=(-0.3, 1.05), yticks=[0, 1])
        axis.set_title(f"{role} ({len(formed)} of {len(heads)} seeds)", loc="left")
    for axis, name, values in (
        (axes[-2], "loss", np.array([run.loss for run in runs])),
        (axes[-1], "fraction of correct outputs", np.array([run.accuracy for run in runs])),
    ):
        _draw_band(axis, values, GREY)
        axis.set_ylim(0)
        axis.set_title(name, loc="left")
    _label_steps(axes[-1], runs[0].steps, width)
    return figure


def _draw_band(axes: "Axes", curves: np.ndarray, colour: str) -> None:
    """Draw the median of curves (seeds, S) as a line, and its interval as a band."""
    middle, low, high = median_curves(curves)
    places = np.arange(len(middle))
    axes.fill_between(places, low, high, color=colour, alpha=0.3, linewidth=0)
    axes.plot(places, middle, color=colour)


def _label_steps(axes: "Axes", steps: Sequence[int], width: float) -> None:
    """Label as many snapshots as fit with their training steps."""
    from regard.viz.figure import label_interval, letter_size

    letter, _ = letter_size()
    every = label_interval(len(steps), width - 1.5, letter * (len(f"{steps[-1]:,}") + 1))
    shown = range(len(steps) - 1, -1, -every)
    axes.set_xticks(list(shown), [f"{steps[index]:,}" for index in shown])
    axes.set(xlabel="training step", xlim=(-0.5, len(steps) - 0.5))


def draw_heads(runs: Sequence[Development], roles: Collection[str], width: float) -> "Figure":
    """Draw a strip for each head of each seed, colored by its role."""
    from matplotlib import rcParams
    from matplotlib.colors import to_rgb

    from regard.viz.figure import label_interval, letter_size, new_figure

    heads, background = len(runs[0].heads), np.array(to_rgb(rcParams["axes.facecolor"]))
    panel = max(ROW * heads, 0.5) + 0.35  # with the title
    figure = new_figure(width, panel * len(runs) + 1.2)
    panels = list(figure.subplots(len(runs), 1, sharex=True, squeeze=False).flat)
    for axes, run in zip(panels, runs, strict=True):
        # The color of the strongest role, mixed with the background: (N, S, 3)
        scores = np.nan_to_num(np.stack([*run.roles.values()])).clip(0, 1)
        strength, colours = scores.max(0).T[..., None], np.array([to_rgb(COLOURS[role]) for role in run.roles])
        mixed = colours[scores.argmax(0).T] * strength + background * (1 - strength)
        axes.imshow(mixed, aspect="auto", interpolation="nearest")
        _, line = letter_size()
        rows = range(0, heads, label_interval(heads, ROW * heads, line))
        names = [f"{run.heads[row].layer.removesuffix('.self_attention')} {run.heads[row].number}" for row in rows]
        axes.set_yticks(list(rows), names)
        axes.set_title(f"seed {run.seed}", loc="left")
    _label_steps(panels[-1], runs[0].steps, width)
    for role in roles:
        panels[0].plot([], [], "s", color=COLOURS[role], label=role)
    figure.legend(loc="outside upper left", ncols=max(int(width // 1.8), 1))
    return figure
