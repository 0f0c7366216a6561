"""Head importance: by how much the loss rises when a head is switched off (Michel et al. 2019, section 3.2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.errors import InputError, check_range
from regard.inspection.subject import Input, Subject
from regard.result import Result


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadImportance(Result):
    """What each head is worth, over a sample that training has not seen."""

    samples: int
    loss: float
    """Mean cross-entropy of all output steps with every head on, in nats."""
    added: dict[str, list[float]]
    """By layer: what is added to the loss when each head is off. Below 0: the model does better without."""
    measure: str = "loss"
    """What `loss` is, where it is not that of a known truth."""

    def ranked(self) -> list[tuple[float, str, int]]:
        """Return every head with what it is worth and its layer, the least important first."""
        return sorted(
            (value, layer, head) for layer, values in self.added.items() for head, value in enumerate(values)
        )

    def summary(self) -> str:
        """Name the most important head."""
        value, layer, head = self.ranked()[-1]
        return f"{layer} head {head} adds most when off, {value:+.4f} to a {self.measure} of {self.loss:.4f}"

    def table(self) -> RenderableType:
        """Return a table, a line for each layer."""
        most = max(map(len, self.added.values()))
        over = f"({self.loss:.4f} with all on, {self.samples:,} samples)"
        title = f"{self.measure.capitalize()} added when a head is off {over}"
        columns = [f"head {head}" for head in range(most)]
        table = Table("layer", *columns, box=None, pad_edge=False)
        for layer, values in self.added.items():
            table.add_row(layer, *(f"{value:+.4f}" for value in values))
        return Group(Text(title, style="italic"), table)


@torch.inference_mode()
def head_importance(
    subject: Subject[Input],
    *,
    samples: int | None = None,
    seed: int = 0,
    told: Callable[[int, int], None] = lambda done, heads: None,
) -> HeadImportance:
    """Return the importance of every head of a subject, over unseen inputs (None: as many as is usual for it),
    the same ones each time. `told` hears after each head how many are done, of how many.

    Raises `InputError` for a model without attention, or where there are no such inputs.
    """
    samples = subject.importance_samples if samples is None else samples
    check_range("samples", samples, 1, 10**7)
    if not subject.layers:
        raise InputError("the model has no heads: train it with attention")
    inputs = subject.unseen(samples, seed, purpose="importance")
    base, added = subject.loss(inputs), {}
    heads, done = sum(layer.heads for layer in subject.layers), 0
    told(done, heads)
    for layer in subject.layers:
        values = []
        for head in range(layer.heads):
            with subject.touching(layer.name, heads=[head]):
                values.append(subject.loss(inputs) - base)
            done += 1
            told(done, heads)
        added[layer.name] = values
    return HeadImportance(samples=len(inputs), loss=base, added=added, measure=subject.measure)


class Taken(NamedTuple):
    """What taking heads out of a model for good came to."""

    removed: list[tuple[str, int]]
    """Layer and head, as the model had them, in the order in which they went."""
    left: dict[str, list[int]]
    """By layer: the heads that stay, in ascending order; of the layers from which heads can be taken."""
    before: HeadImportance
    after: HeadImportance


def take_out(subject: Subject[Input], heads: int = 1, *, seed: int = 0) -> Taken:
    """Take the `heads` least important heads out of a subject's model, for good.

    One head goes at a time, or those that share their keys, and what the others are worth is asked anew after
    each, for two heads that do the same both look as if they were of no use. Every layer keeps one head at least.
    Raises `InputError` where there are not so many heads to take away.
    """
    together = subject.removable
    left = {layer: [head for some in groups for head in some] for layer, groups in together.items()}
    spare = sum(len(groups) - 1 for groups in together.values())
    check_range("heads", heads, 1, max(spare, 1))
    if not spare:
        raise InputError(f"{subject.where!r} has no layer with two heads or more: there is nothing to prune")
    before = after = head_importance(subject, seed=seed)
    removed = []
    for _ in range(heads):
        layer, places = _least(after, subject.removable)
        subject.keep_heads(layer, [each for each in range(len(left[layer])) if each not in places])
        removed += [(layer, left[layer][place]) for place in places]
        left[layer] = [head for place, head in enumerate(left[layer]) if place not in places]
        after = head_importance(subject, seed=seed)
    return Taken(removed, left, before, after)


def _least(found: HeadImportance, removable: Mapping[str, Sequence[Sequence[int]]]) -> tuple[str, Sequence[int]]:
    """Return the layer and the heads that go next: of those that go together, the sum counts."""
    worth = (
        (sum(found.added[layer][head] for head in some), layer, some)
        for layer, groups in removable.items()
        for some in groups
        if len(groups) > 1
    )
    _, layer, some = min(worth)
    return layer, some
