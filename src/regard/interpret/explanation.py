"""How one weight comes about, and what becomes of it: the sum, number by number.

    score   = the score's own steps, from one query and one key     scaled_dot: Σ q_d k_d / √D
    weights = softmax(scores + mask)                                over the row of this query
    context = Σ_j weights_j values_j
    added   = context W^O                                           of all heads together
    state   = norm(what was there + added)
    logits  = W state + b, after whatever layers follow

(Vaswani et al. 2017, sections 3.1 and 3.2, for the query model and the Transformer; a recurrent decoder has no
residual, and its context goes where the model says.) All numbers are the model's own, read while it answered.
"""

from typing import Any

from torch import Tensor

from regard.attention import AttentionLayer, MultiHeadAttention, short_name
from regard.errors import InputError, check_range
from regard.interpret.explanation_result import StepAnswer, Explanation
from regard.interpret.answer_trace import AnswerTrace, LayerRow, trace_answer, read_layer_row
from regard.viz.maps import CROSS, Map
from regard.viz.subject import Input, Subject

MOST_CLASSES = 20
"""Classes of which all logits are told; of more, the likeliest."""


def explain(
    subject: Subject[Input],
    input: str | None = None,
    *,
    layer: str | None = None,
    head: int = 0,
    output: int = 0,
    key: int | None = None,
    temperature: float = 1.0,
    seed: int = 0,
) -> Explanation:
    """Return how a head of a layer came to its weights for one query, while the subject answers an input.

    `input` None: one drawn by `seed`. `layer` None: the first in which outputs look at inputs, or the first of
    all. `output`: the step that looks, from 0. `key`: the step looked at; None: the one with the largest weight.
    `temperature`: what the head's scores are divided by before the softmax; above 1 its weights are more even.
    Raises `InputError` for a layer, head or step that is not there, and where layers are not Regard's.
    """
    name = _chosen(subject, layer)
    followed = trace_answer(subject, input, [name], seed=seed, temperature=temperature, head=head)
    [(found, events)] = followed.layers
    return make_explanation(
        subject, followed.shown, name, found, events, head=head, output=output, key=key, temperature=temperature
    )


def make_explanation(
    subject: Subject[Input],
    shown: Map,
    name: str,
    layer: AttentionLayer,
    events: AnswerTrace,
    *,
    head: int,
    output: int,
    key: int | None = None,
    temperature: float = 1.0,
) -> Explanation:
    """Return what `explain` does of an answer that was followed, in a layer called `name`.

    Raises `InputError` for a step that is not there.
    """
    row = read_layer_row(events.insides, output)
    mapped = shown.layers[short_name(name)]
    weights = row.weights[head]
    if key is None:
        key = int(weights.argmax())
    check_range("key", key, 0, len(weights) - 1)
    score, prepared = layer.score, row.key[head]
    steps = score.steps(row.query[head].float(), prepared[key].float())
    return Explanation(
        input=shown.input,
        layer=short_name(name),
        head=head,
        query=output,
        key=key,
        query_label=mapped.query_labels[output],
        key_labels=mapped.key_labels[: len(weights)],
        steps={each: _listed(values) for each, values in steps.items()},
        scale=score.scale(row.query.shape[-1]),
        scores=_listed(row.scores[head]),
        may_see=[True] * len(weights) if row.mask is None else row.mask[head].tolist(),
        temperature=temperature,
        weights=_listed(weights),
        values=_listed(row.value[head]),
        context=_listed(row.context[head]),
        **_after(layer, events, row, output, head),
        note=shown.note,
        answered=None if mapped.kind == "encoder" else _answered(subject, events, shown, output),
    )


def _chosen(subject: Subject[Input], layer: str | None) -> str:
    """Return the layer asked for, or the first in which outputs look at inputs."""
    if layer is not None:
        return layer
    if not subject.layers:
        raise InputError("the model has no attention to explain: train it with attention")
    return next((each.name for each in subject.layers if each.kind == CROSS), subject.layers[0].name)


def _after(layer: AttentionLayer, events: AnswerTrace, row: LayerRow, output: int, head: int) -> dict[str, Any]:
    """Return what becomes of the context of one query."""
    added, own = row.context.flatten(), None
    if isinstance(layer, MultiHeadAttention) and events.added is not None:
        added = events.added[0, output]
        matrix = layer.output.weight.double().cpu().unflatten(1, (layer.heads, -1))[:, head]
        own = _listed(matrix @ row.context[head])
    before, after = events.norm or (None, None)
    return {
        "added": _listed(added),
        "own_part": own,
        "before_norm": None if before is None else _listed(before[0, output]),
        "after_norm": None if after is None else _listed(after[0, output]),
    }


def _answered(subject: Subject[Input], events: AnswerTrace, shown: Map, output: int) -> StepAnswer | None:
    """Return what the model answers at an output step."""
    if events.logits is None or events.state is None:
        return None
    logits = events.logits[0].double().cpu()
    states = events.state.reshape(-1, events.state.shape[-1])
    shares = logits[output].softmax(-1)
    likely = shares.argsort(descending=True)[:MOST_CLASSES]
    prediction = shown.prediction
    return StepAnswer(
        answer=shown.outputs[output]
        if prediction is None or isinstance(prediction, str)
        else str(prediction[output]),
        probability=shown.probabilities[output],
        state=_listed(states[output if len(states) == len(logits) else 0]),
        classes=subject.called(likely.tolist()),
        logits=_listed(logits[output, likely]),
        probabilities=_listed(shares[likely]),
    )


def _listed(values: Tensor) -> list[Any]:
    found: list[Any] = values.detach().double().cpu().tolist()
    return found
