"""Explain how one attention weight is computed, and how it contributes to the answer.

    score   = f(query, key)                 scaled_dot: Σ q_d k_d / √D
    weights = softmax(scores + mask)        over the keys of this query
    context = Σ_j weights_j values_j
    added   = context W^O                   of all heads together
    state   = norm(residual + added)
    logits  = W state + b                   after all following layers

(Vaswani et al. 2017, sections 3.1 and 3.2, for the query model and the Transformer. A recurrent decoder has no
residual, and its model defines the use of the context.) Parts of other mechanisms that change scores, weights or
the context are named; their own steps are not shown. All numbers are recorded while the model answers the input.
"""

import dataclasses
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import torch.nn.functional as F
from rich.console import Group, RenderableType
from rich.text import Text
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.arguments import public
from regard.attention.descriptions import context_changes, describe_normalizer, is_plain, score_changes
from regard.attention.interventions import temper
from regard.attention.layer import (
    AttentionLayer,
    LayerCall,
    attach_hooks,
    attention_layers,
    find_layer,
    trace_layer,
    with_receiver,
)
from regard.attention.multihead import MultiHeadAttention
from regard.attention.names import short_name
from regard.errors import check_range
from regard.result import Result, plain_table
from regard.viz.attention_map import AttentionMap, skip_original
from regard.viz.maps import UNFINITE, AnswerIntermediates, Intermediates, LayerIntermediates, Map, ScoreStep
from regard.viz.subject import Input, ViewedSubject, first_layer


class AnswerTrace(TorchFunctionMode):
    """The calls of one attention layer in the last pass of a model, and the operations that follow the layer.

    A pass begins with the first query of the layer; earlier passes are discarded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.insides: list[LayerCall] = []  # The calls of the layer, of the last pass after the block of `trace_answer`
        self.z: list[Tensor] = []
        """The contexts (B, Tq, H, Dv) of each call after all changes, as the output projection reads them."""
        self.out: list[Tensor] = []  # The output (B, Tq, D) of each call
        self.norm: tuple[Tensor, Tensor] | None = None  # Input and output of the first normalization after the layer
        self.state: Tensor | None = None  # Input of the last matrix product of the model
        self.logits: Tensor | None = None

    def receive(self, kind: str, value: Tensor, step: int | None) -> Tensor:
        if kind == "z" and not step:
            self.z, self.out, self.norm = [], [], None
        (self.z if kind == "z" else self.out).append(value)
        return value

    def record_logits(self, model: nn.Module, inputs: object, logits: Tensor) -> None:
        self.logits = logits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a PyTorch function, and record matrix products and normalizations."""
        result = func(*args, **(kwargs or {}))
        if func is F.linear:
            self.state = args[0]
        elif func in (F.layer_norm, F.rms_norm) and self.out and self.norm is None:
            self.norm = (args[0], result)
        return result


def read_query(calls: Sequence[LayerCall], output: int) -> LayerCall:
    """Return what a layer computes for one query of its only input, without the dimensions of batch and query, in
    float64 on the CPU; the layer processes all queries at once or step by step."""
    # A Transformer processes all queries in one call; a recurrent decoder processes one query per call.
    at_once = calls[0].step is None
    check_range("output", output, 0, (calls[0].query.shape[2] if at_once else len(calls)) - 1)
    call, row = (calls[0], output) if at_once else (calls[output], 0)
    # The values are float64, so that displayed sums and products agree with each other to all displayed digits.
    of_query = {
        name: getattr(call, name)[0, :, row].double().cpu() for name in ("query", "scores", "weights", "context")
    }
    of_keys = {name: getattr(call, name)[0].double().cpu() for name in ("key", "value")}
    mask = None if call.mask is None else call.mask.expand_as(call.scores)[0, :, row].cpu()
    return call._replace(**of_query, **of_keys, mask=mask)


def trace_answer(
    subject: ViewedSubject[Input],
    input: str | None,
    layers: Sequence[str],
    *,
    seed: int = 0,
    temperature: float = 1.0,
    head: int = 0,
) -> tuple[AttentionMap, list[tuple[AttentionLayer, AnswerTrace]]]:
    """Answer an input, and trace some layers; return the map, and each layer with its trace. `input`: by default an
    input drawn with `seed`. `temperature`: divides the scores of `head` in these layers. Raises `InputError` for an
    unknown layer or head."""
    modules = [find_layer(subject.model, layer) for layer in layers]
    traced = [(layer, AnswerTrace()) for layer in modules]
    names = {id(module): name for name, module in attention_layers(subject.model).items()}
    # A second pass without the interventions would replace the trace of the first pass.
    with skip_original(), ExitStack() as stack:
        for layer, trace in traced:
            check_range("head", head, 0, layer.heads - 1)
            stack.callback(subject.model.register_forward_hook(trace.record_logits).remove)
            if temperature != 1:
                stack.enter_context(temper(subject.model, names[id(layer)], temperature, heads=[head]))
            trace.insides = stack.enter_context(trace_layer(layer))
            stack.enter_context(attach_hooks({layer: with_receiver(layer.hook, ("z", "out"), trace.receive)}))
            stack.enter_context(trace)
        shown = subject.attend(input, seed=seed)
    for _, trace in traced:
        # The last pass begins with the last call of the first query.
        starts = [index for index, call in enumerate(trace.insides) if not call.step]
        trace.insides = trace.insides[starts[-1] :] if starts else trace.insides
    return shown, traced


# The explanation of one attention weight, as numbers and as tables; `explanation` computes it.

NUMBERS_SHOWN = 5  # Number of printed values of a vector, which fit into a line of 80 columns
BAR_WIDTH = 20  # Length of the longest bar, in characters


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation(Result):
    """One head's weight for one query and key, and its effect on the outputs of the layer and of the model."""

    input: str
    layer: str
    head: int
    query: int
    """Index of the query, from 0."""
    key: int
    """Index of the key, from 0."""
    query_label: str
    key_labels: list[str]
    steps: dict[str, list[float]]
    """Intermediate vectors of the score by name; empty for a score that does not provide them. The score is the
    sum of the last vector's numbers, times `scale`."""
    scale: float
    scores: list[float]
    """Scores of this query and each key (Tk), before the mask. Without scores: the weights."""
    has_scores: bool
    """Whether the mechanism has scores. The linear family has none."""
    score_changes: list[str]
    """Parts that change the result of the score function, such as alibi; their changes are in `scores`."""
    normalizer: str
    """How the weights follow from the scores, such as "softmax over the row"."""
    may_see: list[bool]
    """Keys that the mask permits, (Tk) bool."""
    temperature: float
    """The number that divides the scores before the softmax; 1 leaves them unchanged."""
    weights: list[float]
    """Weight of each key (Tk): the softmax of the scores over permitted keys, unless `normalizer` differs."""
    values: list[list[float]]
    """Value of each key in this head (Tk, Dv)."""
    context: list[float]
    """Sum of the values, weighted by the weights (Dv)."""
    context_changes: list[str]
    """Parts that change the context before the output projection, such as output_gate."""
    changed_context: list[float] | None
    """The context after these parts (Dv); None without such parts."""
    added: list[float]
    """Output of the layer, for all heads together (D)."""
    own_part: list[float] | None
    """This head's part of `added` (D); None for a single head, whose context is the whole output."""
    before_norm: list[float] | None
    """Sum of the residual and `added` (D); None if no normalization follows."""
    after_norm: list[float] | None
    """The state after the normalization (D)."""
    note: str = ""
    """A remark on an unusual input; empty for a usual input."""
    answered: AnswerIntermediates | None
    """The model's answer at this output step; None for a layer whose queries are not output steps."""

    @property
    def score(self) -> float:
        """Score of the explained key."""
        return self.scores[self.key]

    @property
    def weight(self) -> float:
        """Weight of the explained key."""
        return self.weights[self.key]

    def summary(self) -> str:
        pair = f"{self.query_label} (step {self.query}) attends to {self.key_labels[self.key]} (step {self.key})"
        return f"{self.layer} head {self.head}: {pair} with weight {self.weight:.4f}"

    def table(self) -> RenderableType:
        """Return all steps of the computation in order."""
        title = partial(Text, style="bold")
        parts: list[RenderableType] = [Text(self.summary()), *([Text(f"Note: {self.note}")] if self.note else [])]

        parts.append(title("\n1. The score: how well the query matches the key"))
        parts += [_vector(name, values) for name, values in self.steps.items()]
        if self.steps:
            total = sum(list(self.steps.values())[-1])
            scaled = "" if self.scale == 1 else f", times {self.scale:.4f} is {total * self.scale:.4f}"
            parts.append(Text(f"The last row sums to {total:.4f}{scaled}"))
        else:
            unknown = "The steps of this score are not known"
            parts.append(Text(unknown if self.has_scores else "This mechanism has no score"))
        if self.score_changes:
            parts.append(Text(f"Changed by {', '.join(self.score_changes)} to {self.score:.4f}"))

        table = plain_table(("", "key", "score", "weight", ""))
        largest = max([*map(abs, filter(math.isfinite, self.weights)), 1e-9])
        for index, label in enumerate(self.key_labels):
            score = f"{self.scores[index]:.4f}" if self.has_scores else ""
            score = score if self.may_see[index] else "masked"
            # Bars are relative to the largest weight: if there are many keys, bars on a scale up to 1 are empty.
            bar = _bar(abs(self.weights[index]) / largest)
            mark = "→" if index == self.key else ""
            table.add_row(f"{mark}{index}", Text(label), score, f"{self.weights[index]:.4f}", bar)
        divided = "" if self.temperature == 1 else f", of the scores divided by {self.temperature:g}"
        parts += [title(f"\n2. The weights: {self.normalizer}{divided}"), table]
        parts.append(Text(f"The weights sum to {sum(self.weights):.4f}"))

        vectors: dict[str, Sequence[float] | None] = {
            "value": self.values[self.key],
            "times its weight": [self.weight * number for number in self.values[self.key]],
            "context, of all keys": self.context,
            f"after {', '.join(self.context_changes)}": self.changed_context,
            "added, of this head": self.own_part,
            "added, of all heads": None if self.own_part is None else self.added,
            "plus the residual": self.before_norm,
            "normalized": self.after_norm,
        }
        parts.append(title("\n3. The context: weights times values"))
        parts += [_vector(name, values) for name, values in vectors.items() if values is not None]

        if (answered := self.answered) is not None:
            classes = list(zip(answered.classes, answered.logits, answered.probabilities, strict=True))[:5]
            rows = ((Text(label), f"{logit:.4f}", f"{share:.4f}", _bar(share)) for label, logit, share in classes)
            table = plain_table(("answer", "logit", "probability", ""), rows)
            text = f"\n4. The answer at this step: {answered.answer}, {answered.probability:.4f}"
            parts += [title(text), _vector("state", answered.state), table]
        return Group(*parts)


def _bar(share: float) -> str:
    return "█" * round(share * BAR_WIDTH) if math.isfinite(share) else UNFINITE


def _vector(name: str, values: Sequence[float]) -> Text:
    shown = " ".join(f"{value:7.3f}" for value in values[:NUMBERS_SHOWN])
    more = f" … {len(values)} in all" if len(values) > NUMBERS_SHOWN else ""
    return Text(f"{name:22}{shown}{more}")


MAX_CLASSES = 20  # Largest number of classes whose logits are returned, in order of decreasing probability


@public
def explain(
    subject: ViewedSubject[Input],
    input: str | None = None,
    *,
    layer: str | None = None,
    head: int = 0,
    output: int = 0,
    key: int | None = None,
    temperature: float = 1.0,
    seed: int = 0,
) -> Explanation:
    """Explain the attention weights of one head for one query, while the subject answers an input.

    `input`: by default an input drawn by `seed`. `layer`: by default the first layer in which outputs attend to
    inputs, or, without such a layer, the first layer. `output`: index of the query, from 0. `key`: index of the
    explained key, from 0; by default the key with the largest weight. `temperature`: divides the head's scores
    before the softmax; values above 1 make the weights more uniform.

    >>> run = regard.load("runs/signal2")    # doctest: +SKIP
    >>> print(regard.explain(run, head=1, output=2))    # doctest: +SKIP

    Raises `InputError` for an unknown layer, head or step, and for layers that are not Regard's.
    """
    name = layer or first_layer(subject)
    shown, [(module, trace)] = trace_answer(subject, input, [name], seed=seed, temperature=temperature, head=head)
    return make_explanation(
        subject, shown, name, module, trace, head=head, output=output, key=key, temperature=temperature
    )


def make_explanation(
    subject: ViewedSubject[Input],
    shown: Map,
    name: str,
    layer: AttentionLayer,
    trace: AnswerTrace,
    *,
    head: int,
    output: int,
    key: int | None = None,
    temperature: float = 1.0,
) -> Explanation:
    """Explain one weight of a traced answer in the layer `name`. Raises `InputError` for an unknown step."""
    row = read_query(trace.insides, output)
    layer_map, weights = shown.layers[short_name(name)], row.weights[head]
    key = int(weights.argmax()) if key is None else key
    check_range("key", key, 0, len(weights) - 1)
    score, prepared = layer.score, row.key[head]
    # Scores are computed in float32, as in the model. The linear family has no scores.
    steps = {} if layer.linear is not None else score.steps(row.query[head].float(), prepared[key].float())
    added, own, projected = row.context.flatten(), None, row.context[head]
    if isinstance(layer, MultiHeadAttention):
        added = trace.out[0][0, output]
        projected = trace.z[0][0, output, head].double().cpu()
        # W^O is linear, so the columns of W^O for this head compute the head's part of the sum.
        own = _to_list(layer.output.weight.double().cpu().unflatten(1, (layer.heads, -1))[:, head] @ projected)
    before, after = (None if states is None else _to_list(states[0, output]) for states in trace.norm or (None, None))
    changes = context_changes(layer)
    return Explanation(
        input=shown.input,
        layer=short_name(name),
        head=head,
        query=output,
        key=key,
        query_label=layer_map.query_labels[output],
        key_labels=layer_map.key_labels[: len(weights)],
        steps={step: _to_list(values) for step, values in steps.items()},
        scale=score.scale(row.query.shape[-1]),
        scores=_to_list(row.scores[head]),
        has_scores=layer.linear is None,
        score_changes=score_changes(layer),
        normalizer=describe_normalizer(layer),
        may_see=[True] * len(weights) if row.mask is None else row.mask[head].tolist(),
        temperature=temperature,
        weights=_to_list(weights),
        values=_to_list(row.value[head]),
        context=_to_list(row.context[head]),
        context_changes=changes,
        changed_context=_to_list(projected) if changes else None,
        added=_to_list(added),
        own_part=own,
        before_norm=before,
        after_norm=after,
        note=shown.note,
        answered=None if layer_map.kind == "encoder" else _explain_answer(subject, trace, shown, output),
    )


def _explain_answer(
    subject: ViewedSubject[Input], trace: AnswerTrace, shown: Map, output: int
) -> AnswerIntermediates | None:
    """Return the model's answer at an output step."""
    if trace.logits is None or trace.state is None or not shown.probabilities:
        return None
    logits = trace.logits[0].double().cpu()
    states = trace.state.reshape(-1, trace.state.shape[-1])
    # Normalize over all classes before the likeliest classes are selected, whose probabilities need not sum to 1.
    probabilities = logits[output].softmax(-1)
    likely = probabilities.argsort(descending=True)[:MAX_CLASSES]
    prediction = shown.prediction
    return AnswerIntermediates(
        answer=shown.outputs[output] if prediction is None or isinstance(prediction, str) else str(prediction[output]),
        probability=shown.probabilities[output],
        # A decoder that runs step by step calls the last layer once per step, with one state.
        state=_to_list(states[output if len(states) == len(logits) else 0]),
        classes=subject.called(likely.tolist()),
        logits=_to_list(logits[output, likely]),
        probabilities=_to_list(probabilities[likely]),
    )


def _to_list(values: Tensor) -> list[Any]:
    return values.detach().double().cpu().tolist()


# The intermediate values of all weights of a map, so that a page can explain them offline: the results of
# `explain` without duplicates. A vector that depends only on the query is stored once per query, and the product
# of two other vectors is not stored.

MAX_NUMBERS = 250_000  # Largest number of intermediate values in a map; these values take 1.3 MB in a page
MAX_WEIGHTS = 20_000  # Largest number of weights in a map for which intermediate values are computed


NOT_STORED = "this page does not contain the computation of these weights: use regard explain"
"""Note on a map whose layers have other parts than the softmax of a score."""


def with_sums(subject: ViewedSubject[Input], shown: AttentionMap) -> AttentionMap:
    """Return a map of `subject` with the intermediate values of its weights.

    The map is returned unchanged if it would contain more than `MAX_NUMBERS` values, or if an intervention has
    changed the weights since. For a mechanism with other steps than the softmax of a score, the map is
    returned with a note, because a page computes only these steps.
    """
    weights = sum(layer.weights.size for layer in shown.layers.values())
    names = [layer.name for layer in subject.layers if layer.name in shown.layers]
    own = {short_name(name): layer for name, layer in attention_layers(subject.model).items()}
    if any(name in own and not is_plain(own[name]) for name in names):
        return dataclasses.replace(shown, note="; ".join(filter(None, (shown.note, NOT_STORED))))
    if not 0 < weights <= MAX_WEIGHTS or len(names) < len(shown.layers):
        return shown
    # The answer is computed again, because a map contains no intermediate values.
    again, traced = trace_answer(subject, shown.input, names)
    layers: dict[str, LayerIntermediates] = {}
    answers: list[AnswerIntermediates] = []
    for name, (module, trace) in zip(names, traced, strict=True):
        if not trace.insides:
            return shown
        sums, layer_answers = _layer_values(subject, again, name, module, trace)
        if not np.allclose(sums.weights, shown.layers[name].weights, atol=1e-4):
            return shown
        layers[name] = sums
        answers = layer_answers or answers
    arrays = [
        array
        for layer in layers.values()
        for array in (*vars(layer).values(), *(step.numbers for step in layer.steps))
        if isinstance(array, np.ndarray)
    ]
    if sum(array.size for array in arrays) + sum(len(answer.state) for answer in answers) > MAX_NUMBERS:
        return shown
    return dataclasses.replace(shown, sums=Intermediates(layers=layers, answers=answers))


def _layer_values(
    subject: ViewedSubject[Input], shown: Map, name: str, layer: AttentionLayer, trace: AnswerTrace
) -> tuple[LayerIntermediates, list[AnswerIntermediates]]:
    heads, queries, keys = shown.layers[name].weights.shape
    explain_query = partial(make_explanation, subject, shown, name, layer, trace, key=0)
    explanations = [[explain_query(head=head, output=query) for query in range(queries)] for head in range(heads)]

    def stack(field: str, width: int = 0) -> np.ndarray:
        """Return a field of all explanations, (H, Tq, any), with zeros for keys after the query's step."""
        rows = [[np.array(getattr(query, field), float) for query in head] for head in explanations]
        return np.array([[np.pad(row, (0, max(width - len(row), 0))) for row in head] for head in rows])

    first = explanations[0][0]
    sums = LayerIntermediates(
        steps=_score_steps(layer, trace, heads, queries, keys),
        scale=first.scale,
        scores=stack("scores", keys),
        may_see=stack("may_see", keys).astype(bool),
        weights=stack("weights", keys),
        values=np.array([head[-1].values for head in explanations]),
        context=stack("context"),
        added=stack("added")[0],
        own_part=None if first.own_part is None else stack("own_part"),
        before_norm=None if first.before_norm is None else stack("before_norm")[0],
        after_norm=None if first.after_norm is None else stack("after_norm")[0],
    )
    return sums, [query.answered for query in explanations[0] if query.answered is not None]


def _score_steps(layer: AttentionLayer, trace: AnswerTrace, heads: int, queries: int, keys: int) -> list[ScoreStep]:
    """Return the intermediate vectors of the scores, each stored as compactly as possible."""
    rows = [read_query(trace.insides, query) for query in range(queries)]
    prepared = rows[-1].key.float()
    pair_steps = [
        [[layer.score.steps(row.query[head].float(), prepared[head, key]) for key in range(keys)] for row in rows]
        for head in range(heads)
    ]
    arrays, steps = list[np.ndarray](), list[ScoreStep]()
    for name in pair_steps[0][0][0]:
        array = np.array([[[pair[name].detach().numpy() for pair in row] for row in head] for head in pair_steps])
        # The function detects from the values whether each vector depends on the query, the key or both, so
        # that a new score needs no declaration.
        pairs = combinations(range(len(arrays)), 2)
        products = (pair for pair in pairs if np.allclose(arrays[pair[0]] * arrays[pair[1]], array))
        if (factors := next(products, None)) is not None:
            steps.append(ScoreStep(name, None, "product", factors))
        elif (array == array[:, :, :1]).all():
            steps.append(ScoreStep(name, array[:, :, 0], "query"))
        elif (array == array[:, :1]).all():
            steps.append(ScoreStep(name, array[:, 0], "key"))
        else:
            steps.append(ScoreStep(name, array, "pair"))
        arrays.append(array)
    return steps
