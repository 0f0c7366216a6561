"""Warnings of `regard.watch`, whose rates are measured on small language models, healthy ones and ones that fail.

`python benchmarks/training_warnings.py FOLDER` sets the thresholds on one half of the trainings, measures the rates on
the other half, and writes both to `training_warnings.json`.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

RATES = "training_warnings.json"
KINDS = {
    "entropy collapse": ("relative_entropy", "below"),
    "growing scores": ("largest_score", "above"),
    "dead head": ("share of the layer's largest contribution_norm (0 if no query may attend)", "below"),
    "copied heads": ("similarity", "above"),
    "sudden change": ("change of relative_entropy since the measurement before", "above"),
    "not a number": ("whether a score, weight or context is not finite (1: yes)", "above"),
}
"""For each kind of warning, its value, and on which side of the threshold a value gives the warning."""

HELPED = ("entropy collapse", "growing scores")  # kinds that every training at the rate of the remedies gave

Row = Mapping[str, Any]


@functools.cache
def experiment() -> dict[str, Any]:
    """Return the stored thresholds and rates by kind, and the losses with each remedy."""
    return dict(json.loads(resources.files(__package__).joinpath(RATES).read_text(encoding="utf-8")))


def values(rows: Sequence[Row], before: Iterable[Row]) -> Iterator[tuple[Row, str, float]]:
    """Yield each row of a measurement with the value of each kind of warning; `before`: rows of the one before."""
    earlier = {(row["layer"], row["head"]): row["relative_entropy"] for row in before}
    for row in rows:
        for kind, (name, _) in KINDS.items():
            if row.get(name) is not None:  # the value is a measure
                yield row, kind, row[name]
        if not row["finite"]:
            yield row, "not a number", 1.0
        elif row["entropy"] is None:  # no query may attend to any key
            yield row, "dead head", 0.0
        last, norm = earlier.get((row["layer"], row["head"])), row["contribution_norm"]
        if last is not None and row["relative_entropy"] is not None:
            yield row, "sudden change", abs(row["relative_entropy"] - last)
        if norm is not None:
            largest = max(other["contribution_norm"] or 0.0 for other in rows if other["layer"] == row["layer"])
            yield row, "dead head", norm / largest if largest else float(not row["step"])


def find_warnings(rows: Sequence[Row], before: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the warnings of one measurement, one for each head and kind."""
    return [
        {"step": row["step"], "warning": kind, "layer": row["layer"], "head": row["head"], "value": value}
        for row, kind, value in values(rows, before)
        if crosses(kind, value, experiment()["kinds"][kind]["threshold"])
    ]


def crosses(kind: str, value: float, threshold: float | None) -> bool:
    """Return whether a value gives the warning; never without a threshold."""
    return threshold is not None and (value < threshold if KINDS[kind][1] == "below" else value > threshold)


def describe(found: list[dict[str, Any]]) -> str:
    """Return one line about warnings of one kind and step, with the measured rates."""
    first, others = found[0], len(found) - 1
    kind, stored = first["warning"], experiment()
    rate = stored["kinds"][kind]
    name, side = KINDS[kind]
    lead = "" if rate["lead"] is None else f", median {rate['lead']:.0f} steps before the loss"
    more = f" and {others} other head{'s' * (others > 1)}" if others else ""
    return (
        f"step {first['step']}: {kind} in {first['layer']} head {first['head']}{more}: {name} is {first['value']:.3g}, "
        f"{side} {rate['threshold']:.3g}. In the experiment, {rate['healthy'][0]} of {rate['healthy'][1]} healthy "
        f"trainings gave it, {rate['failing'][0]} of {rate['failing'][1]} failing ones{lead}"
        + (f". Tried there, last loss: {stored['remedies']}" if kind in HELPED else "")
    )
