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

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention import (
    AttentionLayer,
    Inside,
    MultiHeadAttention,
    find_layer,
    short_name,
    temper,
    watching,
)
from regard.attention import layers_of as attention_layers
from regard.errors import InputError, check_range
from regard.examination.explained import Answered, Explanation
from regard.inspection.maps import CROSS, Map
from regard.inspection.subject import Input, Subject

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
    found = find_layer(subject.model, _chosen(subject, layer))
    name = next(each for each, one in attention_layers(subject.model).items() if one is found)
    check_range("head", head, 0, found.heads - 1)
    events = _Events()
    hook = subject.model.register_forward_hook(events.answered)
    try:
        with ExitStack() as stack:
            if temperature != 1:
                stack.enter_context(temper(subject.model, name, temperature, heads=[head]))
            stack.enter_context(watching(found, events.looked))
            stack.enter_context(events)
            shown = subject.attend(input, seed=seed)
    finally:
        hook.remove()
    row = _row_of(events.insides, output)
    mapped = shown.layers[short_name(name)]
    keys = mapped.key_labels
    weights = row.weights[head]
    if key is None:
        key = int(weights.argmax())
    check_range("key", key, 0, len(weights) - 1)
    score, prepared = found.score, row.key[head]
    steps = score.steps(row.query[head].float(), prepared[key].float())
    return Explanation(
        input=shown.input,
        layer=short_name(name),
        head=head,
        query=output,
        key=key,
        query_label=mapped.query_labels[output],
        key_labels=keys[: len(weights)],
        steps={each: _listed(values) for each, values in steps.items()},
        scale=score.scale(row.query.shape[-1]),
        scores=_listed(row.scores[head]),
        may_see=[True] * len(weights) if row.mask is None else row.mask[head].tolist(),
        temperature=temperature,
        weights=_listed(weights),
        values=_listed(row.value[head]),
        context=_listed(row.context[head]),
        **_after(found, events, row, output, head),
        note=shown.note,
        answered=None if mapped.kind == "encoder" else _answered(subject, events, shown, output),
    )


class _Row(NamedTuple):
    """All that a layer worked out for one query, in float64 on the CPU."""

    query: Tensor
    """(H, D)."""
    key: Tensor
    """(H, Tk, any)."""
    value: Tensor
    """(H, Tk, Dv)."""
    scores: Tensor
    """(H, Tk)."""
    mask: Tensor | None
    """(H, Tk) bool."""
    weights: Tensor
    """(H, Tk)."""
    context: Tensor
    """(H, Dv)."""


class _Events(TorchFunctionMode):
    """What happens in a model from the last time on that a layer began with the first query."""

    def __init__(self) -> None:
        super().__init__()
        self.insides: list[Inside] = []
        self.added: Tensor | None = None
        """What the first matrix product after the layer made, (B, Tq, D): of several heads, their output."""
        self.norm: tuple[Tensor, Tensor] | None = None
        """The first normalisation after the layer: what came and what went."""
        self.state: Tensor | None = None
        """What the last matrix product of all multiplied."""
        self.logits: Tensor | None = None

    def looked(self, inside: Inside) -> None:
        """Take note of a call of the layer."""
        if inside.step in (None, 0):
            self.insides, self.added, self.norm = [], None, None
        self.insides.append(inside)

    def answered(self, model: nn.Module, inputs: object, logits: Tensor) -> None:
        """Take note of what the model returned: a forward hook."""
        del model, inputs
        self.logits = logits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of PyTorch's, and take note of those that matter."""
        result = func(*args, **(kwargs or {}))
        if func is F.linear:
            self.state = args[0]
            if self.insides and self.added is None:
                self.added = result
        elif func is F.layer_norm and self.insides and self.norm is None:
            self.norm = (args[0], result)
        return result


def _chosen(subject: Subject[Input], layer: str | None) -> str:
    """Return the layer asked for, or the first in which outputs look at inputs."""
    if layer is not None:
        return layer
    if not subject.layers:
        raise InputError("the model has no attention to explain: train it with attention")
    return next((each.name for each in subject.layers if each.kind == CROSS), subject.layers[0].name)


def _row_of(insides: Sequence[Inside], output: int) -> _Row:
    """Return what a layer worked out for one query, whether it took them all at once or one by one."""
    at_once = insides[0].step is None
    check_range("output", output, 0, (insides[0].query.shape[2] if at_once else len(insides)) - 1)
    found, row = (insides[0], output) if at_once else (insides[output], 0)
    mask = None if found.mask is None else found.mask.expand_as(found.scores)[0, :, row].cpu()
    query, scores, weights, context = (
        each[0, :, row].double().cpu() for each in (found.query, found.scores, found.weights, found.context)
    )
    return _Row(query, found.key[0].double().cpu(), found.value[0].double().cpu(), scores, mask, weights, context)


def _after(layer: AttentionLayer, events: _Events, row: _Row, output: int, head: int) -> dict[str, Any]:
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


def _answered(subject: Subject[Input], events: _Events, shown: Map, output: int) -> Answered | None:
    """Return what the model answers at an output step."""
    if events.logits is None or events.state is None:
        return None
    logits = events.logits[0].double().cpu()
    states = events.state.reshape(-1, events.state.shape[-1])
    shares = logits[output].softmax(-1)
    likely = shares.argsort(descending=True)[:MOST_CLASSES]
    prediction = shown.prediction
    return Answered(
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
