"""Direct logit attribution (Elhage et al. 2021): what each head adds to a token's logit.

The equations are in `regard.interpret.linear_pass`.

Attention weights times the norms of the transformed values (Kobayashi et al. 2020, equations 4 and 5):

    || a_ij f(x_j) || = a_ij || v_j W_O ||

A key with a large weight adds little to the output if the norm of its value is small. The function f is the
value projection of a head (with bias), followed by the head's part of the output projection (without bias).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from regard.activations.interface import read_values
from regard.activations.modules import unwrap
from regard.arguments import check_value, public
from regard.attention.descriptions import context_changes
from regard.attention.interventions import active_interventions
from regard.attention.layer import attention_layers
from regard.attention.names import short_name
from regard.errors import InputError, check_range
from regard.external.model import ExternalModel
from regard.interpret.linear_pass import DirectPaths
from regard.result import Result, signed
from regard.viz.subject import Subject, ViewedSubject


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class LogitAttribution(Result):
    """The parts of one logit. The parts sum to `logit - remainder`."""

    input: str
    token: str
    token_id: int
    position: int
    """Index of the token at which the logit is read."""
    at: str
    logit: float
    heads: dict[str, list[float]]
    """By layer: the part of each head, through its output projection."""
    feed_forward: dict[str, float]
    """By module: the part of each feed-forward layer, with its bias."""
    embeddings: dict[str, float]
    biases: dict[str, float]
    """By module: output projections of attention, norms and the output head."""
    remainder: float
    """Rounding."""
    interventions: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    """Layers whose heads have no direct path to the logit, with the reason; their parts are zero."""

    @property
    def total(self) -> float:
        """Sum of all parts."""
        heads = sum(sum(values) for values in self.heads.values())
        return heads + sum(sum(part.values()) for part in (self.feed_forward, self.embeddings, self.biases))

    def summary(self) -> str:
        value, layer, head = max(
            ((value, layer, head) for layer, values in self.heads.items() for head, value in enumerate(values)),
            key=lambda part: abs(part[0]),
        )
        return f"{self.token!r} has logit {signed(self.logit)}; {layer} head {head} adds most, {signed(value)}"

    def table(self) -> Table:
        most = max(map(len, self.heads.values()))
        table = Table("layer", *(f"head {head}" for head in range(most)), box=None, pad_edge=False)
        table.title = f"Parts of the logit {signed(self.logit)} of {self.token!r}, norms frozen"
        table.title_justify = "left"
        for layer, values in self.heads.items():
            table.add_row(layer, *(signed(value) for value in values))
        for name in ("feed_forward", "embeddings", "biases"):
            table.add_row(name.replace("_", " "), signed(sum(getattr(self, name).values())))
        if self.left_out:
            table.caption = "Zero, because they add only through other layers: " + ", ".join(self.left_out)
        return table

    def plot(self, path: str | Path) -> Path:
        """Draw a heatmap, layers by heads (.png, .svg or .pdf), with caption and data; see `PaperFigure.save`."""
        from regard.viz.plots import head_figure

        caption = f"{self.input!r}: what each head adds to the logit of {self.token!r}, norms frozen."
        parts = {name: sum(getattr(self, name).values()) for name in ("feed_forward", "embeddings", "biases")}
        return head_figure(self.heads, caption, "logit", parts).save(path)


@public
def logit_attribution(
    subject: Subject[Any], text: str, *, token: int | str | None = None, position: int | None = None
) -> LogitAttribution:
    """Return the direct contribution of each head, feed-forward layer, embedding and bias to the logit of a token.

    `subject`: a run or an external model with a residual stream. `token`: a text, of which the first token is used, the
    name of a class, or a token id (None: the likeliest token). `position`: an output step (None: the last of a language
    model, the first mask of a masked one, otherwise the first). The scales of all norms are fixed at their values in
    this forward pass (frozen). The sum of all parts is compared with the logit. Also works inside `intervene`.

    >>> model = regard.look("gpt2-folder")    # doctest: +SKIP
    >>> regard.logit_attribution(model, "The cat sat on the", token=" mat").plot("mat.svg")    # doctest: +SKIP

    Raises `InputError` for another model, or if the parts do not sum to the logit.
    """
    prepared = subject.prepare(text)
    probe, layers = subject.trial(prepared), subject.look(prepared).layers
    with torch.no_grad():
        steps, classes = probe.run(1)[0].shape
    first = 0 if probe.steps is None else probe.steps[0]  # such as a mask
    place = (steps - 1 if probe.causal else first) if position is None else position
    check_range("position", place, -steps, steps - 1)
    place %= steps
    wanted = token if not isinstance(token, str) else subject.patchable.answer_class(token, classes, "token")
    if wanted is not None and not 0 <= wanted < classes:
        raise InputError(f"token={token} is not in the vocabulary: choose 0 to {classes - 1}, or a text")
    labels = [layer.query_labels for layer in layers.values() if len(layer.query_labels) == steps]
    paths = DirectPaths(unwrap(subject.model), subject.components)
    with torch.enable_grad(), paths.watch():
        logits = probe.run(1)[0, place]
        number = int(logits.argmax()) if wanted is None else wanted
        parts, indirect = paths.parts(logits[number])

    def named(*kinds: str) -> dict[str, float]:
        return {name: float(value) for (kind, name), value in parts.items() if kind in kinds}

    return LogitAttribution(
        input=text,
        token=subject.called([number])[0],
        token_id=number,
        position=place,
        at=labels[-1][place] if labels else f"output {place}",
        logit=float(logits[number].detach()),
        heads={name: value.tolist() for (kind, name), value in parts.items() if kind == "head"},
        feed_forward=named("feed_forward"),
        embeddings=named("embedding", "position"),
        biases=named("bias", "vector"),
        remainder=paths.remainder(logits[number], parts),
        interventions=active_interventions(subject.model),
        left_out=indirect,
    )


NOT_RECORDED = "its values are not recorded"


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class WeightedValues(Result):
    """The norms of the values of each head, and the weights times these norms."""

    input: str
    norms: dict[str, np.ndarray]
    """By layer: (H, Tk), the norm of the value of each key after the head's output projection."""
    weighted: dict[str, np.ndarray]
    """By layer: (H, Tq, Tk), the attention weights times the norms."""
    left_out: dict[str, str]
    """Layers without values, with the reason."""

    def summary(self) -> str:
        return f"{len(self.norms)} layers, {len(self.left_out)} left out"


@public
@torch.no_grad()
def weighted_values(subject: ViewedSubject[Any], input: Any) -> WeightedValues:
    """Return the attention of each layer for an input, with each weight multiplied by the norm of its value.

    `subject`: a run, or a result of `look`. Values are checked: weights times values must equal the contexts
    that the model computes. Layers that fail this check are in `left_out`.

    >>> model = regard.look("gpt2-folder")    # doctest: +SKIP
    >>> regard.weighted_values(model, "The cat sat").weighted["transformer.h.0.attn"].shape    # doctest: +SKIP
    (12, 3, 3)

    Raises `InputError` for an input that the model rejects.
    """
    if not isinstance(subject, ExternalModel):
        check_value("input", input, str | None)
    shown = subject.attend(input)
    components = subject.components
    changed = {
        short_name(name): f"its context is changed by {', '.join(changes)}"
        for name, layer in attention_layers(subject.model).items()
        if (changes := context_changes(layer))
    }
    norms, weighted = {}, {}
    # A model without separate heads may have no pass that can be repeated.
    run = subject.forward_pass(shown.input if input is None else input).run if components.heads else None
    for name, values in ({} if run is None else read_values(subject.model, run)).items():
        outputs = components.heads[name.split("#")[0]].outputs(values.transpose(0, 1))
        norms[name] = outputs.float().norm(dim=-1).T.cpu().numpy()
        weighted[name] = shown.layers[name].weights * norms[name][:, None]
    left_out = {name: changed.get(name, NOT_RECORDED) for name in shown.layers if name not in norms}
    return WeightedValues(input=shown.input, norms=norms, weighted=weighted, left_out=left_out)
