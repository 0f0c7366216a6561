"""Measure every head of a model on fixed samples: roles, relevance, entropy, importance; and the model's loss.

The score of a role is its strength of `regard.interpret.roles`, averaged over the queries that have keys of the
role:

    (weight on the role's keys - fraction of these keys) / (1 - fraction of these keys)

The score is 0 for uniform attention, and 1 for attention to only these keys.

A score is linear in the weights. The factors of all roles are therefore computed once for the samples, and one
matrix product gives the scores of all heads of a layer. Roles of language models follow Olsson et al. 2022,
"In-context Learning and Induction Heads". The in-context score also follows this paper: the loss late in a
sequence minus the loss early in the sequence. The paper subtracts the loss of token 50 from the loss of token
500; here, the first and last quarters of the outputs of each sequence are compared.

Letters: B samples, T tokens, Tq queries, Tk keys, To outputs, R roles, H heads of a layer, N heads of all layers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.interventions import intervene, record_own
from regard.attention.layer import attention_layers
from regard.attention.names import short_name
from regard.data.vocabulary import PAD
from regard.errors import InputError
from regard.evaluation.next_tokens import output_losses
from regard.interpret.relevance import attention_mass
from regard.streams import make_generator
from regard.tasks.pairs import alignment_mask
from regard.viz.maps import CROSS, LayerKind, layer_kind

RELEVANT = "relevant-input"
ROUNDING = 1e-2
"""Largest difference of the sum of a row of weights from 1 by rounding, in half precision."""


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
        self.counted = counts > 1
        """(B, Tq) bool, queries with a choice between keys."""
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

    forward: Callable[[Any], Tensor]
    """Returns the logits (B, To, V) of a model."""
    targets: Tensor
    """(B, To) int64 classes, or float32 values of real outputs (B, To)."""
    is_output: Tensor
    """(B, To) bool, False where the target is ignored."""
    keys: Mapping[LayerKind, KeySets]

    def losses(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        """Return the loss (B, To) of each output in nats, or half the squared error, and which outputs are
        correct."""
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


@dataclass(frozen=True, kw_only=True)
class HeadScores:
    """Measurements of one model; arrays have one number per head, NaN where a measure is undefined."""

    heads: list[Head]
    roles: dict[str, np.ndarray]
    """Score of each role, (N,)."""
    uniform: np.ndarray
    """1 minus the fraction of the weight that differs from uniform attention."""
    relevance: np.ndarray
    """Fraction of the weight on the inputs on which the answer depends, over the outputs."""
    entropy: np.ndarray
    """Mean entropy of the weights of a query, in nats; NaN if weights are negative or rows do not sum to 1."""
    importance: np.ndarray
    """Increase of the loss when the head is ablated."""
    loss: float
    accuracy: float
    """Fraction (0 to 1) of correct outputs."""
    in_context: float


@torch.inference_mode()
def measure_heads(model: nn.Module, samples: Samples) -> HeadScores:
    """Measure every head of a model in evaluation mode.

    Raises `InputError` for a model without attention, or with layers that are recorded in another shape.
    """
    model.eval()
    with record_own(model) as records:
        losses, right = samples.losses(model)
    heads, columns = list[Head](), list[dict[str, float]]()
    base = samples.mean(losses)
    for full_name, layer in attention_layers(model).items():
        name = short_name(full_name)
        measured = _measure_layer(samples.keys[layer_kind(name)], records[name].weights, name)
        for head in range(layer.heads):
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
    return HeadScores(heads=heads, roles=table, loss=base, accuracy=accuracy, in_context=in_context, **known)


def _measure_layer(keys: KeySets, weights: Tensor, name: str) -> dict[str, Tensor]:
    """Return the measurements (H,) of a layer's weights (B, H, Tq, Tk)."""
    weights = weights.float()
    queries, visible = weights.shape[2], keys.visible.shape
    if (len(weights), queries, weights.shape[3]) != visible:
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
        relevance = attention_mass(weights, keys.relevant.unsqueeze(1)).transpose(1, 2)[rows].double().mean(0)
    return {"uniform": 1 - deviation, "relevance": relevance, "entropy": entropy, **keys.scores(weights)}


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
    """Draw pairs of a sequence-to-sequence task that are not in the training data; the decoder reads the
    target."""
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


SAMPLES = {"tokens": token_samples, "numbers": answer_samples, "text": pair_samples}
"""Function that draws the samples, by the form of the task's answers."""


def _self_attention(
    symbols: Tensor | None,
    present: Tensor,
    relevant: Tensor | None,
    *,
    causal: bool,
    preparing: Tensor | None = None,
) -> KeySets:
    """Return the key sets of self-attention over tokens `symbols` (B, T); None for real-valued inputs.

    `preparing` (B, T) bool: queries that count for the previous-token role; None for all of them.
    """
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
