"""Compare the answers and the heads of two models over the same inputs.

print(regard.look("before").compare_with(regard.look("after"), texts))
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.table import Column
from rich.text import Text

from regard.arguments import public
from regard.errors import InputError, shorten
from regard.interpret.importance import head_importance
from regard.interpret.roles import MIN_SAMPLES, HeadRoles
from regard.result import plain_table, signed, to_plain
from regard.viz.attention_map import AttentionMap, Viewable
from regard.viz.maps import mean_distance
from regard.viz.subject import check_comparable, match_layers


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class ModelComparison(Viewable):
    """The comparison of two models over the same inputs. Each pair contains the values of the first and the
    second model. A widget and a page show both models side by side, with a shared cursor."""

    names: tuple[str, str]
    samples: int
    measure: str
    """Name of the loss."""
    losses: tuple[float, float]
    added: tuple[dict[str, list[float]], dict[str, list[float]]]
    """By layer: the increase of the loss when a head is disabled, for each head."""
    entropy: tuple[dict[str, list[float]], dict[str, list[float]]]
    """By layer: the mean entropy of the rows of each head, in nats; 0 if the head attends to a single step."""
    predictions: list[tuple[str | None, str | None]]
    """Answers to each input."""
    apart: dict[str, list[float]]
    """By layer that has the same number of heads in both models: for each head, the mean total variation distance
    (0 to 1) between the rows of the two models."""
    alike: dict[str, str]
    """Name of each shared layer in the second model, by its name in the first model."""
    roles: tuple[HeadRoles, HeadRoles] | None = None
    """Roles of the heads; None for fewer than ten inputs, which are too few to describe roles."""
    maps: tuple[list[AttentionMap], list[AttentionMap]] = field(default=([], []))
    """Attention map of each input."""

    def summary(self) -> str:
        first, second = self.names
        return f"{self.measure} {self.losses[0]:.4f} of {first}, {self.losses[1]:.4f} of {second}"

    def table(self) -> RenderableType:
        added = [f"added, {name}" for name in self.names]
        entropy = [f"entropy, {name}" for name in self.names]
        looks = [f"looks at, {name}" for name in self.names] if self.roles else []
        title, rows = f"{self.summary()}, over {self.samples} inputs", list[tuple[str, ...]]()
        for layer, values in self.apart.items():
            both = (layer, self.alike[layer])
            for head, value in enumerate(values):
                cells = [signed(losses[name][head], 4) for name, losses in zip(both, self.added, strict=True)]
                cells += [f"{rows[name][head]:.3f}" for name, rows in zip(both, self.entropy, strict=True)]
                roles = [
                    heads_of_model.of(name, head).description
                    for name, heads_of_model in zip(both, self.roles or (), strict=False)
                ]
                rows.append((layer, str(head), *cells, f"{value:.1%}", *roles))
        columns: list[Column | str] = [Column("layer", no_wrap=True), "head", *added, *entropy, "apart", *looks]
        parts: list[RenderableType] = [plain_table(columns, rows, title) if rows else Text(title)]
        if differing := [(str(n), str(a), str(b)) for n, (a, b) in enumerate(self.predictions, 1) if a != b]:
            parts += [Text("\nAnswers that differ", style="italic"), plain_table(("input", *self.names), differing)]
        notes = [] if self.roles else ["Roles of heads need ten inputs or more."]
        if others := [name for name in self.added[0] if name not in self.apart]:
            notes.append(f"Not compared: {', '.join(others)}. No such layer of {self.names[1]} has as many heads.")
        return Group(*parts, *(Text(note, style="dim") for note in notes))

    def json(self) -> dict[str, Any]:
        """Return all numbers as plain values, without the maps, which have their own files."""
        return {name: to_plain(value) for name, value in vars(self).items() if name != "maps"}

    def _view(self) -> tuple[Sequence[AttentionMap], dict[str, Any]]:
        return self.maps[0], {"beside": [(self.names[1], attention) for attention in self.maps[1]]}


def compare_models(first: Any, second: Any, texts: Iterable[Any]) -> ModelComparison:
    """Compare two external models over some texts; raises `InputError` if they measure different losses."""
    if type(second) is not type(first):
        raise InputError(f"{shorten(str(second))} is not a model to compare with: pass a result of look()")
    first = first.over(texts)
    inputs: Sequence[Any] = first.inputs
    second = second.over(inputs)
    measure, other = first.traits.measure, second.traits.measure
    if measure == other:  # a class and a token may both have a loss against the model's own answer
        measure, other = first.adapter.measure, second.adapter.measure
    if measure != other:
        raise InputError(f"{first.name} has a {measure}, {second.name} a {other}: these losses cannot be compared")
    check_comparable(first, [second])
    models = (first, second)
    with torch.no_grad():
        importance = [head_importance(model, samples=len(inputs)) for model in models]
    maps: list[list[AttentionMap]] = [[model.attend(value) for value in inputs] for model in models]
    heads = [{layer.name: layer.heads for layer in model.layers} for model in models]
    matching = match_layers(first.layers, second.layers)
    shared = {name: other for name, other in matching.items() if heads[0][name] == heads[1][other]}
    return ModelComparison(
        names=(first.name, second.name),
        samples=len(inputs),
        measure=measure,
        losses=(importance[0].loss, importance[1].loss),
        added=(importance[0].added, importance[1].added),
        entropy=(_mean_entropy(maps[0]), _mean_entropy(maps[1])),
        predictions=[(_text(before), _text(after)) for before, after in zip(*maps, strict=True)],
        apart={
            name: mean_distance(
                (before.layers[name].weights, after.layers[other].weights) for before, after in zip(*maps, strict=True)
            ).tolist()
            for name, other in shared.items()
        },
        alike=shared,
        roles=(first.roles(), second.roles()) if len(inputs) >= MIN_SAMPLES else None,
        maps=(maps[0], maps[1]),
    )


def _text(attention: AttentionMap) -> str | None:
    return None if attention.prediction is None else str(attention.prediction)


def _mean_entropy(maps: Sequence[AttentionMap]) -> dict[str, list[float]]:
    """Return the mean entropy, in nats, of the rows of each head, by layer."""
    entropy = {}
    for name in maps[0].layers:
        weights = [attention.layers[name].weights for attention in maps]
        # Clamp to 1e-30 instead of 0: the term of a zero weight is then 0, not NaN.
        rows = [-(values * np.log(np.maximum(values, 1e-30))).sum(-1).mean(-1) for values in weights]
        entropy[name] = np.mean(rows, 0).tolist()
    return entropy
