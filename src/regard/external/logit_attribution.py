"""Direct logit attribution (Elhage et al. 2021): what each head adds to a token's logit.

The equations are in `regard.interpret.direct_paths`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from regard.attention import attention_layers
from regard.attention.interventions import active_interventions
from regard.errors import InputError, check_range, unknown_choice
from regard.external.adapters import call_model
from regard.external.modules import unwrap
from regard.external.next_tokens import TokenInput, read_tokens
from regard.interpret.direct_paths import DirectPaths
from regard.result import Result, signed
from regard.viz import Subject


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
        """Return the head with the largest part, in one line."""
        value, layer, head = max(
            ((value, layer, head) for layer, values in self.heads.items() for head, value in enumerate(values)),
            key=lambda part: abs(part[0]),
        )
        return f"{self.token!r} has logit {signed(self.logit)}; {layer} head {head} adds most, {signed(value)}"

    def table(self) -> Table:
        """Return a table with a row for each layer, and the sums of the other parts."""
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
        """Draw a heatmap, layers by heads: .png, .svg or .pdf; raises `InputError` for another ending."""
        from regard.viz.plots import write_head_table

        title = f"{self.input!r}: what each head adds to the logit of {self.token!r}"
        return write_head_table(self.heads, title, path)


def logit_attribution(
    subject: Subject[Any], text: str, *, token: int | str | None = None, position: int | None = None
) -> LogitAttribution:
    """Return the direct contribution of each head, feed-forward layer, embedding and bias to the logit of a
    token.

    `subject`: a run with a residual stream, or a causal or masked language model of transformers. `token`: a
    text, of which the first token is used, or a token id (None: the likeliest token). `position`: as in
    `next_tokens`; for a run, an output step (None: the last of a language model, otherwise the first). The scales
    of all norms are fixed at their values in this forward pass (frozen). The sum of all parts is compared with
    the logit. Also works inside `intervene`.

    >>> model = regard.look("gpt2-folder")    # doctest: +SKIP
    >>> regard.logit_attribution(model, "The cat sat on the", token=" mat").plot("mat.svg")    # doctest: +SKIP

    Raises `InputError` for another model, or if the parts do not sum to the logit.
    """
    read = _read_run if attention_layers(subject.model) else _read_external
    run, place, wanted, at = read(subject, text, token, position)
    paths = DirectPaths(unwrap(subject.model), subject.components)
    with torch.enable_grad(), paths.watch():
        logits = run()
        number = int(logits.argmax()) if wanted is None else wanted
        gradients = paths.gradients(logits[number])
    parts = paths.values(gradients)

    def named(kind: str) -> dict[str, float]:
        return {name: float(value) for (part, name), value in parts.items() if part == kind}

    return LogitAttribution(
        input=text,
        token=subject.called([number])[0],
        token_id=number,
        position=place,
        at=at,
        logit=float(logits[number].detach()),
        heads={name: value.tolist() for (kind, name), value in parts.items() if kind == "head"},
        feed_forward=named("feed forward"),
        embeddings=named("embedding"),
        biases=named("bias"),
        remainder=paths.check(logits[number], parts),
        interventions=active_interventions(subject.model),
        left_out=paths.indirect(gradients),
    )


ReadLogits = tuple[Callable[[], Tensor], int, int | None, str]
"""Function that runs the model and returns logits (C) at a position; the position, the token, and the label of
the position."""


def _read_external(subject: Any, text: str, token: int | str | None, position: int | None) -> ReadLogits:
    tokens = read_tokens(subject, text)
    place = tokens.position(position)

    def run() -> Tensor:
        output = tokens.subject.adapter.logits(call_model(tokens.subject.model, tokens.arguments))
        assert output is not None
        return output[0, place - len(tokens.ids)]

    return run, place, _token_id(tokens, token), tokens.labels[place]


def _read_run(subject: Any, text: str, token: int | str | None, position: int | None) -> ReadLogits:
    prepared = subject.prepare(text)
    probe, layers = subject.trial(prepared), subject.look(prepared).layers
    with torch.no_grad():
        steps, classes = probe.run(1)[0].shape
    place = (steps - 1 if probe.causal else 0) if position is None else position
    check_range("position", place, -steps, steps - 1)
    place %= steps
    number = _class_number(subject, token, classes)
    labels = [layer.query_labels for layer in layers.values() if len(layer.query_labels) == steps]
    return lambda: probe.run(1)[0, place], place, number, labels[-1][place] if labels else f"output {place}"


def _class_number(subject: Any, token: int | str | None, classes: int) -> int | None:
    if isinstance(token, int):
        check_range("token", token, 0, classes - 1)
    if not isinstance(token, str):
        return token
    names = subject.called(range(classes))
    if token not in names:
        raise unknown_choice("token", token, names)
    return int(names.index(token))


def _token_id(tokens: TokenInput, token: int | str | None) -> int | None:
    if token is None:
        return None
    texts = getattr(tokens.subject.adapter, "texts", None)
    if isinstance(token, int):
        size = int(unwrap(tokens.subject.model).config.vocab_size)  # type: ignore[union-attr, arg-type]
        if not 0 <= token < size:
            raise InputError(f"token={token} is not in the vocabulary: choose 0 to {size - 1}, or a text")
        return token
    ids = [] if texts is None else texts.target_ids(token)
    if not ids:
        raise InputError(f"text {token!r} contains no token: give another text")
    return int(ids[0])
