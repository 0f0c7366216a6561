"""Two models, checkpoints or prunings side by side over the same inputs: what they answer, what their heads do.

print(regard.look("before").beside(regard.look("after"), texts))
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.errors import InputError
from regard.interpret import HeadRoles, head_importance
from regard.interpret.roles import FEWEST
from regard.result import Result, plain
from regard.viz import AttentionMap
from regard.viz.subject import check_comparable, match_layers

if TYPE_CHECKING:
    from regard.viz.widget import AttentionWidget


@dataclass(frozen=True, kw_only=True, repr=False)
class Beside(Result):
    """Two models over the same inputs."""

    names: tuple[str, str]
    samples: int
    measure: str
    """What the losses are of."""
    losses: tuple[float, float]
    added: tuple[dict[str, list[float]], dict[str, list[float]]]
    """Of each model, by layer: what is added to its loss when each head is off."""
    entropy: tuple[dict[str, list[float]], dict[str, list[float]]]
    """Of each model, by layer: the mean entropy of each head's rows, in nats; 0 where it looks at one step."""
    predictions: list[tuple[str | None, str | None]]
    """What both answer to each input."""
    apart: dict[str, list[float]]
    """By layer that both have, with as many heads: how far the weights of each head are from the other's, the
    mean share of a row (0 to 1) that is elsewhere."""
    alike: dict[str, str]
    """By layer of the first that both have: what the second calls it."""
    roles: tuple[HeadRoles, HeadRoles] | None = None
    """What the heads of both do; None over fewer than ten inputs, of which that cannot be said."""
    maps: tuple[list[AttentionMap], list[AttentionMap]] = field(default=([], []))
    """What both attend to in each input."""

    def summary(self) -> str:
        """Say how the losses compare."""
        one, other = self.names
        return f"{self.measure} {self.losses[0]:.4f} of {one}, {self.losses[1]:.4f} of {other}"

    def table(self) -> RenderableType:
        """Return a line for each head that both have, and what both answer."""
        one, other = self.names
        heads = Table(
            "layer", "head", *(f"{what}, {name}" for what in ("added", "entropy") for name in (one, other))
        )
        heads.add_column("apart")
        for name in self.names if self.roles else ():
            heads.add_column(f"looks at, {name}")
        for layer, values in self.apart.items():
            for head, value in enumerate(values):
                both = (layer, self.alike[layer])
                cells = [f"{each[name][head]:+.4f}" for name, each in zip(both, self.added, strict=True)]
                cells += [f"{each[name][head]:.3f}" for name, each in zip(both, self.entropy, strict=True)]
                roles = [
                    each.of(name, head).description for name, each in zip(both, self.roles or (), strict=False)
                ]
                heads.add_row(layer, str(head), *cells, f"{value:.1%}", *roles)
        heads.box, heads.title = None, f"{self.summary()}, over {self.samples} inputs"
        answers = Table(one, other, box=None)
        for first, second in self.predictions:
            if first != second:
                answers.add_row(str(first), str(second))
        parts: list[RenderableType] = [heads] if self.apart else [Text(str(heads.title))]
        if answers.rows:
            parts += [Text("\nAnswers that differ", style="italic"), answers]
        said = [] if self.roles else ["What heads do is told over ten inputs or more."]
        if not self.apart:
            said.append("No layer of one has as many heads as one of the other: heads are not compared.")
        return Group(*parts, *(Text(each, style="dim") for each in said))

    def json(self) -> dict[str, Any]:
        """Return all figures as plain values; not the maps, which have files of their own."""
        return {name: plain(each) for name, each in vars(self).items() if name != "maps"}

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook in which both stand beside each other, under one cursor."""
        from regard.viz.widget import view

        return view(self.maps[0], beside=self._named())

    def to_html(self, path: str | Path) -> Path:
        """Write a page in which both stand beside each other, under one cursor."""
        from regard.viz.page import write_page

        return write_page(path, self.maps[0], beside=self._named())

    def _named(self) -> list[tuple[str, AttentionMap]]:
        return [(self.names[1], each) for each in self.maps[1]]


def beside(one: Any, other: Any, inputs: Sequence[Any]) -> Beside:
    """Ask two subjects the same; both are to have inputs of their own already. Raises `InputError` where they do
    not measure the same."""
    if one.measure != other.measure:
        raise InputError(
            f"{one.name} has a {one.measure}, {other.name} a {other.measure}: they cannot be compared"
        )
    check_comparable(one, [other])
    both = [_asked(each, len(inputs)) for each in (one, other)]
    maps: list[list[AttentionMap]] = [[each.attend(given) for given in inputs] for each in (one, other)]
    heads = [{layer.name: layer.heads for layer in each.layers} for each in (one, other)]
    alike = match_layers(one.layers, other.layers)
    shared = {first: second for first, second in alike.items() if heads[0][first] == heads[1][second]}
    return Beside(
        names=(one.name, other.name),
        samples=len(inputs),
        measure=one.measure,
        losses=(both[0].loss, both[1].loss),
        added=(both[0].added, both[1].added),
        entropy=(_entropy(maps[0]), _entropy(maps[1])),
        predictions=[
            (_said(first.prediction), _said(second.prediction)) for first, second in zip(*maps, strict=True)
        ],
        apart={first: _apart(maps, first, second) for first, second in shared.items()},
        alike=shared,
        roles=(one.roles(), other.roles()) if len(inputs) >= FEWEST else None,
        maps=(maps[0], maps[1]),
    )


@torch.no_grad()
def _asked(subject: Any, count: int) -> Any:
    return head_importance(subject, samples=count)


def _said(answer: Any) -> str | None:
    return None if answer is None else str(answer)


def _entropy(maps: Sequence[AttentionMap]) -> dict[str, list[float]]:
    found = {}
    for name in maps[0].layers:
        rows = [
            -(each.layers[name].weights * np.log(np.maximum(each.layers[name].weights, 1e-30))).sum(-1).mean(-1)
            for each in maps
        ]
        found[name] = np.mean(rows, 0).tolist()
    return found


def _apart(maps: Sequence[Sequence[AttentionMap]], layer: str, alike: str) -> list[float]:
    """Return the mean share of the rows that is elsewhere; of answers of different lengths, as far as both go."""
    shares = []
    for first, second in zip(*maps, strict=True):
        one, other = first.layers[layer].weights, second.layers[alike].weights
        rows, columns = (min(sizes) for sizes in zip(one.shape[1:], other.shape[1:], strict=True))
        shares.append(np.abs(one[:, :rows, :columns] - other[:, :rows, :columns]).sum(-1).mean(-1) / 2)
    found: list[float] = np.mean(shares, 0).tolist()
    return found
