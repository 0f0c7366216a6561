"""The explanation of one attention weight, as numbers and as tables; `explanation` computes it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.arguments import public
from regard.result import Result
from regard.viz.maps import UNFINITE

NUMBERS_SHOWN = 5
"""Number of printed values of a vector, which fit into a line of 80 columns."""
BAR_WIDTH = 20
"""Length of the longest bar, in characters."""


@dataclass(frozen=True, kw_only=True)
class StepAnswer:
    """The model's answer at one output step."""

    answer: str
    """The predicted class: the likeliest class, unless a search selected another class."""
    probability: float
    """Probability of the answer (0 to 1)."""
    state: list[float]
    """Input of the last matrix product of the model, (D)."""
    classes: list[str]
    """The likeliest first."""
    logits: list[float]
    probabilities: list[float]
    """Softmax of the logits over all classes (0 to 1)."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation(Result):
    """The computation of one head's weight for one query and key, and its effect on the output of the layer and
    of the model.
    """

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
    """Weight of each key (Tk): the softmax of the scores over the permitted keys, unless `normalizer` says
    otherwise."""
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
    answered: StepAnswer | None
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
        sections = (self._score_rows(), self._weight_rows(), self._context_rows(), self._answer_rows())
        notes = [Text(f"Note: {self.note}")] if self.note else []
        return Group(Text(self.summary()), *notes, *(row for section in sections for row in section))

    def _score_rows(self) -> list[RenderableType]:
        terms = list(self.steps.values())
        rows = [_vector(name, values) for name, values in self.steps.items()]
        if terms:
            total = sum(terms[-1])
            scaled = "" if self.scale == 1 else f", times {self.scale:.4f} is {total * self.scale:.4f}"
            rows.append(Text(f"The last row sums to {total:.4f}{scaled}"))
        elif not self.has_scores:
            rows.append(Text("This mechanism has no score"))
        else:
            rows.append(Text("The steps of this score are not known"))
        if self.score_changes:
            rows.append(Text(f"Changed by {', '.join(self.score_changes)} to {self.score:.4f}"))
        return [Text("\n1. The score: how well the query matches the key", style="bold"), *rows]

    def _weight_rows(self) -> list[RenderableType]:
        table = Table("", "key", "score", "weight", "", box=None, pad_edge=False)
        largest = max([*map(abs, filter(math.isfinite, self.weights)), 1e-9])
        for index, label in enumerate(self.key_labels):
            score = f"{self.scores[index]:.4f}" if self.has_scores else ""
            score = score if self.may_see[index] else "masked"
            # Bars are relative to the largest weight: if there are many keys, bars on a scale up to 1 are
            # empty.
            bar = _bar(abs(self.weights[index]) / largest)
            mark = "→" if index == self.key else ""
            table.add_row(f"{mark}{index}", Text(label), score, f"{self.weights[index]:.4f}", bar)
        total = Text(f"The weights sum to {sum(self.weights):.4f}")
        divided = "" if self.temperature == 1 else f", of the scores divided by {self.temperature:g}"
        return [Text(f"\n2. The weights: {self.normalizer}{divided}", style="bold"), table, total]

    def _context_rows(self) -> list[RenderableType]:
        value = self.values[self.key]
        rows: list[RenderableType] = [
            Text("\n3. The context: weights times values", style="bold"),
            _vector("value", value),
            _vector("times its weight", [self.weight * number for number in value]),
            _vector("context, of all keys", self.context),
        ]
        if self.changed_context is not None:
            rows.append(_vector(f"after {', '.join(self.context_changes)}", self.changed_context))
        if self.own_part is not None:
            rows += [_vector("added, of this head", self.own_part), _vector("added, of all heads", self.added)]
        if self.before_norm is not None and self.after_norm is not None:
            rows += [_vector("plus the residual", self.before_norm), _vector("normalized", self.after_norm)]
        return rows

    def _answer_rows(self) -> list[RenderableType]:
        if self.answered is None:
            return []
        table = Table("answer", "logit", "probability", "", box=None, pad_edge=False)
        classes = zip(self.answered.classes, self.answered.logits, self.answered.probabilities, strict=True)
        for label, logit, probability in list(classes)[:5]:
            table.add_row(Text(label), f"{logit:.4f}", f"{probability:.4f}", _bar(probability))
        title = Text(
            f"\n4. The answer at this step: {self.answered.answer}, {self.answered.probability:.4f}", style="bold"
        )
        return [title, _vector("state", self.answered.state), table]


def _bar(share: float) -> str:
    return "█" * round(share * BAR_WIDTH) if math.isfinite(share) else UNFINITE


def _vector(name: str, values: Sequence[float]) -> Text:
    shown = " ".join(f"{value:7.3f}" for value in values[:NUMBERS_SHOWN])
    more = f" … {len(values)} in all" if len(values) > NUMBERS_SHOWN else ""
    return Text(f"{name:22}{shown}{more}")
