"""What is known of one weight: its sum, number by number, and how it is told. `explanation` finds it out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.result import Result
from regard.viz.maps import UNFINITE

SHOWN = 5
"""Numbers of a vector that are printed: a line of 80 columns holds them."""
BAR = 20
"""Characters of the longest bar."""


@dataclass(frozen=True, kw_only=True)
class StepAnswer:
    """What a model made of the state of one output step."""

    answer: str
    """What it wrote: the likeliest, unless a search preferred another."""
    probability: float
    """Of the answer (0 to 1)."""
    state: list[float]
    """What the last matrix multiplies, (D)."""
    classes: list[str]
    """The likeliest first."""
    logits: list[float]
    probabilities: list[float]
    """Softmax of the logits over all classes (0 to 1)."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation(Result):
    """How a head came to give one key its weight for one query, and what followed."""

    input: str
    layer: str
    head: int
    query: int
    """The step that looks, from 0."""
    key: int
    """The step looked at, from 0."""
    query_label: str
    key_labels: list[str]
    steps: dict[str, list[float]]
    """What the score is made of, by name; empty for a score that does not say. The sum of the last one's numbers
    times `scale` is the score."""
    scale: float
    scores: list[float]
    """Of this query with each key (Tk), before the mask."""
    may_see: list[bool]
    """Which keys the mask leaves (Tk)."""
    temperature: float
    """What the scores were divided by before the softmax; 1: nothing was done to them."""
    weights: list[float]
    """Softmax of the scores over the keys that may be seen (Tk)."""
    values: list[list[float]]
    """Of this head, for each key (Tk, Dv)."""
    context: list[float]
    """Weights times values, summed (Dv)."""
    added: list[float]
    """What the layer hands on, of all heads together (D)."""
    own_part: list[float] | None
    """What of it is this head's (D); None where there is one head, whose context is all."""
    before_norm: list[float] | None
    """What was there with `added` added (D); None where no sum and normalisation follow."""
    after_norm: list[float] | None
    note: str = ""
    """What is unusual about the input; empty where nothing is."""
    answered: StepAnswer | None
    """What the model answers at this output step; None for a layer whose queries are no outputs."""

    @property
    def score(self) -> float:
        """The chosen key's."""
        return self.scores[self.key]

    @property
    def weight(self) -> float:
        """The chosen key's."""
        return self.weights[self.key]

    def summary(self) -> str:
        """Say which weight this is."""
        looks = f"{self.query_label} (step {self.query}) looks at {self.key_labels[self.key]} (step {self.key})"
        return f"{self.layer} head {self.head}: {looks} with weight {self.weight:.4f}"

    def table(self) -> RenderableType:
        """Return all steps, one after the other."""
        parts = (self._of_score(), self._of_row(), self._of_context(), self._of_answer())
        notes = [Text(f"Note: {self.note}")] if self.note else []
        return Group(Text(self.summary()), *notes, *(each for part in parts for each in part))

    def _of_score(self) -> list[RenderableType]:
        terms = list(self.steps.values())
        parts = [_vector(name, values) for name, values in self.steps.items()]
        if terms:
            total = sum(terms[-1])
            scaled = "" if self.scale == 1 else f", times {self.scale:.4f} is {self.score:.4f}"
            parts.append(Text(f"The last row sums to {total:.4f}{scaled}"))
        return [Text("\n1. The score: how well the query fits the key", style="bold"), *parts]

    def _of_row(self) -> list[RenderableType]:
        table = Table("", "key", "score", "weight", "", box=None, pad_edge=False)
        for place, label in enumerate(self.key_labels):
            score = f"{self.scores[place]:.4f}" if self.may_see[place] else "masked"
            bar = _bar(self.weights[place] / max([*filter(math.isfinite, self.weights), 1e-9]))
            mark = "→" if place == self.key else ""
            table.add_row(f"{mark}{place}", Text(label), score, f"{self.weights[place]:.4f}", bar)
        total = Text(f"The weights sum to {sum(self.weights):.4f}")
        divided = "" if self.temperature == 1 else f", of the scores divided by {self.temperature:g}"
        return [Text(f"\n2. The weights: softmax over the row{divided}", style="bold"), table, total]

    def _of_context(self) -> list[RenderableType]:
        value = self.values[self.key]
        parts: list[RenderableType] = [
            Text("\n3. The context: weights times values", style="bold"),
            _vector("value", value),
            _vector("times its weight", [self.weight * each for each in value]),
            _vector("context, of all keys", self.context),
        ]
        if self.own_part is not None:
            parts += [_vector("added, of this head", self.own_part), _vector("added, of all heads", self.added)]
        if self.before_norm is not None and self.after_norm is not None:
            parts += [_vector("with what was there", self.before_norm), _vector("normalised", self.after_norm)]
        return parts

    def _of_answer(self) -> list[RenderableType]:
        if self.answered is None:
            return []
        table = Table("answer", "logit", "probability", "", box=None, pad_edge=False)
        told = zip(self.answered.classes, self.answered.logits, self.answered.probabilities, strict=True)
        for label, logit, share in list(told)[:5]:
            table.add_row(Text(label), f"{logit:.4f}", f"{share:.4f}", _bar(share))
        title = Text(
            f"\n4. The answer at this step: {self.answered.answer}, {self.answered.probability:.4f}", style="bold"
        )
        return [title, _vector("state", self.answered.state), table]


def _bar(share: float) -> str:
    return "█" * round(share * BAR) if math.isfinite(share) else UNFINITE


def _vector(name: str, values: Sequence[float]) -> Text:
    shown = " ".join(f"{value:7.3f}" for value in values[:SHOWN])
    more = f" … {len(values)} in all" if len(values) > SHOWN else ""
    return Text(f"{name:22}{shown}{more}")
