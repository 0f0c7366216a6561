"""Models that are made to fool one family of explanation methods.

Each function builds one trap. Its docstring says which methods it fools and which method is right; `TRAPS`
repeats both as names of `regard.attribute`, with the truth about the model that they are measured against.

In decoder-only traps, unneeded heads also add a little to the logits, too little to change an answer, because no
head of a trained model has no effect at all. The ranking of a method with equal scores for all heads would
otherwise depend on rounding."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard_lab.programs.compiler import SCORE, Compiled, Spares, assemble
from regard_lab.programs.language import (
    Aggregate,
    Attended,
    Average,
    Expression,
    Program,
    Selector,
    constant,
    elementwise,
    indices,
    select,
    steps,
    tokens,
)
from regard_lab.programs.library import LONGEST, earlier, mirrored, token_at
from regard_lab.programs.planner import (
    NEEDED,
    ONE,
    UNNEEDED,
    HeadTruth,
    Match,
    PlannedSet,
    Planner,
    Reading,
    Unit,
    unit_rows,
)

SPARES = Spares(heads=3, gains=(0.1,), leak=0.02)
LOUD = 30.0  # Norm of what heads write that do not contribute to the answer; a planted head writes vectors of norm 1
PAIRS = 3  # Number of pairs of heads in each layer
RAMP = 0.3  # Difference between the largest sum that counts as 0 and the smallest sum that counts as 1
DECOY = 2.0  # Score of a decoy key above that of the right key: it gets exp(2) = 7.4 times the weight


class Trap(NamedTuple):
    """A model that is made to fool a family of methods."""

    build: Callable[[int], Compiled]  # Returns the model for a seed
    truth: Literal["inputs", "needed", "used"]
    """What the methods rank: inputs by counterfactual dependence, or heads by one of the truths of `circuit`."""
    fools: str  # A method whose area under the ROC curve is at most 0.75
    right: str  # A method whose area under the ROC curve is at least 0.95

    @property
    def name(self) -> str:
        return self.build.__name__.replace("_", "-")

    @property
    def summary(self) -> str:
        return str(self.build.__doc__).partition("\n")[0].removeprefix("Return ")


def three_heads(name: str) -> Program:
    """Return a decoder-only program with three heads: the first token, if the two tokens before are equal."""
    equal = elementwise(operator.eq, token_at(earlier(1)), token_at(earlier(2)))
    result = elementwise(lambda same, first: first if same else "-", equal, token_at(constant(0)))
    summary = "the first token if the two tokens before are equal"
    return Program(name, summary, "abc", result, family="decoder-only", longest=LONGEST)


def encoder(name: str, result: Expression, outputs: int = LONGEST) -> Program:
    return Program(name, "", "abc", result, family="encoder", longest=LONGEST, outputs=outputs)


@dataclass
class SummingPlanner(Planner):
    """Plans `copies` heads for each aggregate, each of which writes `gain`; units convert sums to 0 or 1."""

    copies: int = 1
    gain: float = 1.0
    threshold: float = 0.6  # Largest sum that counts as 0. Sums from `threshold + RAMP` on count as 1
    truth: HeadTruth = NEEDED

    def plan_aggregate(self, expression: Aggregate) -> Reading:
        values, rows, heads = self.read(expression.values), list[Tensor](), list[Reading]()
        for _ in range(self.copies):
            columns = self.allocate(expression.side, len(values.values))
            head, time = self.plan_head(expression, values, self.gain * values.matrix, columns, -0.5)
            self.truths[head.node] = self.truth
            rows.append(unit_rows(columns))
            heads.append(Reading((), rows[-1], time, head.node, varies=True))
        if self.copies > 1:
            self.sets.append(PlannedSet("replace", tuple(str(head.node) for head in heads)))
        units = []
        for value, row in zip(values.values, torch.stack(rows).sum(0) / RAMP, strict=True):
            for shift, sign in ((0.0, 1.0), (1.0, -1.0)):
                inner = row.clone()
                inner[ONE] -= self.threshold / RAMP + shift
                units.append(Unit(inner, {value: sign}))
        reading = self.write_units(expression.side, heads[0].ready, values.values, units, heads)
        return reading._replace(nullable=True)


@dataclass
class BackupPlanner(Planner):
    """Plans a second head for each aggregate, which selects nothing unless the first head is off."""

    def plan_aggregate(self, expression: Aggregate) -> Reading:
        """Plan both heads. What the first head writes lowers the scores of the second."""
        first, values = super().plan_aggregate(expression), self.read(expression.values)
        present = Reading((1,), first.matrix.sum(0, keepdim=True), first.ready)
        columns, edges = self.allocate(expression.side, len(values.values)), set(self.edges)
        selectable = self.read(constant(1))
        head, time = self.plan_head(expression, values._replace(ready=first.ready), values.matrix, columns, -0.5)
        head.matches.append(Match(present, selectable, torch.tensor([[-2.0]])))
        self.edges, self.truths[head.node] = edges, UNNEEDED
        self.sets.append(PlannedSet("backup", (str(first.node), head.node)))
        return first._replace(matrix=first.matrix + unit_rows(columns), ready=time)


def add_head(planner: Planner, expression: Attended, value: Tensor, columns: Sequence[int], ready: int = -1) -> str:
    """Add a head that does not contribute, and return its node. `value`: (dimensions, WIDTH), its input."""
    edges = set(planner.edges)
    head, _ = planner.plan_head(expression, Reading((), value, ready), value, columns, -0.5)
    planner.edges, planner.truths[head.node] = edges, UNNEEDED
    return head.node


def redundant(seed: int) -> Compiled:
    """Return a model of redundant pairs: one head of each pair is enough.

    Fools ablation of one head at a time by zero or the mean, and gradients: all are near 0 for heads on which
    everything depends. Right: how much a head writes (`output_norm`), and ablation of both heads. Whether a head
    is needed is not defined, because two heads that disagree after resampling have no right answer."""
    truth = HeadTruth(needed=None, used=True, sufficient=True)
    return assemble(SummingPlanner(three_heads("redundant"), copies=2, truth=truth), seed=seed, spares=SPARES)


def majority(seed: int) -> Compiled:
    """Return a model of redundant heads in groups of three, of which two are enough.

    Fools ablation of one head at a time by zero, the mean or resampling. Right: how much a head writes.
    """
    truth = HeadTruth(needed=False, used=True, sufficient=True)
    planner = SummingPlanner(three_heads("majority"), copies=3, threshold=1.6, truth=truth)
    return assemble(planner, seed=seed, spares=SPARES)


def cancelling(seed: int) -> Compiled:
    """Return a model with pairs of heads whose outputs, which depend on the tokens, cancel each other.

    Fools ablation and gradients: without one head of a pair, the other one changes the answers. Right: the
    sharpness of attention (Voita et al. 2019), because the pairs attend uniformly; and ablation of pairs."""
    return _with_pairs("cancelling", seed, lambda planner, mix: mix @ planner.read(tokens).matrix, needed=True)


def constant_heads(seed: int) -> Compiled:
    """Return a model with pairs of heads that write large constant vectors, which cancel each other.

    Fools ablation to zero and Michel's gate, because zero is far from anything the heads ever write. Right:
    ablation to the mean or by resampling."""
    ones = unit_rows(range(ONE, ONE + 1)).expand(3, -1)
    return _with_pairs("constant-heads", seed, lambda planner, mix: mix @ ones, needed=False)


def _with_pairs(name: str, seed: int, read: Callable[[Planner, Tensor], Tensor], *, needed: bool) -> Compiled:
    """Return a model with `PAIRS` cancelling pairs in each layer; `read` mixes what a head reads to logits."""
    planner, generator = Planner(three_heads(name)), torch.Generator().manual_seed(seed)
    columns = planner.result.matrix.any(0).nonzero().flatten().tolist()
    everywhere = Average("input", Selector("input", "input"), None)
    for ready in [-1, 1] * PAIRS:
        value = LOUD * read(planner, torch.randn(len(columns), 3, generator=generator))
        nodes = [add_head(planner, everywhere, sign * value, columns, ready) for sign in (1.0, -1.0)]
        planner.truths |= dict.fromkeys(nodes, HeadTruth(needed=needed, used=False, sufficient=False))
        planner.sets += [PlannedSet("oppose", tuple(nodes))] * needed
    return assemble(planner, seed=seed, spares=SPARES)


def loud(seed: int) -> Compiled:
    """Return a model in which most heads write large vectors that nothing reads.

    Fools the norm of what a head writes. Right: ablation.
    """
    return assemble(Planner(three_heads("loud")), seed=seed, spares=Spares(heads=8, gains=(LOUD,)))


def saturation(seed: int) -> Compiled:
    """Return a model whose heads write three times what counts as 1.

    Fools gradients, which are 0 above this limit: attribution patching, Michel's gate. Right: ablation.
    """
    return assemble(SummingPlanner(three_heads("saturation"), gain=3.0), seed=seed, spares=SPARES)


def backup(seed: int) -> Compiled:
    """Return a model whose heads have backups, which act only if a head is off (McGrath et al. 2023).

    Fools ablation to zero: a backup repairs the answer. Right: ablation by resampling or to the mean, after which
    the backup is not active.
    """
    return assemble(BackupPlanner(three_heads("backup")), seed=seed, spares=SPARES)


def sink(seed: int) -> Compiled:
    """Return an encoder in which most heads attend to all inputs but the relevant one, with zero values.

    Fools attention. Right: attention weighted by the norms of values (Kobayashi et al. 2020), gradients, ablation."""
    planner = Planner(encoder("sink", token_at(steps)))
    for _ in range(LONGEST + 1):
        avoiding = Aggregate("output", select(indices, steps, operator.ne), tokens)
        add_head(planner, avoiding, unit_rows(range(0)), [])
    return assemble(planner, seed=seed, spares=Spares(heads=0))


def decoy(seed: int) -> Compiled:
    """Return an encoder whose reader gives most of its weight to decoy keys, with values that nothing reads.

    The answers are the tokens at even indices; all odd indices are decoys. Fools attention, also weighted by the
    norms of values. Right: gradients, ablation.
    """
    even = elementwise(lambda token, index: token if index % 2 == 0 else None, tokens, indices)
    even_places = select(indices, steps.map(lambda step: 2 * step))
    planner = Planner(encoder("decoy", Aggregate("output", even_places, even), outputs=LONGEST // 2))
    [head] = planner.heads["cross"]
    [match] = head.matches
    odd = torch.tensor([[float(index % 2)] for index in match.keys.values])
    truth = match.truth + odd * (1.0 + DECOY / SCORE)
    decoys = (odd * match.keys.matrix).sum(0, keepdim=True)
    weight = 1 / (1 + (LONGEST // 2) * math.exp(DECOY))
    unread = planner.allocate("output", 1)
    planner.heads["cross"] = [
        head._replace(
            matches=[match._replace(truth=truth)],
            value=torch.cat([head.value / weight, LOUD * decoys]),
            columns=[*head.columns, *unread],
        )
    ]
    return assemble(planner, seed=seed)


def indirect(seed: int) -> Compiled:
    """Return an encoder whose first layer moves each token to the opposite end, where the reader finds it.

    Fools attention of the last layer, which looks at other inputs than those that matter, and direct logit
    attribution, which gives nothing to the head that moves tokens. Right: ablation.
    """
    moved = token_at(mirrored)
    return assemble(Planner(encoder("indirect", Aggregate("output", select(indices, steps), moved))), seed=seed)


TRAPS: Mapping[str, Trap] = {  # All traps by name
    trap.name: trap
    for trap in (
        Trap(redundant, "used", fools="ablation_zero", right="output_norm"),
        Trap(majority, "used", fools="ablation_resampled", right="output_norm"),
        Trap(cancelling, "used", fools="ablation_mean", right="attention"),
        Trap(constant_heads, "needed", fools="ablation_zero", right="ablation_mean"),
        Trap(loud, "needed", fools="output_norm", right="ablation_zero"),
        Trap(saturation, "needed", fools="attribution_patching", right="ablation_zero"),
        Trap(backup, "needed", fools="ablation_zero", right="ablation_resampled"),
        Trap(sink, "inputs", fools="attention", right="weighted_values"),
        Trap(decoy, "inputs", fools="weighted_values", right="gradient"),
        Trap(indirect, "inputs", fools="attention", right="ablation_mean"),
    )
}
