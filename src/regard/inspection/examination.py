"""Examination: does the attention of a run mean anything, and how far do the figures carry?

Three questions to every head that reads the input, each answered over many samples with a 95 % interval
(bootstrap over the samples, Efron 1979):

- Is it where it should be? The share of its attention on the inputs that the answer depends on, beside that of
  uniform attention, and beside the same head's share on the relevant inputs of another sample: a head that looks
  at the same places whatever the input is has that one too.
- Does it rank the inputs as the answer's dependence on them does? Spearman's rank correlation of the weights
  with gradient times input and with ablation (see `probing`), beside those of another sample.
- Does the head matter at all? What the loss gains when it is switched off (see `importance`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.files import write_json
from regard.inspection.importance import HeadImportance
from regard.inspection.probing import Probe

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over samples and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"

    @property
    def percent(self) -> str:
        """The same in percent."""
        return f"{self.mean:.1%} ({self.low:.1%} to {self.high:.1%})"


@dataclass(frozen=True, kw_only=True)
class HeadFindings:
    """What is known of one head."""

    layer: str
    head: int
    relevance: Estimate | None = None
    """Share (0 to 1) of its attention on relevant inputs; None where the task does not know them."""
    beyond_uniform: Estimate | None = None
    """The share less that of uniform attention, sample by sample."""
    beyond_permuted: Estimate | None = None
    """The share less that on the relevant inputs of another sample."""
    gradient: Estimate
    """Rank correlation (-1 to 1) of the weights with gradient times input."""
    ablation: Estimate
    """Rank correlation of the weights with ablation."""
    gradient_permuted: Estimate
    """The correlation with gradient times input of another sample."""
    ablation_permuted: Estimate
    importance: float
    """What is added to the loss when the head is off, in nats."""

    def words(self) -> str:
        """Say what the figures support, and what they do not."""
        name = f"{self.layer}, head {self.head}:"
        said = []
        if self.relevance and self.beyond_uniform and self.beyond_permuted:
            share = f"{self.relevance.mean:.0%} of its attention is on what the answer depends on"
            if self.beyond_uniform.low > 0 and self.beyond_permuted.low > 0:
                said.append(f"{share}, more than uniform attention and more than for another sample's inputs")
            elif self.beyond_uniform.low > 0:
                said.append(
                    f"{share}, more than uniform attention, but no more than would be for another sample: it "
                    f"looks at places, whatever stands there"
                )
            else:
                said.append(f"{share}, which is not more than uniform attention would have")
        for other, found, permuted in (
            ("gradients", self.gradient, self.gradient_permuted),
            ("ablation", self.ablation, self.ablation_permuted),
        ):
            if found.low > max(permuted.high, 0):
                strength = "closely" if found.mean >= 0.7 else "in part" if found.mean >= 0.3 else "barely"
                said.append(f"it ranks the inputs {strength} as {other} do ({found.mean:.2f})")
            else:
                said.append(f"its ranking of the inputs is not that of {other} ({found.mean:.2f})")
        if self.importance > IMPORTANT:
            said.append(f"switching it off adds {self.importance:.3f} to the loss: it matters")
        else:
            said.append(
                f"switching it off changes the loss by {self.importance:+.3f}: whatever it shows, the model "
                f"hardly needs it"
            )
        return f"{name} {'; '.join(said)}."


IMPORTANT = 0.01
"""Nats of loss above which a head is said to matter."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What is known of a run's attention."""

    task: str
    samples: int
    seed: int
    uniform: Estimate | None
    """Share of uniform attention on relevant inputs; None where the task does not know them."""
    heads: list[HeadFindings]
    importance: HeadImportance
    alignment_error: dict[str, float] = field(default_factory=dict)
    """Alignment error rate (0 to 1) of each layer, where the alignment is known."""

    @property
    def words(self) -> list[str]:
        """What the figures support and what they do not, a sentence or two for each head."""
        said = [each.words() for each in self.heads]
        for layer, rate in self.alignment_error.items():
            quality = "nearly always points" if rate < 0.1 else "often points" if rate < 0.4 else "seldom points"
            said.append(
                f"{layer}: the largest weight {quality} at what a symbol was made from (error {rate:.1%})."
            )
        said.append(
            "Gradients and ablation are measures of their own, with faults of their own: where they disagree "
            "with the weights, that does not say which is right. Only switching a head off shows what the model "
            "does with it, and only for this run: train more seeds before saying it of the mechanism."
        )
        return said

    def table(self) -> RenderableType:
        """Return the figures as tables."""
        parts: list[RenderableType] = []
        if self.uniform is not None:
            shares = _table("Attention on what the answer depends on", "share", "less uniform", "less another's")
            for each in self.heads:
                assert each.relevance and each.beyond_uniform and each.beyond_permuted
                found = (each.relevance, each.beyond_uniform, each.beyond_permuted)
                shares.add_row(each.layer, str(each.head), *(estimate.percent for estimate in found))
            parts += [shares, Text(f"Uniform attention: {self.uniform.percent}"), ""]
        for name, title in (("gradient", "gradient times input"), ("ablation", "ablation")):
            ranks = _table(f"Rank correlation of the weights with {title}", "this input's", "another's")
            for each in self.heads:
                ranks.add_row(
                    each.layer, str(each.head), str(getattr(each, name)), str(getattr(each, f"{name}_permuted"))
                )
            parts += [ranks, ""]
        about = f"{self.task}: {self.samples:,} unseen samples, mean (95 % interval over the samples)"
        return Group(about, "", *parts, self.importance.table())

    def save(self, path: Path) -> Path:
        """Write all figures as JSON, and the words; raises `MachineError` where that cannot be."""
        stored = {**asdict(self), "words": self.words}
        write_json(path, stored, indent=1, allow_nan=False)
        return path


def _table(title: str, *columns: str) -> Table:
    return Table("layer", "head", *columns, box=None, pad_edge=False, title=title, title_justify="left")


def examine(
    probes: Sequence[Probe],
    relevance: Sequence[np.ndarray] | None,
    importance: HeadImportance,
    *,
    task: str,
    seed: int,
    alignment_error: dict[str, float] | None = None,
) -> Examination:
    """Work out all figures; `relevance`: (Tq, Tk) bool for each probe, None where the task does not know it."""
    # Each sample beside the next one: as good as any other, and never itself.
    others = [*range(1, len(probes)), 0]
    draw = np.random.default_rng(seed).multinomial(
        len(probes), np.full(len(probes), 1 / len(probes)), size=RESAMPLES
    )
    even = None if relevance is None else np.array([_uniform_share(each) for each in relevance])
    heads = []
    for layer, first in probes[0].weights.items():
        for head in range(len(first)):
            weights = [each.weights[layer][head] for each in probes]
            findings = _ranking(weights, probes, others, draw)
            if relevance is not None and even is not None:
                findings |= _placing(weights, relevance, even, others, draw)
            worth = importance.added[layer][head]
            heads.append(HeadFindings(layer=layer, head=head, importance=worth, **findings))
    return Examination(
        task=task,
        samples=len(probes),
        seed=seed,
        uniform=None if even is None else estimate(even, draw),
        heads=heads,
        importance=importance,
        alignment_error=alignment_error or {},
    )


def _placing(
    weights: list[np.ndarray],
    relevance: Sequence[np.ndarray],
    even: np.ndarray,
    others: list[int],
    draw: np.ndarray,
) -> dict[str, Estimate]:
    """Say how much of a head's attention is on what is relevant; `even`: the share of uniform attention."""
    shares = [_share(w, r) for w, r in zip(weights, relevance, strict=True)]
    permuted = [_share(w, relevance[other]) for w, other in zip(weights, others, strict=True)]
    return {
        "relevance": estimate(shares, draw),
        "beyond_uniform": estimate(shares - even, draw),
        "beyond_permuted": estimate(np.subtract(shares, permuted), draw),
    }


def _ranking(
    weights: list[np.ndarray], probes: Sequence[Probe], others: list[int], draw: np.ndarray
) -> dict[str, Estimate]:
    """Say how far a head ranks the inputs as gradients and ablation do."""
    found: dict[str, Estimate] = {}
    for name in ("gradient", "ablation"):
        measures: list[np.ndarray] = [getattr(each, name) for each in probes]
        own = [correlation(w, m) for w, m in zip(weights, measures, strict=True)]
        another = [correlation(w, measures[other]) for w, other in zip(weights, others, strict=True)]
        found |= {name: estimate(own, draw), f"{name}_permuted": estimate(another, draw)}
    return found


def estimate(values: Sequence[float] | np.ndarray, draw: np.ndarray) -> Estimate:
    """Return the mean of values and its interval by `draw` (R, N): how often each of N samples is drawn.

    A sample without a value (NaN) counts in neither; all NaN gives 0 with an interval of 0.
    """
    values = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(values)
    if not known.any():
        return Estimate(mean=0.0, low=0.0, high=0.0)
    counts = draw[:, known]
    total = counts.sum(1)
    means = (counts @ values[known])[total > 0] / total[total > 0]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(mean=float(values[known].mean()), low=float(low), high=float(high))


def _share(weights: np.ndarray, relevant: np.ndarray) -> float:
    """Return the mean mass on relevant inputs over the steps that depend on some; of two samples of different
    lengths, as far as both go."""
    steps, inputs = (min(sizes) for sizes in zip(weights.shape, relevant.shape, strict=True))
    relevant = relevant[:steps, :inputs]
    counted = relevant.any(1)
    if not counted.any():
        return float("nan")
    return float((weights[:steps, :inputs] * relevant).sum(1)[counted].mean())


def _uniform_share(relevant: np.ndarray) -> float:
    counted = relevant.any(1)
    return float(relevant[counted].mean()) if counted.any() else float("nan")


def correlation(weights: np.ndarray, measure: np.ndarray) -> float:
    """Return Spearman's rank correlation of weights and measure (Tq, Tk) over the inputs, mean over the steps.

    Of two samples of different lengths, as far as both go. Steps at which one of them is constant do not count;
    NaN where none is left.
    """
    steps, inputs = (min(sizes) for sizes in zip(weights.shape, measure.shape, strict=True))
    one, other = _ranks(weights[:steps, :inputs]), _ranks(measure[:steps, :inputs])
    one, other = one - one.mean(1, keepdims=True), other - other.mean(1, keepdims=True)
    size = np.sqrt((one**2).sum(1) * (other**2).sum(1))
    counted = size > 0
    if not counted.any():
        return float("nan")
    return float(((one * other).sum(1)[counted] / size[counted]).mean())


def _ranks(rows: np.ndarray) -> np.ndarray:
    """Return the rank of each value in its row; those that are alike to six decimals share the mean of theirs."""
    from scipy.stats import rankdata  # takes half a second

    return np.asarray(rankdata(rows.round(6), axis=1))
