"""Find the unseen inputs with the largest weights of a head, or the inputs with incorrect answers.

run.samples("cross", 1)                      the largest weight of head 1 in each input
run.samples("cross", 1, token="B")           only weights on a B
run.samples("cross", 1, wrong_first=True)    wrong answers first
"""

from dataclasses import dataclass

import numpy as np
from rich.table import Table
from rich.text import Text

from regard.arguments import public
from regard.attention.names import known_name
from regard.errors import InputError, check_range
from regard.result import Result
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import LayerMap
from regard.viz.subject import Input, Subject

MAX_RETURNED = 20
"""Largest number of samples that are returned."""
MAX_LETTERS = 40
"""Largest number of characters that a table shows from an input."""


@dataclass(frozen=True, kw_only=True)
class HeadSample:
    """One input, and the largest weight of a head for this input."""

    input: str
    weight: float
    """The largest weight (0 to 1), on the requested token if a token was requested."""
    query: int
    """Index of the query, from 0."""
    key: int
    """Index of the key, from 0."""
    query_label: str
    key_label: str
    right: bool | None
    """Whether the whole answer is correct; None if unknown."""


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
        table = Table("weight", "query", "key", "answer", "input", box=None, pad_edge=False)
        table.title, table.title_justify = self.summary(), "left"
        for sample in self.samples:
            short = sample.input if len(sample.input) <= MAX_LETTERS else f"{sample.input[: MAX_LETTERS - 1]}…"
            answer = {True: "right", False: "wrong", None: ""}[sample.right]
            query = Text(f"{sample.query_label} ({sample.query})")
            key = Text(f"{sample.key_label} ({sample.key})")
            table.add_row(f"{sample.weight:.4f}", query, key, answer, Text(short))
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
    """Search unseen inputs for the largest weights of a head.

    `token`: label of a key; only weights on keys with this label are used, and other inputs are left out.
    `wrong_first`: list inputs with incorrect answers first. `samples`: number of inputs to search; at most 20
    are returned.

    Raises `InputError` for an unknown layer or head, if there are no unseen inputs, and if no input contains
    the token.
    """
    check_range("samples", samples, 1, 10**5)
    heads = {module.name: module.heads for module in subject.layers}
    layer = known_name(layer, heads)
    check_range("head", head, 0, heads[layer] - 1)
    inputs = subject.unseen(samples, seed)
    results: list[HeadSample] = []
    correct, tokens = [], set[str]()
    for input in inputs:
        attention = subject.look(input)
        right = None if attention.truth is None else attention.prediction == attention.truth
        correct.append(right)
        tokens.update(attention.layers[layer].key_labels)
        sample = _largest_weight(attention, attention.layers[layer], head, token, right)
        results += [] if sample is None else [sample]
    if not results:
        raise InputError(
            f"token {token!r} is in none of {len(inputs)} inputs: choose another token, such as {min(tokens)!r}"
        )
    # Unknown answers are treated as correct: only answers that are known to be incorrect are listed first.
    results.sort(key=lambda sample: (wrong_first and sample.right is not False, -sample.weight))
    wrong = None if None in correct else correct.count(False)
    return HeadSamples(
        layer=layer, head=head, token=token, looked_at=len(inputs), wrong=wrong, samples=results[:MAX_RETURNED]
    )


def _largest_weight(
    attention: AttentionMap, layer: LayerMap, head: int, token: str | None, right: bool | None
) -> HeadSample | None:
    """Return the largest weight of a head in an input; None if the input does not contain the token."""
    keys = [key for key, label in enumerate(layer.key_labels) if token in (None, label)]
    if not keys:
        return None
    weights = layer.weights[head][:, keys]
    query, index = np.unravel_index(int(weights.argmax()), weights.shape)
    key = keys[index]
    return HeadSample(
        input=attention.input,
        weight=float(weights[query, index]),
        query=int(query),
        key=key,
        query_label=layer.query_labels[query],
        key_label=layer.key_labels[key],
        right=right,
    )
