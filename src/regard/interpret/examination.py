"""Examine whether the attention of a model is meaningful, and how strongly the measurements support the claim.

Three measurements test every head that attends to the inputs. Each measured value is a mean over many samples
with a 95 % interval (bootstrap over the samples, Efron 1979):

- Relevance: the fraction of its attention on the inputs that the answer depends on. This fraction is compared
with the fraction under uniform attention, and with the fraction on the relevant inputs of another sample. A
head that attends to fixed positions in every input has an equal fraction on another sample.
- Ranking: Spearman's rank correlation of the weights with the change of the answer when each input is replaced
(see `probe_inputs`), compared with the correlation with another sample's values.
- Importance: the loss increase when the head is disabled (see `importance`).

A quantity that was not measured is None, and the sentences omit this quantity.
"""

import textwrap
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec
import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.text import Text
from torch import Tensor

from regard.activations.weights import record_weights
from regard.arguments import public
from regard.attention.descriptions import describe_model
from regard.errors import InputError, check_range
from regard.fast.threads import limit_threads
from regard.interpret.attribution import effects
from regard.interpret.attribution.trial import MOST_ROWS, Background, Trial, change_embedding, input_scores
from regard.interpret.estimates import (
    RUN,
    Estimate,
    describe_interval,
    describe_rates,
    estimate,
    format_estimate,
    is_reliable,
    p_above,
    resample_counts,
    tell_with,
    threshold,
)
from regard.interpret.importance import HeadImportance, head_importance, importance_by_layer
from regard.interpret.needs import Need, SetKind, find_needs, inputs_needed
from regard.interpret.roles import MIN_SAMPLES, RELEVANT, UNNAMED, HeadRole, HeadRoles, head_roles, role_kind
from regard.io import write_file, write_json
from regard.result import Result, percent, plain_table, signed
from regard.statistics import LEVEL, Interval, benjamini_hochberg
from regard.training.run_folder import RunFolder
from regard.version import __version__
from regard.viz.maps import mean_distance
from regard.viz.report_page import Links, Part, Plot, render_page
from regard.viz.subject import Input, KnowsAlignment, LearnedSubject, ProbeInput, Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The inputs that an answer depends on are measured with a method that does not use attention, the *yardstick* of
# rankings. It changes inputs and measures the change of the log-probability of the predicted class. The methods are
# those with the best rankings (AUROC) over learned tasks, compiled programs and traps (`regard bench`,
# docs/explanation/which-explanation.md). The norm of the gradient has 0.49 on traps, which is chance. All are
# compared with another sample as well: a head that attends to the same positions in every input agrees with it equally.

MOST_LETTERS = 26
"""Largest alphabet whose tokens all replace each token. The cost grows with the alphabet: 200 inputs take 26 s
of a CPU for 26 letters (Reverse) and 82 s for 65 letters (MQAR); with resampling, they take 6 and 7 s."""
SHARE = (0.0, 1.0)  # Bounds of a fraction
STEADY = 0.1  # Largest fraction of the attention that differs between samples if a head attends to fixed positions
ROUNDING = 1e-5
"""Smallest change in nats that counts. Rounding causes smaller ones, which would rank inputs without effect."""


class Yardstick(NamedTuple):
    """The method that measures which inputs an answer depends on."""

    method: str  # Name of the method for `regard.attribute`
    text: str  # Description: how an input is replaced
    auroc: str  # Its AUROC on models whose answer is known


OTHER_TOKENS = Yardstick("other_tokens", "each token is replaced by every other token", "0.99 to 1.00")
RESAMPLED = Yardstick(
    "ablation_resampled", "each token is replaced by other inputs' tokens in its place", "0.97 to 0.98"
)
MEAN = Yardstick("ablation_mean", "each embedding is replaced by its mean over other inputs", "0.84 to 0.98")
YARDSTICKS = {yardstick.method: yardstick for yardstick in (OTHER_TOKENS, RESAMPLED, MEAN)}


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The attention weights of one sample, and the inputs that its answer depends on."""

    weights: dict[str, np.ndarray]  # Weights (H, Tq, Tk) of each recorded layer, by its name without `.layers`
    dependence: np.ndarray  # (Tq, Tk), not negative: change of each output when each input is replaced
    relevant: np.ndarray | None = None
    """(Tq, Tk) bool: the inputs on which each output depends by the task's definition; None if unknown."""


def choose_yardstick(probe: ProbeInput) -> Yardstick:
    if probe.tokens is None or probe.run_tokens is None:
        return MEAN
    return OTHER_TOKENS if 0 < len(probe.alphabet) <= MOST_LETTERS else RESAMPLED


def probe_inputs(subject: Subject[Input], inputs: Sequence[Input], *, seed: int = 0) -> list[Probe]:
    """Probe inputs that `subject.trial` accepts: the weights of layers in which outputs attend to inputs, and the
    dependence. Inputs of equal length with the same function `run_tokens` share batches."""
    background = Background(subject, seed=seed)
    groups: dict[Any, list[int]] = defaultdict(list)
    probes: list[Any] = [subject.trial(input) for input in inputs]
    for number, probe in enumerate(probes):
        alone = probe.tokens is None or probe.run_tokens is None
        groups[number if alone else (probe.run_tokens, len(probe.tokens))].append(number)
    results: dict[int, Probe] = {}
    for members in groups.values():
        for start in range(0, len(members), MOST_ROWS):
            chunk = members[start : start + MOST_ROWS]
            first, embeddings = probes[chunk[0]], list[Tensor]()
            keep = lambda output, embeddings=embeddings: embeddings.append(output.clone())  # noqa: E731
            with (
                torch.no_grad(),
                record_weights(subject, layers=list(first.layers)) as records,
                change_embedding(first.embedding, keep),
            ):
                together = len(chunk) > 1
                tokens = torch.stack([probes[number].tokens for number in chunk]) if together else None
                logits = first.run_tokens(tokens) if together else first.run(1)
            trials = []
            for row, number in enumerate(chunk):
                clean = logits[row], [embedding[row] for embedding in embeddings]
                trials.append(Trial(subject, inputs[number], background=background, clean_pass=clean))
            weights = {name: record.weights.float().cpu().numpy() for name, record in records.items()}
            for row, (number, trial, scores) in enumerate(zip(chunk, trials, _dependence(trials), strict=True)):
                changes = input_scores(trial, scores)
                results[number] = Probe(
                    weights={name: layer[row] for name, layer in weights.items()},
                    dependence=np.where(changes < ROUNDING, 0.0, changes),
                    relevant=trial.probe.relevant,
                )
    return [results[number] for number in range(len(inputs))]


@torch.no_grad()
def _dependence(trials: Sequence[Trial[Any]]) -> list[Tensor]:
    """Return the scores (Tq, Tk) of the yardstick for trials of inputs that can share a batch."""
    yardstick = choose_yardstick(trials[0].probe)
    if yardstick is MEAN:
        return [effects.replace_each(trial, trial.mean_embedding) for trial in trials]
    replacements = [
        (effects.other_tokens if yardstick is OTHER_TOKENS else effects.resampled_tokens)(trial) for trial in trials
    ]
    together, scores = max(MOST_ROWS // replacements[0].numel(), 1), []
    for start in range(0, len(trials), together):
        batch = list(zip(trials, replacements, strict=True))[start : start + together]
        rows = [effects.replace_tokens(trial.probe.tokens, tokens) for trial, tokens in batch]  # type: ignore[arg-type]
        if len(batch) == 1:
            values = [batch[0][0].run_tokens(rows[0])]
        else:
            logits = trials[0].probe.run_tokens(torch.cat(rows))  # type: ignore[misc]
            values = [trial.values(part) for (trial, _), part in zip(batch, logits.split(len(rows[0])), strict=True)]
        scores += [effects.mean_changes(*pair, own) for pair, own in zip(batch, values, strict=True)]
    return scores


class RelevanceClaim(NamedTuple):
    """What the attention on relevant inputs supports."""

    kind: str  # Kind of sentence in `regard.interpret.estimates`
    value: float  # The measured value that must exceed the threshold of the kind


def claim_relevance(beyond_uniform: Estimate, beyond_permuted: Estimate, moved: float | None) -> RelevanceClaim | None:
    """Return what the attention on relevant inputs supports; None if an interval does not exceed uniform attention."""
    if beyond_uniform.low <= 0:
        return None
    if beyond_permuted.low > 0:
        return RelevanceClaim("relevant inputs", min(beyond_uniform.low, beyond_permuted.low))
    if moved is not None and moved < STEADY:
        return RelevanceClaim("fixed positions", 1 - moved)
    return None


def measure_relevance(shares: np.ndarray, permuted: np.ndarray, even: np.ndarray, draw: np.ndarray) -> dict[str, Any]:
    """Return the fraction (N,) of a head's attention on relevant inputs, compared with another sample's relevant inputs
    and with uniform attention, for each sample. `relevance_p`: p-value that it exceeds both."""
    return {
        "relevance": estimate(shares, draw, SHARE),
        # Use differences within each sample: the variation that both fractions share cancels out.
        "beyond_uniform": estimate(shares - even, draw),
        "beyond_permuted": estimate(shares - permuted, draw),
        # Both must hold, so the p-value is the larger one (Berger 1982, intersection-union test).
        "relevance_p": max(p_above(shares - even, 0.0), p_above(shares - permuted, 0.0)),
    }


def even_weights(shape: Sequence[int], causal: bool) -> np.ndarray:
    """Return uniform attention (Tq, Tk) to all keys, or, if `causal`, to those up to the query's position.

    >>> even_weights((2, 2), causal=True).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    visible = np.tri(shape[0], shape[1]) if causal else np.ones(shape)
    weights: np.ndarray = visible / visible.sum(1, keepdims=True)
    return weights


def share(weights: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Return the mean mass (...) of weights (..., Tq, Tk) on relevant inputs (Tq, Tk), over steps that depend on any
    input; NaN without such steps."""
    steps, inputs = (min(sizes) for sizes in zip(weights.shape[-2:], relevant.shape, strict=True))
    relevant = relevant[:steps, :inputs]
    if not (counted := relevant.any(1)).any():
        return np.full(weights.shape[:-2], np.nan)
    return np.asarray((weights[..., :steps, :inputs] * relevant).sum(-1)[..., counted].mean(-1))


def correlation(weights: np.ndarray, measure: np.ndarray) -> float:
    """Return Spearman's rank correlation of weights and a measure (Tq, Tk) over the common inputs, averaged over the
    common steps at which neither is constant; NaN without such steps."""
    steps, inputs = (min(sizes) for sizes in zip(weights.shape, measure.shape, strict=True))
    x, y = _ranks(weights[:steps, :inputs]), _ranks(measure[:steps, :inputs])
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    size = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    counted = size > 0
    if not counted.any():
        return float("nan")
    return float(((x * y).sum(1)[counted] / size[counted]).mean())


def _ranks(rows: np.ndarray) -> np.ndarray:
    """Return the rank of each value in its row; tied values get the mean of their ranks. Values are tied if they are
    equal to five significant digits; otherwise rounding errors would rank equal weights."""
    # Digits are counted from each value's first one: with six decimals, gradients of 1e-6 would all be tied.
    scale = 10.0 ** np.floor(np.log10(np.maximum(np.abs(rows), np.finfo(np.float64).tiny)))
    ranks = np.empty(rows.shape)
    for row, values in zip(ranks, (rows / scale).round(4) * scale, strict=True):
        _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
        row[:] = (counts.cumsum() - (counts - 1) / 2)[which]
    return ranks


# What the measurements support, in words.

RAISES = "raises the loss"  # Kind of the sentence that switching a head off raises the loss
NO_DIFFERENCE = "makes no difference that can be measured to"
QUALITIES = (("nearly always", 0.1), ("often", 0.4))  # Claims on alignment, with the error rate below which they hold


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class HeadFindings(Result):
    """The measurements of one head."""

    layer: str
    head: int
    relevance: Estimate | None = None
    """Fraction of the head's attention on relevant inputs; None if the task does not define these."""
    beyond_uniform: Estimate | None = None
    """`relevance` minus the fraction under uniform attention, as the mean of the differences in each sample."""
    beyond_permuted: Estimate | None = None
    """`relevance` minus the fraction on the relevant inputs of another sample."""
    relevance_p: float | None = None
    """p-value of both differences, corrected over all heads."""
    learned: bool = True
    """Whether the model predicts clearly better than untrained models."""
    ranking: Estimate | None = None
    """Rank correlation of the weights with the dependence of the answer on each input; None if not measured."""
    ranking_beyond: Estimate | None = None
    """`ranking` minus the correlation with another sample's values, as the mean of the differences in each sample."""
    ranking_permuted: Estimate | None = None
    """Rank correlation of the weights with the dependence on another sample's inputs."""
    moved: float | None = None
    """Fraction of the head's attention that differs between samples; 0 if it depends only on positions."""
    importance: float
    """Loss increase when the head is disabled, in nats."""
    interval: Estimate | None = None
    """`importance` with its interval; None if it is unknown."""
    measure: str = "loss"
    """Name of the loss of `importance`, if the loss is not computed against known answers."""
    unchanged: str = ""
    """Why nothing can be said about `importance`; empty if the head's context changes when it is disabled."""
    origin: str = RUN
    """How the model was given, as `Traits.origin`."""
    inputs: int = 0
    """Number of inputs over which the attention was measured."""

    def __str__(self) -> str:
        return self.sentence()

    def summary(self) -> str:
        return f"{self.layer} head {self.head}"

    def sentence(self) -> str:
        """Return a sentence with the claims that the measurements support."""
        clauses = [self._describe_relevance(), self._describe_ranking(), self._describe_importance()]
        return f"{self.layer}, head {self.head}: {'; '.join(filter(None, clauses))}."

    @property
    def relevance_kind(self) -> str | None:
        """What the intervals support about the attention to relevant inputs; None if it was not measured."""
        if self.relevance is None or self.beyond_uniform is None or self.beyond_permuted is None:
            return None
        if self.beyond_uniform.high < 0:
            return "less than with uniform attention"
        # The whole interval must be above 0.
        if self.beyond_uniform.low <= 0:
            return "not shown to be more than with uniform attention"
        if self.relevance_claim is None and self.beyond_permuted.low > 0:
            return "more than with uniform attention; whether more than for another sample cannot be told"
        if self.beyond_permuted.low > 0:
            return "more than with uniform attention and more than for another sample's inputs"
        return "more than with uniform attention, but not more than for another sample's inputs"

    @property
    def relevance_claim(self) -> RelevanceClaim | None:
        """The claim on relevant inputs or fixed positions whose error rate is low; None if both are unreliable."""
        if not self.learned or self.beyond_uniform is None or self.beyond_permuted is None:
            return None
        claim = claim_relevance(self.beyond_uniform, self.beyond_permuted, self.moved)
        if claim is None or not is_reliable(claim.kind, self.origin) or claim.value <= threshold(claim.kind):
            return None
        if claim.kind == "relevant inputs" and self.relevance_p is not None and self.relevance_p > (1 - LEVEL) / 2:
            return None
        return claim

    @property
    def ranking_kind(self) -> str | None:
        """What the intervals support about the ranking of the inputs; None if it was not measured."""
        if self.ranking is None:
            return None
        if self.ranking.low <= 0:
            return "is opposite to" if self.ranking.high < 0 else "is not shown to agree with"
        # The values of another sample show how strongly the ranks agree because of positions alone.
        if self.ranking_beyond is not None and self.ranking_beyond.low <= 0:
            return "agrees, but not more than for another sample, with"
        # The limits 0.7 and 0.3 are conventions. The interval's lower end must reach them.
        strength = "closely" if self.ranking.low >= 0.7 else "in part" if self.ranking.low >= 0.3 else "weakly"
        return f"agrees {strength} with"

    def _describe_importance(self) -> str:
        """Return a clause on the change of the loss without the head."""
        if self.unchanged:
            return f"what switching it off does cannot be told: {self.unchanged}"
        if self.interval is None:
            change = signed(self.importance, small=True)
            return f"switching it off changes the {self.measure} by {change} (interval unknown)"
        kind = importance_kind(self.interval)
        if kind == NO_DIFFERENCE:
            return f"switching it off {kind} the {self.measure}"
        mean, low, high = (
            signed(value, small=True) for value in (self.importance, self.interval.low, self.interval.high)
        )
        return f"switching it off {kind} the {self.measure}: {mean} ({low} to {high})"

    def _describe_relevance(self) -> str:
        """Return a clause on the attention to relevant inputs; empty if the relevant inputs are unknown."""
        if self.relevance is None or (kind := self.relevance_kind) is None:
            return ""
        unclear = [beyond for beyond in (self.beyond_uniform, self.beyond_permuted) if beyond and beyond.low <= 0]
        kind += "".join(tell_with(self.inputs, beyond, 0.0) for beyond in unclear[:1] if beyond.mean > 0)
        share = f"{percent(self.relevance.mean, 0)} of its attention is on what the answer depends on, {kind}"
        claim = self.relevance_claim
        if claim is not None and claim.kind == "fixed positions" and self.moved is not None:
            share += f": it attends to fixed positions, independent of the input ({percent(self.moved, 0)} moves)"
        return share

    def _describe_ranking(self) -> str:
        """Return a clause on the rank correlation with the dependence; empty if it was not measured."""
        if self.ranking is None:
            return ""
        value = f"{self.ranking.mean:.2f}, {self.ranking.low:.2f} to {self.ranking.high:.2f}"
        return f"its ranking of the inputs {self.ranking_kind} the effect of replacing them ({value})"


def importance_kind(interval: Estimate) -> str:
    """Return what the interval of a loss increase supports."""
    if interval.low == interval.high == 0:  # differences within rounding are 0
        return NO_DIFFERENCE
    if interval.low > threshold(RAISES) and is_reliable(RAISES):
        return "raises"
    return "lowers" if interval.high < 0 else "is not shown to change"


def alignment_quality(rate: Interval) -> str | None:
    """Return how often the largest weight of a layer points to a symbol's origin; None if it cannot be told."""
    if rate.low is None or rate.high is None:
        return None
    quality = next((name for name, most in QUALITIES if rate.high < most), None)
    return "seldom" if quality is None and rate.low >= QUALITIES[-1][1] else quality


def describe_alignment(layer: str, rate: Interval, inputs: int) -> str:
    """Return a sentence on the alignment error rate of a layer over some inputs; the interval decides its claim."""
    if rate.low is None or rate.high is None:
        return f"{layer}: alignment error rate {percent(rate.value)} (interval unknown)."
    value = f"alignment error rate {percent(rate.value)}, {percent(rate.low)} to {percent(rate.high)}"
    quality = alignment_quality(rate)
    if quality is None or not is_reliable("alignment"):
        bars = [most for _, most in QUALITIES if rate.low < most <= rate.high]
        value += "".join(tell_with(inputs, Estimate.of(rate), bar) for bar in bars[:1] if quality is None)
        return f"{layer}: how often the largest weight points to a symbol's origin cannot be told ({value})."
    return f"{layer}: the largest weight {quality} points to a symbol's origin ({value})."


def _draw_heads(
    values: Sequence[tuple[str, float, Estimate | None]],
    width: float,
    unit: str,
    reference: float = 0.0,
    name: str = "",
) -> "Figure":
    """Draw a value of each head with its interval; `reference`: a vertical line with a name."""
    from regard.viz.plots import ValueInterval, draw_rows

    ends = [(value, value) if known is None else (known.low, known.high) for _, value, known in values]
    rows = [ValueInterval(head, value, *pair) for (head, value, _), pair in zip(values, ends, strict=True)]
    return draw_rows({"": rows}, width, unit, reference, name)


REPORT_LINES, REPORT_WIDTH = 25, 80
PARTNERS = {"needed only together": "with", "backup": "for", "opposes": "to"}
"""Word between a head and the heads that its verdict names."""


def _shorten(text: str, lines: int) -> list[str]:
    """Return a text as at most some lines of the report."""
    return textwrap.wrap(text, REPORT_WIDTH, subsequent_indent="  ", max_lines=lines, placeholder=" ...") or [""]


NEED_INPUTS = 500
"""Smallest number of unseen inputs on which heads are resampled; more heads need more, see `inputs_needed`."""
MAX_ROLE_SAMPLES = 100  # Largest number of samples for roles, because roles need a full map of each sample


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Examination(Result):
    """The measurements of a model's attention, and sentences that explain the measurements."""

    task: str
    samples: int
    seed: int
    uniform: Estimate | None
    """Fraction of uniform attention on relevant inputs; None if the task does not define relevant inputs."""
    heads: list[HeadFindings]
    importance: HeadImportance
    alignment_error: dict[str, Interval] = field(default_factory=dict)
    """Alignment error rate (0 to 1) by layer with its interval over the samples, if the alignment is known."""
    roles: HeadRoles | None = None
    """The role of each head; None if roles were not determined."""
    needs: list[str] = field(default_factory=list)
    """Sentences on which heads the model needs, alone and together; see `regard.interpret.needs`."""
    verdicts: dict[str, list[Need]] = field(default_factory=dict)
    """By layer, for each head: needed, needed only together, backup, opposes, not needed, or cannot be told."""
    partners: dict[str, list[str]] = field(default_factory=dict)
    """By layer, for each head: the heads that its verdict names; empty for a verdict on the head alone."""
    groups: dict[str, int] = field(default_factory=dict)
    """Number of sets of heads that replace each other, and of sets that oppose each other."""
    yardstick: str | None = None
    """Method of `regard.attribute` with which the rankings of the heads are compared; None without rankings."""
    unanswered: list[str] = field(default_factory=list)
    """One sentence for each measurement that was not possible."""
    origin: str = RUN
    """How the model was given, as `Traits.origin`."""
    over: str = "unseen samples"
    """Description of the inputs for tables."""

    @property
    def sentences(self) -> list[str]:
        """Claims that the measurements support: one sentence for each head, then general remarks."""
        sentences = [head.sentence() for head in self.heads]
        sentences += [describe_alignment(layer, rate, self.samples) for layer, rate in self.alignment_error.items()]
        sentences += self.needs + self.remarks
        sentences.append(
            "Whether a head that attends to what the answer depends on explains the answer cannot be told from its "
            "attention: read the verdict on its need. How often the sentences on rankings are wrong is not measured. "
            "All sentences are about this model: examine runs of several seeds before conclusions about the mechanism."
        )
        return [*sentences, describe_rates(self._said, self.origin)]

    @property
    def _said(self) -> list[str]:
        """Kinds of sentences that are said and have error rates."""
        kinds: list[str] = [
            verdict for layer in self.verdicts.values() for verdict in layer if verdict != "cannot be told"
        ]
        for head in self.heads:
            kinds += [claim.kind for claim in [head.relevance_claim] if claim is not None]
            if head.interval is not None and not head.unchanged and importance_kind(head.interval) == "raises":
                kinds.append(RAISES)
        kinds += [role_kind(role.role) for role in self._roles if role.role is not None]
        return list(dict.fromkeys(kinds + ["alignment"] * bool(self.alignment_error)))

    @property
    def _roles(self) -> list[HeadRole]:
        """Heads with a role that can be told, the most important first."""
        roles = [] if self.roles is None else self.roles.sorted(self.importance.added)
        return [role for role in roles if role.role is not None and role.is_reliable]

    @property
    def remarks(self) -> list[str]:
        """One sentence for each measurement that was not possible, and one on the yardstick of the rankings."""
        remarks = list(self.unanswered)
        if (yardstick := YARDSTICKS.get(self.yardstick or "")) is None:
            return remarks
        return [
            *remarks,
            f"Effect of replacing an input: {yardstick.text} ({yardstick.method}, AUROC {yardstick.auroc} on "
            f"models whose answer is known).",
        ]

    @property
    def kinds(self) -> dict[str, list[dict[str, str]]]:
        """By layer, for each head: the kind of sentence that holds, by question."""
        layers: dict[str, list[dict[str, str]]] = {}
        findings = {(head.layer, head.head): head for head in self.heads}
        for layer, added in self.importance.added.items():
            layers[layer] = [{} for _ in added]
            for head, kinds in enumerate(layers[layer]):
                if layer in self.verdicts:
                    kinds["need"] = self.verdicts[layer][head]
                interval = self.importance.interval(layer, head)
                if self.importance.unchanged_reason(layer, head):
                    kinds["loss"] = "what switching it off does cannot be told"
                elif interval is not None:
                    kinds["loss"] = f"switching it off {importance_kind(interval)} the {self.importance.measure}"
                if self.roles is not None:
                    role = self.roles.of(layer, head)
                    kinds["role"] = "no role found" if role.role is None else role.description
                if (known := findings.get((layer, head))) is not None:
                    if known.relevance_kind is not None:
                        kinds["relevant inputs"] = known.relevance_kind
                    if known.ranking_kind is not None:
                        kinds["ranking"] = f"{known.ranking_kind} the effect of replacing inputs"
        return layers

    def table(self) -> RenderableType:
        """Return a report of at most `REPORT_LINES` lines of `REPORT_WIDTH` characters; see `details` for all."""
        by_verdict: dict[str, dict[str, list[str]]] = {}
        for layer, verdicts in self.verdicts.items():
            names = self.partners.get(layer, [""] * len(verdicts))
            for head, (verdict, partners) in enumerate(zip(verdicts, names, strict=True)):
                text = f"{head} {PARTNERS[verdict]} {partners}" if partners else str(head)
                by_verdict.setdefault(verdict, {}).setdefault(layer, []).append(text)
        lines = [*_shorten(f"{self.task}: {self.samples:,} {self.over}, {self.importance.measure} "
                           f"{self.importance.loss:.4f}", 1), ""]  # fmt: skip
        for verdict in (verdict for verdict in get_args(Need) if verdict in by_verdict):
            layers = "; ".join(f"{layer} {', '.join(heads)}" for layer, heads in by_verdict[verdict].items())
            lines += _shorten(f"{verdict}: {layers}", 2)
        roles = {f"{role.layer} {role.head}": role.role for role in self._roles}
        shown = [f"{name} attends to {role}" for name, role in roles.items()]
        for known in self.heads:
            name, claim = f"{known.layer} {known.head}", known.relevance_claim
            if claim is not None and RELEVANT in (roles.get(name) or ""):
                continue
            if claim is not None and known.relevance is not None and claim.kind == "relevant inputs":
                share = percent(known.relevance.mean, 0)
                shown.append(f"{name} attends to what the answer depends on ({share})")
            elif claim is not None and name not in roles:
                shown.append(f"{name} attends to fixed positions")
        shown += [describe_alignment(layer, rate, self.samples) for layer, rate in self.alignment_error.items()]
        printed = [kind for kind in self._said if kind != RAISES]
        notes = [line for text in [describe_rates(printed, self.origin)] if text for line in _shorten(text, 4)]
        notes += _shorten(f"Intervals: {describe_interval(self.samples)}", 2)
        reasons = [text for text in (*self.needs, *self.unanswered) if "cannot" in text or "stopped" in text]
        notes += [line for reason in reasons[:2] for line in _shorten(reason, 2)]
        notes += _shorten("All measurements and sentences: regard examine --all; in Python, details()", 1)
        room = REPORT_LINES - len(lines) - len(notes) - 2
        if len(shown) > room:
            shown = [*shown[: room - 1], f"{len(shown) - room + 1} more sentences"]
        return Text("\n".join([*lines, "", *(_shorten(text, 1)[0] for text in shown), "", *notes]))

    def details(self) -> Group:
        """Return the tables of all measurements."""
        parts: list[RenderableType] = []
        if self.uniform is not None:
            columns = ("layer", "head", "fraction", "minus uniform", "minus another's")
            shares = plain_table(columns, title="Attention on what the answer depends on")
            for head in self.heads:
                estimates = (head.relevance, head.beyond_uniform, head.beyond_permuted)
                percents = (format_estimate(share, lambda known: known.percent) for share in estimates)
                shares.add_row(head.layer, str(head.head), *percents)
            parts += [shares, Text(f"Uniform attention: {self.uniform.percent}"), ""]
        ranking = plain_table(
            ("layer", "head", "this input's", "another's"),
            ((h.layer, str(h.head), *map(format_estimate, (h.ranking, h.ranking_permuted))) for h in self.heads),
            "Rank correlation of the weights with the effect of replacing inputs",
        )
        if self.roles is not None:
            parts += [self.roles.table(self.importance.added), ""]
        title = f"{self.task}: {self.samples:,} {self.over}, mean ({describe_interval(self.samples)})"
        return Group(title, "", *parts, ranking, "", self.importance.table())

    def to_html(self, path: str | Path, *, explorer: str | None = None) -> Path:
        """Write a page with all tables, plots and sentences, and return its path; raises `MachineError` if this fails.

        `explorer`: the address at which `regard show` serves the model, to which each head then has a link.
        """
        ranked = self.importance.ranked()[::-1]
        added = [(f"{layer} {head}", value, self.importance.interval(layer, head)) for value, layer, head in ranked]
        note, unit = "the table below has the numbers", "added to the loss when the head is off (nats)"
        caption = f"Points: loss increase when each head is disabled, with its interval; {note}"
        parts: list[Part] = [Plot(lambda width: _draw_heads(added, width, unit), caption)]
        if (uniform := self.uniform) is not None:
            shares = [(f"{h.layer} {h.head}", h.relevance.mean, h.relevance) for h in self.heads if h.relevance]
            share_unit = "fraction of attention on what the answer depends on (mean and interval)"
            draw = lambda width: _draw_heads(shares, width, share_unit, uniform.mean, "uniform attention")  # noqa: E731
            parts.append(Plot(draw, f"Points: fraction of attention on relevant inputs; {note}"))
        parts += [Group(*self.sentences), self.details()]
        if explorer is not None:
            to = [(f"{layer}, head {head}", f"{explorer}#layer={layer}&head={head}") for _, layer, head in ranked]
            parts.append(Links("Link to the explorer, while `regard show` runs", to))
        write_file(Path(path), render_page(f"What the attention of {self.task} means", parts).encode())
        return Path(path)

    def json(self) -> dict[str, Any]:
        return {**super().json(), "words": self.sentences, "version": __version__}

    def summary(self) -> str:
        return f"{self.task}, {len(self.heads)} heads, {self.samples:,} {self.over}"

    def save(self, path: str | Path) -> Path:
        """Write the measurements and sentences as JSON, and return the path; raises `MachineError` if this fails.

        In the folder of a run the file also names the model, which is checked when the file is read.
        """
        path = Path(path)
        if (run := RunFolder(path.parent)).exists():
            run.write_derived(path.name, self.json())
        else:
            write_json(path, self.json(), indent=1, allow_nan=False)
        return Path(path)


@public
def examine(subject: LearnedSubject[Input], *, samples: int = 200, seed: int = 0) -> Examination:
    """Examine whether the attention of a subject is meaningful, over `samples` unseen inputs.

    >>> result = regard.examine(regard.load("runs/signal2"))    # doctest: +SKIP
    >>> print(result.sentences[0])    # doctest: +SKIP

    Raises `InputError` for a model without attention, or if there are no unseen inputs.
    """
    check_range("samples", samples, 2, 10**5)
    with limit_threads(subject.model):
        importance, remark = head_importance(subject, seed=seed), describe_model(subject.model)
        inputs, first = subject.unseen(samples, seed), None
        unanswered = [*subject.traits.unanswered, *([f"Attention weights: {remark}."] if remark else [])]
        try:
            candidate = subject.trial(inputs[0])
            [probe] = probe_inputs(subject, inputs[:1], seed=seed)
            shapes = [layer.shape for layer in probe.weights.values()]
            if any(shape[-2:] not in (probe.dependence.shape, (1, shape[-1])) for shape in shapes):
                raise InputError("its outputs are not those of single queries")
            first = candidate
        except InputError as error:
            unanswered.append(f"Weights are not compared with the effects of inputs: {error}.")
        examination = make_examination(
            [] if first is None else probe_inputs(subject, inputs, seed=seed),
            importance,
            task=subject.name,
            seed=seed,
            samples=len(inputs),
            alignment_error=subject.alignment_error(inputs) if isinstance(subject, KnowsAlignment) else None,
            unanswered=unanswered,
            causal=first is not None and first.causal,
        )
        enough = max(NEED_INPUTS, inputs_needed(sum(map(len, importance.added.values()))))
        needs = find_needs(subject, subject.unseen(enough, seed, purpose="importance"), importance.added, seed=seed)
        origin, roles, missing = subject.traits.origin, None, list[str]()
        verdicts, partners = dict[str, list[Need]](), dict[str, list[str]]()
        for head, verdict in needs.verdicts.items():
            told = is_reliable(verdict, origin)
            verdicts.setdefault(head[0], []).append(verdict if told else "cannot be told")
            names = [name.replace(" head ", " ") for name in needs.partners(head)]
            partners.setdefault(head[0], []).append(" or ".join(names) if told and verdict in PARTNERS else "")
        try:
            roles = head_roles(subject, samples=min(max(samples, MIN_SAMPLES), MAX_ROLE_SAMPLES), seed=seed)
            missing += [UNNAMED] * (UNNAMED in roles.remark)
        except InputError as error:  # a model that cannot be reinitialized: roles are compared with untrained heads
            missing.append(f"Roles cannot be told: {error}.")
    return replace(
        examination,
        origin=origin,
        heads=[replace(head, learned=needs.learned, origin=origin) for head in examination.heads],
        roles=roles,
        unanswered=examination.unanswered + missing,
        needs=needs.sentences(),
        verdicts=verdicts,
        partners=partners,
        groups={kind: sum(found.kind == kind for found in needs.sets) for kind in get_args(SetKind)},
        yardstick=None if first is None else choose_yardstick(first).method,
    )


def make_examination(
    probes: Sequence[Probe],
    importance: HeadImportance,
    *,
    task: str,
    seed: int,
    samples: int | None = None,
    alignment_error: dict[str, Interval] | None = None,
    unanswered: Sequence[str] = (),
    causal: bool = False,
) -> Examination:
    """Compute all measurements from probes; without them, only importance. `samples`: None for one per probe."""
    known = [sample.relevant for sample in probes if sample.relevant is not None]
    relevance = known if known and len(known) == len(probes) else None
    # Each sample is compared with the next sample, an arbitrary choice among the other samples.
    others = [*range(1, len(probes)), 0]
    # All measurements use the same draw, so that the intervals of all heads come from the same resamples.
    draw = resample_counts(max(len(probes), 1), seed)
    even = None if relevance is None else np.array([share(even_weights(r.shape, causal), r) for r in relevance])
    heads = []
    counted = {layer: len(values) for layer, values in (probes[0].weights if probes else importance.added).items()}
    for layer, head in ((layer, head) for layer, count in counted.items() for head in range(count)):
        findings: dict[str, Any] = {
            "importance": importance.added[layer][head],
            "interval": importance.interval(layer, head),
            "measure": importance.measure,
            "inputs": len(probes),
            "unchanged": importance.unchanged_reason(layer, head),
        }
        if probes:
            weights = [sample.weights[layer][head] for sample in probes]
            own = [correlation(w, sample.dependence) for w, sample in zip(weights, probes, strict=True)]
            permuted = [correlation(w, probes[other].dependence) for w, other in zip(weights, others, strict=True)]
            findings["ranking"], findings["ranking_permuted"] = estimate(own, draw), estimate(permuted, draw)
            # Both correlations are of the same weights, so their difference has a smaller variance than each.
            findings["ranking_beyond"] = estimate(np.subtract(own, permuted), draw)
            pairs = zip(weights, (weights[other] for other in others), strict=True)
            findings["moved"] = float(mean_distance(pairs))
            if relevance is not None and even is not None:
                shares = np.array([share(w, r) for w, r in zip(weights, relevance, strict=True)])
                crossed = np.array([share(w, relevance[other]) for w, other in zip(weights, others, strict=True)])
                findings |= measure_relevance(shares, crossed, even, draw)
        heads.append(HeadFindings(layer=layer, head=head, **findings))
    # p-values are corrected over all heads (Benjamini and Hochberg 1995).
    adjusted = iter(benjamini_hochberg([head.relevance_p for head in heads if head.relevance_p is not None]))
    return Examination(
        task=task,
        samples=len(probes) if samples is None else samples,
        seed=seed,
        uniform=None if even is None else estimate(even, draw, SHARE),
        heads=[head if head.relevance_p is None else replace(head, relevance_p=next(adjusted)) for head in heads],
        importance=importance,
        alignment_error=alignment_error or {},
        unanswered=list(unanswered),
    )


# An examination that was saved with a run, for pages that show the run, and instead of a new measurement.

FILE = "examined.json"
REMEDY = "delete the file, or examine the run again"


def read_examination(run: RunFolder, samples: int | None = None, seed: int | None = None) -> Examination | None:
    """Return the saved examination of a run; None without one with this number of samples and seed (None: any), or if
    the model was trained further since. Raises `InputError` for a damaged file, or one of another run."""
    stored = run.read_derived(FILE, REMEDY) or {}
    wanted = {"version": __version__, "samples": samples, "seed": seed}
    if samples is not None and any(stored.get(name) != value for name, value in wanted.items()):
        return None
    try:
        return msgspec.convert(stored, Examination)
    except msgspec.ValidationError:
        return None


def examined_facts(run: RunFolder) -> dict[str, Any]:
    """Return the sentences, importance and role of each head by layer for pages; empty without an examination."""
    examination, sentences = read_examination(run), dict[str, list[str]]()
    if examination is None:
        return {"examined": {}, "importance": None, "roles": {}}
    for head in examination.heads:
        sentences.setdefault(head.layer, []).append(head.sentence())
    roles = {} if examination.roles is None else examination.roles.by_layer()
    return {"examined": sentences, "importance": importance_by_layer(examination.importance), "roles": roles}
