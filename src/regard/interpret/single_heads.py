"""Four questions about single heads: the effect of switching a head off, the heads that attend from one position
to another, what a head writes, and the inputs with its largest weights.

    regard.head_effect(run, "BCCCBAABACCCA", "cross", 1)
    regard.heads_between(run, "CADBFEDCADBFED", query=10, key=3)
    regard.head_writes(run, "CADBFEDCADBFED", "decoder.1.self_attention", 0)
    run.samples("cross", 1, token="B")
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from rich.table import Table
from rich.text import Text
from torch import Tensor

from regard.activations.weights import intervene
from regard.arguments import Limits, public
from regard.attention.names import known_name
from regard.errors import InputError, check_range
from regard.interpret.linear_pass import INDIRECT, DirectPaths
from regard.result import Result, plain_table, signed
from regard.viz.subject import Input, Subject, layer_named

MAX_RETURNED = 20  # Largest number of samples that are returned
MAX_LETTERS = 40  # Largest number of characters that a table of samples shows from an input
LISTED = 10  # Heads, or tokens, that a result lists by default


@public
@dataclass(frozen=True, kw_only=True)
class OutputEffect:
    """The effect of switching a head off on one output step."""

    step: int
    predicted: str
    """The predicted class of the unchanged model."""
    without: str
    """The predicted class without the head."""
    logit: float
    """Logit of `predicted`."""
    logit_without: float
    probability: float
    """Probability of `predicted`, 0 to 1."""
    probability_without: float
    raised: str
    """The class whose logit rises the most without the head."""
    raised_by: float
    lowered: str
    """The class whose logit falls the most without the head."""
    lowered_by: float


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class HeadEffect(Result):
    """How the outputs change when a head is off."""

    input: str
    layer: str
    head: int
    outputs: list[OutputEffect]

    def summary(self) -> str:
        changed = sum(output.predicted != output.without for output in self.outputs)
        return f"{self.layer} head {self.head} off: {changed} of {len(self.outputs)} predictions change"

    def table(self) -> Table:
        columns = ("output", "predicted", "without", "its logit", "without", "its probability", "without")
        rows = [
            (
                *(str(output.step), repr(output.predicted), repr(output.without)),
                *(signed(output.logit), signed(output.logit_without)),
                *(f"{output.probability:.4f}", f"{output.probability_without:.4f}"),
                *(f"{output.raised!r} {signed(output.raised_by)}", f"{output.lowered!r} {signed(output.lowered_by)}"),
            )
            for output in self.outputs
        ]
        return plain_table((*columns, "rises most", "falls most"), rows, self.summary())


@public
@torch.no_grad()
def head_effect(subject: Subject[Any], input: Any, layer: str, head: int) -> HeadEffect:
    """Return how the logits, probabilities and predictions for an input change when a head is off.

    `layer`: name or number of the layer. A head is off if all its weights are zero, as in `intervene`. An
    encoder-decoder reads its answer (or the target of the input) in both runs.

    >>> effect = regard.head_effect(run, "BCCCBAABACCCA", "cross", 1)    # doctest: +SKIP
    >>> effect.outputs[0].probability_without    # doctest: +SKIP
    0.41

    Raises `InputError` for an unknown layer or head, and for an input that the model rejects.
    """
    name = _check_head(subject, layer, head)
    prepared = subject.prepare(input)
    probe = subject.trial(prepared)
    # One probe for both passes, so that an encoder-decoder reads the same answer with and without the head.
    before = probe.run(1)[0].float()
    with intervene(subject, name, heads=[head]):
        after = probe.run(1)[0].float()
    change = after - before
    shares = [logits.softmax(-1) for logits in (before, after)]
    outputs = []
    for step, predicted in enumerate(before.argmax(-1).tolist()):
        rises, falls = int(change[step].argmax()), int(change[step].argmin())
        names = subject.called([predicted, int(after[step].argmax()), rises, falls])
        outputs.append(
            OutputEffect(
                step=step,
                predicted=names[0],
                without=names[1],
                logit=float(before[step, predicted]),
                logit_without=float(after[step, predicted]),
                probability=float(shares[0][step, predicted]),
                probability_without=float(shares[1][step, predicted]),
                raised=names[2],
                raised_by=float(change[step, rises]),
                lowered=names[3],
                lowered_by=float(change[step, falls]),
            )
        )
    return HeadEffect(input=subject.look(prepared).input, layer=name, head=head, outputs=outputs)


@public
@dataclass(frozen=True, kw_only=True)
class HeadWeight:
    """The weight of one head on one key."""

    layer: str
    head: int
    weight: float
    query: str
    """Name of the query in the layer."""
    key: str


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class HeadsBetween(Result):
    """The heads that attend from a query to a key, by descending weight."""

    input: str
    query: int
    key: int
    heads: list[HeadWeight]

    def summary(self) -> str:
        first = self.heads[0]
        return f"{first.layer} head {first.head} attends most from {first.query} to {first.key}, {first.weight:.1%}"

    def table(self) -> Table:
        rows = ((head.layer, str(head.head), f"{head.weight:.4f}", head.query, head.key) for head in self.heads)
        return plain_table(("layer", "head", "weight", "from", "to"), rows)


@public
@torch.no_grad()
def heads_between(
    subject: Subject[Any], input: Any, query: int, key: int, *, count: Annotated[int, Limits(1, 10**6)] = LISTED
) -> HeadsBetween:
    """Return the `count` heads with the largest weight of a query on a key.

    `query`, `key`: steps, counted from 0, negative from the end. In an encoder-decoder, they count source steps
    in the encoder, target steps in the decoder, and target and source steps in cross-attention.

    >>> regard.heads_between(run, "CADBFEDCADBFED", query=10, key=3).heads[0]    # doctest: +SKIP
    HeadWeight(layer='decoder.1.self_attention', head=0, weight=0.93, query='B', key='D')

    Raises `InputError` if no layer has these steps.
    """
    shown = subject.look(subject.prepare(input))
    heads, sizes = [], set()
    for layer in shown.layers.values():
        if layer.rows is not None:
            raise InputError("the weights of this input are not exact, because it is too long: give a shorter input")
        queries, keys = layer.weights.shape[1:]
        sizes.add((queries, keys))
        if not (-queries <= query < queries and -keys <= key < keys):
            continue
        names = layer.query_labels[query], layer.key_labels[key]
        heads += [
            HeadWeight(layer=layer.name, head=head, weight=float(weight), query=names[0], key=names[1])
            for head, weight in enumerate(layer.weights[:, query, key])
        ]
    if not heads:
        known = ", ".join(f"{queries} by {keys}" for queries, keys in sorted(sizes)) or "no layers"
        raise InputError(f"no layer has query {query} and key {key}: this input has queries by keys {known}")
    ranked = sorted(heads, key=lambda head: -head.weight)[:count]
    return HeadsBetween(input=shown.input, query=query, key=key, heads=ranked)


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class HeadWrites(Result):
    """The classes whose logits a head raises and lowers the most along the direct path."""

    input: str
    layer: str
    head: int
    step: int
    raised: list[tuple[str, float]]
    """Class and part of its logit, minus the mean over classes; the largest first."""
    lowered: list[tuple[str, float]]
    """The smallest first."""

    def summary(self) -> str:
        name, value = self.raised[0]
        return f"{self.layer} head {self.head} raises {name!r} the most at step {self.step}, {signed(value)}"

    def table(self) -> Table:
        pairs = zip(self.raised, self.lowered, strict=True)
        rows = ((repr(up), signed(rise), repr(down), signed(fall)) for (up, rise), (down, fall) in pairs)
        return plain_table(("raises", "by", "lowers", "by"), rows, f"{self.summary()} (direct path, norms frozen)")


@public
def head_writes(
    subject: Subject[Any],
    input: Any,
    layer: str,
    head: int,
    *,
    step: int | None = None,
    count: Annotated[int, Limits(1, 10**6)] = LISTED,
) -> HeadWrites:
    """Return the classes or tokens that a head writes: the largest direct parts of its output in the logits.

    The output of the head passes the output projection, later norms (frozen), and the unembedding, but no other
    layer (Elhage et al. 2021). The mean over all classes, which changes no probability, is
    subtracted. `step`: output step (None: the last).

    >>> regard.head_writes(run, "CADBFEDCADBFED", "decoder.1.self_attention", 0).raised[0]    # doctest: +SKIP
    ('C', 5.1)

    Raises `InputError` for a model without a residual stream, and for a layer without a direct path.
    """
    name = _check_head(subject, layer, head)
    prepared = subject.prepare(input)
    paths, probe = DirectPaths(subject.model, subject.components), subject.trial(prepared)
    with torch.enable_grad(), paths.watch():
        logits = probe.run(1)[0]
        steps = len(logits)
        place = steps - 1 if step is None else step
        check_range("step", place, -steps, steps - 1)
        parts = paths.head_logits(logits[place])
    if name not in parts:
        raise InputError(f"{name} writes to no logit: {INDIRECT}")
    written = parts[name][head] - parts[name][head].mean()

    def listed(values: Tensor) -> list[tuple[str, float]]:
        order = values.topk(min(count, len(values))).indices.tolist()
        return list(zip(subject.called(order), written[order].tolist(), strict=True))

    return HeadWrites(
        input=subject.look(prepared).input,
        layer=name,
        head=head,
        step=place % steps,
        raised=listed(written),
        lowered=listed(-written),
    )


def _check_head(subject: Subject[Any], layer: str, head: int) -> str:
    """Return the name of a layer; raises `InputError` for an unknown layer or head."""
    heads = {known.name: known.heads for known in subject.layers}
    if not heads:
        raise InputError(f"{subject.name} has no attention: choose a model with attention layers")
    name = layer_named(str(layer), list(heads))
    check_range("head", head, 0, heads[name] - 1)
    return name


@dataclass(frozen=True, kw_only=True)
class HeadSample:
    """One input, and the largest weight of a head for this input."""

    input: str
    weight: float  # The largest weight (0 to 1), on the requested token if a token was requested
    query: int  # Index of the query, from 0
    key: int  # Index of the key, from 0
    query_label: str
    key_label: str
    right: bool | None  # Whether the whole answer is correct; None if unknown


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class HeadSamples(Result):
    """The inputs with the largest weights of a head, in decreasing order."""

    layer: str
    head: int
    token: str | None
    """The requested key; None for any key."""
    looked_at: int
    """Number of inputs that were searched."""
    wrong: int | None
    """Number of searched inputs with incorrect answers; None if unknown."""
    samples: list[HeadSample]

    def summary(self) -> str:
        token = "anything" if self.token is None else repr(self.token)
        errors = "" if self.wrong is None else f", {self.wrong} answered wrongly"
        return f"{self.layer} head {self.head} on {token}: {self.looked_at} inputs{errors}"

    def table(self) -> Table:
        rows = []
        for sample in self.samples:
            short = sample.input if len(sample.input) <= MAX_LETTERS else f"{sample.input[: MAX_LETTERS - 1]}…"
            answer = {True: "right", False: "wrong", None: ""}[sample.right]
            query, key = f"{sample.query_label} ({sample.query})", f"{sample.key_label} ({sample.key})"
            rows.append((f"{sample.weight:.4f}", Text(query), Text(key), answer, Text(short)))
        return plain_table(("weight", "query", "key", "answer", "input"), rows, self.summary())


def head_samples(
    subject: Subject[Input],
    layer: str,
    head: int,
    *,
    token: str | None = None,
    wrong_first: bool = False,
    samples: int = 200,
    seed: int = 0,
) -> HeadSamples:
    """Search unseen inputs for the largest weights of a head.

    `token`: label of a key; only weights on keys with this label are used, and other inputs are left out.
    `wrong_first`: incorrect answers come first. `samples`: number of inputs to search; at most 20 are returned.

    Raises `InputError` for an unknown layer or head, if there are no unseen inputs, and if no input contains the token.
    """
    check_range("samples", samples, 1, 10**5)
    layer = _check_head(subject, known_name(layer, [known.name for known in subject.layers]), head)
    inputs = subject.unseen(samples, seed)
    results, correct, tokens = list[HeadSample](), list[bool | None](), set[str]()
    for attention in map(subject.look, inputs):
        shown = attention.layers[layer]
        correct.append(None if attention.truth is None else attention.prediction == attention.truth)
        tokens.update(shown.key_labels)
        keys = [key for key, label in enumerate(shown.key_labels) if token in (None, label)]
        if not keys:
            continue
        weights = shown.weights[head][:, keys]
        query, index = map(int, np.unravel_index(int(weights.argmax()), weights.shape))
        results.append(
            HeadSample(
                input=attention.input,
                weight=float(weights[query, index]),
                query=query,
                key=keys[index],
                query_label=shown.query_labels[query],
                key_label=shown.key_labels[keys[index]],
                right=correct[-1],
            )
        )
    if not results:
        raise InputError(
            f"token {token!r} is in none of {len(inputs)} inputs: choose another token, such as {min(tokens)!r}"
        )
    # Unknown answers are treated as correct: only answers that are known to be incorrect are listed first.
    results.sort(key=lambda sample: (wrong_first and sample.right is not False, -sample.weight))
    return HeadSamples(
        layer=layer,
        head=head,
        token=token,
        looked_at=len(inputs),
        wrong=None if None in correct else correct.count(False),
        samples=results[:MAX_RETURNED],
    )
