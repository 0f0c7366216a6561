"""Measure which inputs an answer depends on, with a method that does not use attention.

The method is the *yardstick* of rankings. It changes inputs and measures the change of the log-probability of the
predicted class. The methods are those with the best rankings on models whose answer is known (`regard bench`,
docs/explanation/which-explanation.md). Their area under the ROC curve (AUROC), over learned tasks, compiled
programs and traps:

    other_tokens          0.99 to 1.00   each token is replaced by every other token
    ablation_resampled    0.97 to 0.98   each token is replaced by the tokens of 5 other inputs at its position
    ablation_mean         0.84 to 0.98   each embedding is replaced by its mean over other inputs

Gradients are no yardstick: the norm of the gradient has 0.49 on traps, which is chance.

The attention of a head is compared with this measurement and with the inputs that are relevant by the task's
definition. Each comparison is made with another sample as well: a head that attends to the same positions in
every input agrees with another sample's values as much as with its own.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.activations.weights import record_weights
from regard.interpret.attribution.effects import (
    mean_changes,
    mean_embedding,
    other_tokens,
    replace_each,
    replace_tokens,
    resampled_tokens,
)
from regard.interpret.attribution.trial import MOST_ROWS, Background, Trial, change_embedding, input_scores
from regard.interpret.estimates import Estimate, estimate, p_above
from regard.viz.subject import Input, ProbeInput, Subject

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
    "ablation_resampled", "each token is replaced by the tokens of other inputs at its position", "0.97 to 0.98"
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
    """Probe inputs that `subject.trial` accepts: the weights of the layers in which outputs attend to inputs, and the
    dependence. Inputs of equal length whose function `run_tokens` is the same share batches. The model must be in
    evaluation mode."""
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
        return [replace_each(trial, mean_embedding(trial)) for trial in trials]
    replacements = [(other_tokens if yardstick is OTHER_TOKENS else resampled_tokens)(trial) for trial in trials]
    together, scores = max(MOST_ROWS // replacements[0].numel(), 1), []
    for start in range(0, len(trials), together):
        batch = list(zip(trials, replacements, strict=True))[start : start + together]
        rows = [replace_tokens(trial.probe.tokens, tokens) for trial, tokens in batch]  # type: ignore[arg-type]
        if len(batch) == 1:
            values = [batch[0][0].run_tokens(rows[0])]
        else:
            logits = trials[0].probe.run_tokens(torch.cat(rows))  # type: ignore[misc]
            values = [trial.values(part) for (trial, _), part in zip(batch, logits.split(len(rows[0])), strict=True)]
        scores += [mean_changes(*pair, own) for pair, own in zip(batch, values, strict=True)]
    return scores


class RelevanceClaim(NamedTuple):
    """What the attention on relevant inputs supports."""

    kind: str  # Kind of sentence in `regard.interpret.estimates`
    value: float  # The measured value that must exceed the threshold of the kind


def claim_relevance(beyond_uniform: Estimate, beyond_permuted: Estimate, moved: float | None) -> RelevanceClaim | None:
    """Return what the attention on relevant inputs supports; None if it is not shown to exceed uniform attention. The
    whole intervals must be above 0."""
    if beyond_uniform.low <= 0:
        return None
    if beyond_permuted.low > 0:
        return RelevanceClaim("relevant inputs", min(beyond_uniform.low, beyond_permuted.low))
    if moved is not None and moved < STEADY:
        return RelevanceClaim("fixed positions", 1 - moved)
    return None


def measure_relevance(
    weights: list[np.ndarray], relevance: Sequence[np.ndarray], even: np.ndarray, others: list[int], draw: np.ndarray
) -> dict[str, Any]:
    """Return the fraction of a head's attention on relevant inputs; `even` (N,): the fraction under uniform attention
    in each sample. `relevance_p`: p-value that it exceeds uniform attention and another sample's."""
    shares = [share(w, r) for w, r in zip(weights, relevance, strict=True)]
    permuted = [share(w, relevance[other]) for w, other in zip(weights, others, strict=True)]
    return {
        "relevance": estimate(shares, draw, SHARE),
        # Use differences within each sample: the variation that both fractions share cancels out.
        "beyond_uniform": estimate(shares - even, draw),
        "beyond_permuted": estimate(np.subtract(shares, permuted), draw),
        # Both must hold, so the p-value is the larger one (Berger 1982, intersection-union test).
        "relevance_p": max(p_above(shares - even, 0.0), p_above(np.subtract(shares, permuted), 0.0)),
    }


def measure_movement(weights: list[np.ndarray], others: list[int]) -> float:
    """Return the mean total variation distance between the attention of a head on different samples."""
    # Half of the summed absolute differences is the total variation distance.
    shares = []
    for own, other in zip(weights, (weights[index] for index in others), strict=True):
        steps, inputs = (min(sizes) for sizes in zip(own.shape, other.shape, strict=True))
        shares.append(float(np.abs(own[:steps, :inputs] - other[:steps, :inputs]).sum(1).mean()) / 2)
    return float(np.mean(shares))


def measure_ranking(
    weights: list[np.ndarray], probes: Sequence[Probe], others: list[int], draw: np.ndarray
) -> dict[str, Estimate | None]:
    """Return the rank correlation of a head's weights with the dependence on each input."""
    own = [correlation(w, sample.dependence) for w, sample in zip(weights, probes, strict=True)]
    permuted = [correlation(w, probes[other].dependence) for w, other in zip(weights, others, strict=True)]
    return {
        "ranking": estimate(own, draw),
        "ranking_permuted": estimate(permuted, draw),
        # Both correlations are of the same weights, so their difference has a smaller variance than each.
        "ranking_beyond": estimate(np.subtract(own, permuted), draw),
    }


def even_weights(shape: Sequence[int], causal: bool) -> np.ndarray:
    """Return uniform attention (Tq, Tk) to all keys, or, if `causal`, to those up to the query's position.

    >>> even_weights((2, 2), causal=True).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    visible = np.tri(shape[0], shape[1]) if causal else np.ones(shape)
    weights: np.ndarray = visible / visible.sum(1, keepdims=True)
    return weights


def share(weights: np.ndarray, relevant: np.ndarray) -> float:
    """Return the mean mass on relevant inputs, over the steps that depend on any input; NaN without such steps."""
    steps, inputs = (min(sizes) for sizes in zip(weights.shape, relevant.shape, strict=True))
    relevant = relevant[:steps, :inputs]
    counted = relevant.any(1)
    if not counted.any():
        return float("nan")
    return float((weights[:steps, :inputs] * relevant).sum(-1)[counted].mean())


def correlation(weights: np.ndarray, measure: np.ndarray) -> float:
    """Return Spearman's rank correlation of weights and a measure (Tq, Tk) over the inputs, averaged over the steps.

    If the samples differ in length, only their common steps and inputs are used. Steps at which the weights or the
    measure are constant are ignored. Returns NaN if all steps are ignored.

    >>> correlation(np.array([[0.1, 0.2, 0.7]]), np.array([[1.0, 2.0, 3.0]]))
    1.0
    """
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
