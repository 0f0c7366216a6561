"""Sentences about the heads of a known model, and whether they are right.

A sentence about attention is compared with the weights on `TRUTH_INPUTS` other inputs. A head attends to some
keys if it gives them more than half of the weight that uniform attention would not give them. If the sentence
says "with any symbol" or "at any step", each symbol and step counts. A sentence on need is compared with the
circuit."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from regard.attention.interventions import record_own
from regard.attention.names import short_name
from regard.interpret.estimates import EXTERNAL, TOGETHER, resample_counts
from regard.interpret.examination import (
    QUALITIES,
    RAISES,
    STEADY,
    alignment_quality,
    claim_relevance,
    even_weights,
    measure_relevance,
    share,
)
from regard.interpret.importance import HeadImportance, head_importance
from regard.interpret.needs import Head, Need, Needs, find_needs, not_learned
from regard.interpret.roles import (
    AT_STEPS,
    EVEN,
    FIXED,
    PAIRED,
    RELEVANT,
    ROLE_KINDS,
    UNIFORM,
    UNTRAINED,
    UNTRAINED_INPUTS,
    HeadCandidates,
    choose_roles,
    measure_candidates,
    role_kind,
    role_strengths,
    searched_roles,
    uniform_deviation,
)
from regard.runs.run import visible
from regard.runs.tensor_run import AnswerRun, LanguageRun
from regard.statistics import LEVEL, Interval, benjamini_hochberg
from regard.viz.maps import CROSS, LayerMap, mean_distance
from regard.viz.subject import KnowsAlignment
from regard_lab.bench.known_models import KnownModel
from regard_lab.programs.compiler import Circuit

INPUTS = 500
"""Inputs over which needed heads are determined."""
SAMPLES = 100
"""Inputs over which attention is measured."""
TRUTH_INPUTS = 120
"""Other inputs, on which a sentence about attention must be right."""
OTHER = 1000
"""Added to the seed of the inputs for the seed of other inputs."""
MAJORITY = 0.5
"""Least strength of a role that a head has."""
FOR_EACH = 0.3
"""Least strength for each symbol, or each step, of a role that a head has with any symbol or at any step."""
LEAST_BEYOND = 0.05
"""Least fraction of attention beyond uniform attention, and beyond another sample's, of a head that attends to
relevant inputs. A sentence on less is right, but nothing is missed without it."""
LEAST_ADDED = 1e-4
"""Least increase of the loss, in nats, with which a head raises it."""
FEWEST = 5
"""Inputs with a symbol at a step below which the strength for this symbol or step is not compared."""


Maps = Sequence[Mapping[str, LayerMap]]
"""The layers of each input."""


class HeadClaim(NamedTuple):
    """A sentence that may be said."""

    kind: str
    value: float
    """The measured value, which must exceed the threshold of the kind; infinity for kinds without a threshold."""
    right: bool


class Fact(NamedTuple):
    """A head of which a sentence of a kind is right."""

    kind: str
    value: float
    """The largest threshold at which a right sentence is said; minus infinity if none is said."""


@dataclass(frozen=True, kw_only=True)
class MeasuredSentences:
    """All sentences about one model."""

    program: str
    family: str
    heads: int = 0
    claims: list[HeadClaim] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    roles: list[HeadCandidates] = field(default_factory=list)
    truths: list[dict[str, float]] = field(default_factory=list)
    """For each head of `roles`: the roles that it has, with their strengths on other inputs."""
    prefix: str = ""
    """Added to the kinds of sentences about an external model."""
    verdicts: tuple[str, ...] = ()
    """Verdicts on the need of the heads, in the order of the model."""
    names: dict[tuple[float, ...], list[str | None]] = field(default_factory=dict)
    """Roles that were chosen, by the thresholds of all kinds of roles."""

    def outcomes(self, thresholds: Mapping[str, float]) -> list[HeadClaim]:
        """Return the sentences that are said with some thresholds."""
        said = [claim for claim in self.claims if claim.value > thresholds[claim.kind]]
        said += [claim for claim in self._name_roles(thresholds) if claim is not None]
        return [claim._replace(kind=self.prefix + claim.kind) for claim in said]

    def told(self, thresholds: Mapping[str, float]) -> list[tuple[str, bool]]:
        """Return for each head of which a kind of sentence is right: the kind, and whether it is told."""
        told = [(fact.kind, fact.value > thresholds[fact.kind]) for fact in self.facts]
        for claim, truth in zip(self._name_roles(thresholds), self.truths, strict=True):
            if truth:
                single = {role: strength for role, strength in truth.items() if role not in PAIRED} or truth
                best = max(single, key=lambda role: single[role])
                told.append((role_kind(best), claim is not None and claim.right))
        return [(self.prefix + kind, is_told) for kind, is_told in told]

    def _name_roles(self, thresholds: Mapping[str, float]) -> list[HeadClaim | None]:
        """Return the sentence on the role of each head, None for a head without a role."""
        used = tuple(thresholds[kind] for kind in ROLE_KINDS)
        if used not in self.names:
            self.names[used] = [role.role for role in choose_roles(self.roles, thresholds)]
        return [
            None if name is None else HeadClaim(role_kind(name), math.inf, name in truth)
            for name, truth in zip(self.names[used], self.truths, strict=True)
        ]


def measure(known: KnownModel, *, attention_only: bool = False) -> MeasuredSentences:
    """Return the sentences about a known model on attention and, unless `attention_only`, on the loss."""
    circuit, subject = known.circuit, cast(Any, known.subject)
    assert circuit is not None
    inputs = subject.unseen(SAMPLES, known.seed, purpose="sentences")
    others = subject.unseen(TRUTH_INPUTS, known.seed + OTHER, purpose="sentences")
    own, other = (look_at(subject, drawn) for drawn in (inputs, others))
    judged = [
        _judge_relevance(own, other, known.family == "decoder-only", circuit),
        _judge_alignment(_alignment_error(subject, inputs), _alignment_error(subject, others)),
    ]
    if not attention_only:
        importance = head_importance(subject, samples=SAMPLES, seed=known.seed)
        true = head_importance(subject, samples=TRUTH_INPUTS, seed=known.seed + OTHER)
        judged.append(_judge_losses(importance, true))
    return MeasuredSentences(
        program=known.name,
        family=family_of(known),
        heads=sum(layer.heads for layer in subject.layers),
        claims=[claim for claims, _ in judged for claim in claims],
        facts=[fact for _, facts in judged for fact in facts],
        **_roles(subject, inputs, own, other, known.seed),
    )


def _roles(subject: Any, inputs: Sequence[Any], own: Maps, other: Maps, seed: int) -> dict[str, Any]:
    """Return the roles that heads may have on some inputs, and those that they have on others."""
    models = (subject.untrained(seed + number) for number in range(UNTRAINED))
    untrained = [look_at(model, inputs[:UNTRAINED_INPUTS]) for model in models]
    truths = [truth for layer in own[0] for truth in true_roles([maps[layer] for maps in other])]
    return {"roles": measure_candidates(own, untrained, seed), "truths": truths}


def measure_external(known: KnownModel, give: Any) -> MeasuredSentences:
    """Return the sentences about the roles of the heads of a known model that is given as an external model."""
    run: Any = known.subject
    drawn = [run.unseen(SAMPLES, known.seed, purpose="sentences"),
             run.unseen(TRUTH_INPUTS, known.seed + OTHER, purpose="sentences")]  # fmt: skip
    models = [give(known, inputs) for inputs in drawn]
    inputs = [model.unseen(len(part), 0, purpose="sentences") for model, part in zip(models, drawn, strict=True)]
    own, other = ([model.look(input).layers for input in part] for model, part in zip(models, inputs, strict=True))
    roles = _roles(models[0], inputs[0], own, other, known.seed)
    return MeasuredSentences(program=known.name, family=family_of(known), prefix=f"{EXTERNAL}: ", **roles)


@torch.inference_mode()
def look_at(subject: Any, inputs: Sequence[Any]) -> Maps:
    """Return the layers of `subject.look` for each input; inputs of a run that have one length share a pass."""
    if not isinstance(subject, AnswerRun | LanguageRun):
        return [subject.look(input).layers for input in inputs]
    maps: dict[int, dict[str, LayerMap]] = {}
    for length in {len(input) for input in inputs}:
        numbers = [number for number, input in enumerate(inputs) if len(input) == length]
        batch, first = torch.stack([inputs[number] for number in numbers]), subject.look(inputs[numbers[0]]).layers
        with record_own(subject.model) as records:
            subject.model(batch)
        weights = {short_name(name): record.weights.float().numpy() for name, record in records.items()}
        relevance = subject.task.relevance(batch).numpy()
        for row, number in enumerate(numbers):
            letters = [visible(letter) for letter in subject.task.render(batch[row])]
            maps[number] = {}
            for name, layer in first.items():
                # A model can have a learned step after the inputs, on which no answer depends.
                rest = layer.key_labels[len(letters) :]
                relevant = None if layer.relevant is None else np.pad(relevance[row], ((0, 0), (0, len(rest))))
                queries = layer.query_labels if layer.kind == CROSS else letters
                own = replace(layer, weights=weights[name][row], relevant=relevant, query_labels=queries)
                maps[number][name] = replace(own, key_labels=[*letters, *rest])
    return [maps[number] for number in range(len(inputs))]


def family_of(known: KnownModel) -> str:
    """Return the family of a program: random programs that read the same pieces are one family."""
    assert known.circuit is not None
    summary = known.circuit.task.program.summary if known.name.startswith("drawn") else known.name
    return "trap" if known.kind == "trap" else f"{known.family}: {summary}"


def measure_reading(known: KnownModel) -> MeasuredSentences:
    """Return the sentences about relevant inputs and alignment of a known encoder-decoder."""
    subject: Any = known.subject
    assert known.circuit is not None
    drawn = [subject.unseen(count, known.seed + offset) for count, offset in ((SAMPLES, 0), (TRUTH_INPUTS, OTHER))]
    maps = [[subject.look(input).layers for input in inputs] for inputs in drawn]
    judged = [
        _judge_relevance(maps[0], maps[1], False, known.circuit),
        _judge_alignment(*(_alignment_error(subject, inputs) for inputs in drawn)),
    ]
    return MeasuredSentences(
        program=known.name,
        family=family_of(known),
        claims=[claim for claims, _ in judged for claim in claims],
        facts=[fact for _, facts in judged for fact in facts],
    )


def untrained_claims(known: KnownModel, thresholds: Mapping[str, float]) -> tuple[int, int]:
    """Return how many heads an untrained model of the size of a known model has, and of how many of them any
    sentence is said."""
    subject = cast(Any, known.subject).untrained(known.seed + OTHER)
    inputs = subject.unseen(SAMPLES, known.seed, purpose="sentences")
    compared = [cast(Any, known.subject).untrained(known.seed + number) for number in range(UNTRAINED)]
    maps, null = look_at(subject, inputs), [look_at(model, inputs[:UNTRAINED_INPUTS]) for model in compared]
    claimed = {
        (role.layer, role.head)
        for role in choose_roles(measure_candidates(maps, null, known.seed), thresholds)
        if role.role is not None
    }
    heads = {(layer.name, head) for layer in subject.layers for head in range(layer.heads)}
    return len(heads), len(heads if not_learned(subject, inputs, known.seed) is None else claimed)


def true_verdicts(circuit: Circuit) -> dict[Head, tuple[Need, frozenset[Head]]]:
    """Return the verdict on each head of a circuit, and the heads that it may name; heads whose need is not defined are
    left out."""
    verdicts: dict[Head, tuple[Need, frozenset[Head]]] = {}
    for layer, truths in circuit.needed.items():
        for head, truth in enumerate(truths):
            if truth is not None and not (circuit.used[layer][head] and not truth):
                verdicts[layer, head] = ("needed" if truth else "not needed", frozenset())
    for planted in circuit.sets:
        heads = [(layer, int(head)) for layer, _, head in (node.rpartition(".") for node in planted.nodes)]
        if planted.kind == "backup":
            verdicts[heads[-1]] = "backup", frozenset(heads)
        else:
            kind: Need = "opposes" if planted.kind == "oppose" else "needed only together"
            verdicts |= {head: (kind, frozenset(heads)) for head in heads}
    return verdicts


Truths = Mapping[Head, tuple[Need, frozenset[Head]]]


def judge(needs: Needs, truths: Truths) -> Iterator[HeadClaim]:
    """Yield the verdicts whose truth is defined. A verdict must name no other heads than those of the planted set."""
    for head, verdict in needs.verdicts.items():
        if head in truths and verdict != "cannot be told":
            kind, members = truths[head]
            named = {other for found in needs.sets if head in found.heads for other in found.heads}
            is_alone = verdict in ("needed", "not needed")
            right = verdict == kind and (is_alone or named <= members)
            yield HeadClaim(verdict, math.inf, right)
            if not is_alone:
                yield HeadClaim(TOGETHER, math.inf, right)


def need_facts(needs: Needs, truths: Truths) -> Iterator[Fact]:
    """Yield the heads whose need is known."""
    for head, verdict in needs.verdicts.items():
        if head in truths:
            kind = truths[head][0]
            for name in (kind,) if kind in ("needed", "not needed") else (kind, TOGETHER):
                yield Fact(name, math.inf if verdict == kind else -math.inf)


def measure_planted(known: KnownModel, subject: Any = None) -> MeasuredSentences:
    """Return the sentences on need, loss and roles about a known model, or about the same as an external model.

    The verdicts on a model without a circuit are compared with those over other inputs."""
    run = cast(Any, known.subject)
    drawn = [run.unseen(INPUTS, known.seed + offset, purpose="planted") for offset in (0, OTHER)]
    if known.circuit is None:
        again = find_needs(run, drawn[1], head_importance(run, samples=SAMPLES).added, seed=known.seed)
        truths: Truths = {h: (v, frozenset(h for s in again.sets for h in s.heads)) for h, v in again.verdicts.items()
                          if v != "cannot be told"}  # fmt: skip
    else:
        truths = true_verdicts(known.circuit)
    model, prefix = (run, "") if subject is None else (subject(known, drawn[0]), f"{EXTERNAL}: ")
    other = run if subject is None else subject(known, drawn[1][:TRUTH_INPUTS])
    inputs = [way.unseen(len(part), known.seed + offset, purpose="planted") for way, part, offset in
              ((model, drawn[0], 0), (other, drawn[1][:TRUTH_INPUTS], OTHER))]  # fmt: skip
    # The layers of an external model may have other names, in the same order.
    names = dict(zip((layer.name for layer in model.layers), (layer.name for layer in run.layers), strict=True))
    importance = head_importance(model, samples=SAMPLES, seed=known.seed)
    needs = find_needs(model, inputs[0], importance.added, seed=known.seed)
    own = {layer: name for name, layer in names.items()}
    truths = {
        (own[layer], head): (kind, frozenset((own[place], number) for place, number in members))
        for (layer, head), (kind, members) in truths.items()
        if layer in own
    }
    losses = _judge_losses(importance, head_importance(other, samples=TRUTH_INPUTS, seed=known.seed + OTHER))
    maps = [[way.look(input).layers for input in part] for way, part in
            ((model, inputs[0][:SAMPLES]), (other, inputs[1]))]  # fmt: skip
    claims, facts = [*losses[0], *judge(needs, truths)], [*losses[1], *need_facts(needs, truths)]
    return MeasuredSentences(
        program=known.name,
        family=f"planted: {known.name.rpartition('-')[0] or known.name}",
        heads=len(needs.verdicts),
        claims=claims,
        facts=facts,
        **_roles(model, inputs[0], maps[0], maps[1], known.seed),
        prefix=prefix,
        verdicts=tuple(needs.verdicts.values()),
    )


def true_roles(maps: Sequence[LayerMap]) -> Iterator[dict[str, float]]:
    """Yield for each head of a layer the roles that it has on all of some inputs, with their strengths."""
    searched = searched_roles(maps)
    strengths = role_strengths({**FIXED, **PAIRED, **searched}, maps)
    for head in range(len(maps[0].weights)):
        roles = {}
        if np.mean([uniform_deviation(sample.weights[head]) for sample in maps]) < EVEN:
            roles[UNIFORM] = 1.0
        for name, values in strengths.items():
            known = values[head][~np.isnan(values[head])]
            holds = len(known) > 0 and known.mean() > MAJORITY
            if name in searched and holds:
                holds = 2 * len(known) >= len(maps) and _holds_for_each(name, values[head], maps)
            if holds:
                roles[name] = float(known.mean())
        if RELEVANT in roles:
            roles[AT_STEPS] = roles[RELEVANT]
        yield roles


def _holds_for_each(name: str, values: np.ndarray, maps: Sequence[LayerMap]) -> bool:
    """Return whether a role holds for each symbol at its step, or for each step with its symbol."""
    groups: dict[object, list[float]] = {}
    for value, sample in zip(values, maps, strict=True):
        if np.isnan(value):
            continue
        if name.startswith("step "):
            places: list[object] = [sample.key_labels[int(name.split()[1].rstrip(","))]]
        else:
            symbol = name.split("'")[1]
            places = [index for index, label in enumerate(sample.key_labels) if label == symbol]
        if len(places) == 1:
            groups.setdefault(places[0], []).append(float(value))
    return all(np.mean(group) > FOR_EACH for group in groups.values() if len(group) >= FEWEST)


Judged = tuple[list[HeadClaim], list[Fact]]


def _judge_relevance(
    maps: Sequence[Mapping[str, LayerMap]], others: Sequence[Mapping[str, LayerMap]], causal: bool, circuit: Circuit
) -> Judged:
    """Return the sentences on attention to relevant inputs, after the correction over all heads."""
    heads: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = []
    for layer, first in maps[0].items():
        if first.relevant is not None:
            # Of the truth, only means are used, which need no resamples.
            measured, actual = (
                _relevance([sample[layer] for sample in drawn], causal, draw)
                for drawn, draw in ((maps, _resamples(len(maps))), (others, np.ones((2, len(others)))))
            )
            heads += [(layer, head, *pair) for head, pair in enumerate(zip(measured, actual, strict=True))]
    adjusted = benjamini_hochberg([own["relevance_p"] for _, _, own, _ in heads])
    claims, facts = [], []
    for (layer, head, own, true), p_value in zip(heads, adjusted, strict=True):
        if any(part[name] is None for part in (own, true) for name in ("beyond_uniform", "beyond_permuted")):
            continue  # no two inputs have outputs that depend on inputs at common steps
        beyond = min(true["beyond_uniform"].mean, true["beyond_permuted"].mean)
        right = {"relevant inputs": beyond > 0, "fixed positions": true["moved"] < STEADY}
        claim = claim_relevance(own["beyond_uniform"], own["beyond_permuted"], own["moved"])
        value = -math.inf
        if claim is not None and (claim.kind != "relevant inputs" or p_value <= (1 - LEVEL) / 2):
            claims.append(HeadClaim(claim.kind, claim.value, right[claim.kind]))
            if claim.kind == "relevant inputs":
                claims.append(HeadClaim("explains the answer", claim.value, bool(circuit.used[layer][head])))
                value = claim.value
        if beyond <= 0 and right["fixed positions"] and true["beyond_uniform"].mean > LEAST_BEYOND:
            steady = claim is not None and claim.kind == "fixed positions"
            facts.append(Fact("fixed positions", 1 - own["moved"] if steady else -math.inf))
        if beyond > LEAST_BEYOND:
            facts.append(Fact("relevant inputs", value))
        if circuit.used[layer][head]:
            facts.append(Fact("explains the answer", value))
    return claims, facts


def _relevance(maps: Sequence[LayerMap], causal: bool, draw: np.ndarray) -> list[dict[str, Any]]:
    weights = [sample.weights for sample in maps]
    relevance = [sample.relevant for sample in maps if sample.relevant is not None]
    others = [*range(1, len(maps)), 0]
    even = np.array([share(even_weights(relevant.shape, causal), relevant) for relevant in relevance])
    shares = np.stack([share(*pair) for pair in zip(weights, relevance, strict=True)], 1)
    permuted = np.stack([share(own, relevance[other]) for own, other in zip(weights, others, strict=True)], 1)
    movement = mean_distance((own, weights[other]) for own, other in zip(weights, others, strict=True))
    return [
        {**measure_relevance(own, other, even, draw), "moved": float(moved)}
        for own, other, moved in zip(shares, permuted, movement, strict=True)
    ]


@cache
def _resamples(count: int) -> np.ndarray:
    return resample_counts(count, 0)


def _alignment_error(subject: Any, inputs: Sequence[Any]) -> Mapping[str, Interval]:
    return subject.alignment_error(inputs) if isinstance(subject, KnowsAlignment) else {}


def _judge_alignment(rates: Mapping[str, Interval], true: Mapping[str, Interval]) -> Judged:
    """Return the sentences on the alignment error rate of each layer."""
    claims, facts = [], []
    for layer, rate in rates.items():
        if math.isnan(true[layer].value):
            continue  # the answers depend on no input
        said, low, high = alignment_quality(rate), true[layer].low or 0.0, true[layer].high or 1.0
        bars = [0.0, *(most for _, most in QUALITIES), 1.0]
        names = [*(name for name, _ in QUALITIES), "seldom"]
        # A claim is wrong if the interval over other inputs excludes it.
        ranges = zip(names, bars[:-1], bars[1:], strict=True)
        holds = {name: low < most and high >= least for name, least, most in ranges}
        if said is not None:
            claims.append(HeadClaim("alignment", math.inf, holds[said]))
        facts.append(Fact("alignment", math.inf if said is not None and holds[said] else -math.inf))
    return claims, facts


def _judge_losses(own: HeadImportance, true: HeadImportance) -> Judged:
    """Return the sentences that switching a head off raises the loss."""
    claims, facts = [], []
    for layer, values in own.added.items():
        for head in range(len(values)):
            interval = own.interval(layer, head)
            low = -math.inf if interval is None else interval.low
            right = true.added[layer][head] > LEAST_ADDED
            if low > 0:
                claims.append(HeadClaim(RAISES, low, right))
            if right:
                facts.append(Fact(RAISES, low if low > 0 else -math.inf))
    return claims, facts
