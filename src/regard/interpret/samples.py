"""Samples of a head: of many unseen inputs, those that it weighs most, or those that were answered wrongly.

found = run.samples("cross", 1)                   the largest weight of head 1 in each input
found = run.samples("cross", 1, token="B")        of those on a B
found = run.samples("cross", 1, wrong_first=True)
"""

from dataclasses import dataclass

import numpy as np
from rich.table import Table
from rich.text import Text

from regard.errors import InputError, check_range, unknown_choice
from regard.result import Result
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import LayerMap
from regard.viz.subject import Input, Subject

SHOWN = 20
"""Samples that are returned, at most."""
MOST_LETTERS = 40
"""Characters of an input that a table shows, at most."""


@dataclass(frozen=True, kw_only=True)
class HeadSample:
    """One input, and where in it a head looks most."""

    input: str
    weight: float
    """The largest (0 to 1), of those on the token that was asked for."""
    query: int
    """The step that looks, from 0."""
    key: int
    """The step looked at, from 0."""
    query_label: str
    key_label: str
    right: bool | None
    """Whether the whole answer was right; None where nobody knows."""


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadSamples(Result):
    """Inputs in which a head looks at something, the largest weight first."""

    layer: str
    head: int
    token: str | None
    """The key that was looked for; None for any."""
    looked_at: int
    """Inputs that were gone through."""
    wrong: int | None
    """Of these, those that were answered wrongly; None where nobody knows."""
    samples: list[HeadSample]

    def summary(self) -> str:
        """Say what was looked for, in how many inputs."""
        what = "anything" if self.token is None else repr(self.token)
        errors = "" if self.wrong is None else f", {self.wrong} answered wrongly"
        return f"{self.layer} head {self.head} on {what}: {self.looked_at} inputs{errors}"

    def table(self) -> Table:
        """Return a line for each input."""
        table = Table("weight", "looks", "at", "answer", "input", box=None, pad_edge=False)
        table.title, table.title_justify = self.summary(), "left"
        for each in self.samples:
            short = each.input if len(each.input) <= MOST_LETTERS else f"{each.input[: MOST_LETTERS - 1]}…"
            answer = {True: "right", False: "wrong", None: ""}[each.right]
            looks, at = Text(f"{each.query_label} ({each.query})"), Text(f"{each.key_label} ({each.key})")
            table.add_row(f"{each.weight:.4f}", looks, at, answer, Text(short))
        return table


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
    """Go through unseen inputs and return those that a head weighs most.

    `token`: a key's label; only weights on such keys count, and inputs without one are left out. `wrong_first`:
    those that were answered wrongly stand before the others. `samples`: inputs gone through; of these, `SHOWN`
    are returned at most. Raises `InputError` for a layer or head that is not there, where there are no unseen
    inputs, and for a token that none of them has.
    """
    check_range("samples", samples, 1, 10**5)
    heads = {each.name: each.heads for each in subject.layers}
    if layer not in heads:
        raise unknown_choice("layer", layer, heads)
    check_range("head", head, 0, heads[layer] - 1)
    inputs = subject.unseen(samples, seed)
    found, rights, met = [], [], set[str]()
    for each in inputs:
        mapped = subject.look(each)
        right = None if mapped.truth is None else mapped.prediction == mapped.truth
        rights.append(right)
        met.update(mapped.layers[layer].key_labels)
        sample = _strongest(mapped, mapped.layers[layer], head, token, right)
        found += [] if sample is None else [sample]
    if not found:
        raise InputError(f"token {token!r} is in none of {len(inputs)} inputs: choose one such as {min(met)!r}")
    found.sort(key=lambda each: (wrong_first and each.right is not False, -each.weight))
    wrong = None if None in rights else rights.count(False)
    return HeadSamples(
        layer=layer, head=head, token=token, looked_at=len(inputs), wrong=wrong, samples=found[:SHOWN]
    )


def _strongest(
    mapped: AttentionMap, layer: LayerMap, head: int, token: str | None, right: bool | None
) -> HeadSample | None:
    """Return the largest weight of a head in an input; None where the token is not in it."""
    keys = [key for key, label in enumerate(layer.key_labels) if token in (None, label)]
    if not keys:
        return None
    weights = layer.weights[head][:, keys]
    query, place = np.unravel_index(int(weights.argmax()), weights.shape)
    key = keys[place]
    return HeadSample(
        input=mapped.input,
        weight=float(weights[query, place]),
        query=int(query),
        key=key,
        query_label=layer.query_labels[query],
        key_label=layer.key_labels[key],
        right=right,
    )
