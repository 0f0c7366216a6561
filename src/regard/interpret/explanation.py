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

from typing import Any

from torch import Tensor

from regard.arguments import public
from regard.attention.descriptions import context_changes, describe_normalizer, score_changes
from regard.attention.hooks import AttentionLayer
from regard.attention.multihead import MultiHeadAttention
from regard.attention.names import short_name
from regard.errors import InputError, check_range
from regard.interpret.answer_trace import AnswerTrace, LayerRow, read_layer_row, trace_answer
from regard.interpret.explanation_result import Explanation, StepAnswer
from regard.viz.maps import CROSS, Map
from regard.viz.subject import Input, Subject

MAX_CLASSES = 20
"""Largest number of classes whose logits are returned, in order of decreasing probability."""


@public
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
    """Explain the attention weights of one head for one query, while the subject answers an input.

    `input`: by default an input drawn by `seed`. `layer`: by default the first layer in which outputs attend to
    inputs, or, without such a layer, the first layer. `output`: index of the query, from 0. `key`: index of the
    explained key, from 0; by default the key with the largest weight. `temperature`: divides the head's scores
    before the softmax; values above 1 make the weights more uniform.

    >>> run = regard.load("runs/signal2")    # doctest: +SKIP
    >>> print(regard.explain(run, head=1, output=2))    # doctest: +SKIP

    Raises `InputError` for an unknown layer, head or step, and for layers that are not Regard's.
    """
    name = _choose_layer(subject, layer)
    answer = trace_answer(subject, input, [name], seed=seed, temperature=temperature, head=head)
    [(module, trace)] = answer.layers
    return make_explanation(
        subject, answer.shown, name, module, trace, head=head, output=output, key=key, temperature=temperature
    )


def make_explanation(
    subject: Subject[Input],
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
    """Explain one weight of a traced answer in the layer `name`; see `explain`.

    Raises `InputError` for an unknown step.
    """
    row = read_layer_row(trace.insides, output)
    layer_map = shown.layers[short_name(name)]
    weights = row.weights[head]
    if key is None:
        key = int(weights.argmax())
    check_range("key", key, 0, len(weights) - 1)
    score, prepared = layer.score, row.key[head]
    # Scores are computed in float32, as in the model. The linear family has no scores.
    steps = {} if layer.linear is not None else score.steps(row.query[head].float(), prepared[key].float())
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
        **_explain_output(layer, trace, row, output, head),
        note=shown.note,
        answered=None if layer_map.kind == "encoder" else _explain_answer(subject, trace, shown, output),
    )


def _choose_layer(subject: Subject[Input], layer: str | None) -> str:
    """Return the requested layer, or the first layer in which outputs attend to inputs."""
    if layer is not None:
        return layer
    if not subject.layers:
        raise InputError("the model has no attention to explain: train a model with attention")
    return next((module.name for module in subject.layers if module.kind == CROSS), subject.layers[0].name)


def _explain_output(
    layer: AttentionLayer, trace: AnswerTrace, row: LayerRow, output: int, head: int
) -> dict[str, Any]:
    """Return the fields for the steps that follow the context of one query."""
    added, own, projected = row.context.flatten(), None, row.context[head]
    if isinstance(layer, MultiHeadAttention):
        added = trace.out[0][0, output]
        projected = trace.z[0][0, output, head].double().cpu()
        # W^O is linear, so the columns of W^O for this head compute the head's part of the sum.
        matrix = layer.output.weight.double().cpu().unflatten(1, (layer.heads, -1))[:, head]
        own = _to_list(matrix @ projected)
    before, after = trace.norm or (None, None)
    changes = context_changes(layer)
    return {
        "context_changes": changes,
        "changed_context": _to_list(projected) if changes else None,
        "added": _to_list(added),
        "own_part": own,
        "before_norm": None if before is None else _to_list(before[0, output]),
        "after_norm": None if after is None else _to_list(after[0, output]),
    }


def _explain_answer(subject: Subject[Input], trace: AnswerTrace, shown: Map, output: int) -> StepAnswer | None:
    """Return the model's answer at an output step."""
    if trace.logits is None or trace.state is None or not shown.probabilities:
        return None
    logits = trace.logits[0].double().cpu()
    states = trace.state.reshape(-1, trace.state.shape[-1])
    # Normalize over all classes before the likeliest classes are selected, whose probabilities need not sum to
    # 1.
    probabilities = logits[output].softmax(-1)
    likely = probabilities.argsort(descending=True)[:MAX_CLASSES]
    prediction = shown.prediction
    return StepAnswer(
        answer=shown.outputs[output]
        if prediction is None or isinstance(prediction, str)
        else str(prediction[output]),
        probability=shown.probabilities[output],
        # A decoder that runs step by step calls the last layer once per step, with one state.
        state=_to_list(states[output if len(states) == len(logits) else 0]),
        classes=subject.called(likely.tolist()),
        logits=_to_list(logits[output, likely]),
        probabilities=_to_list(probabilities[likely]),
    )


def _to_list(values: Tensor) -> list[Any]:
    numbers: list[Any] = values.detach().double().cpu().tolist()
    return numbers
