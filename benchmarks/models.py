"""Which architectures of Hugging Face's are recorded rightly: writes docs/models.md.

    python benchmarks/models.py [--only NAME ...] [--out docs/models.md]

Every architecture is a small random model, built from its config and never downloaded. What `regard.record` finds is
compared with what a copy of the model reports when it works attention out by itself (`eager`, `output_attentions`).
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from architectures import ARCHITECTURES, Architecture, build, make_inputs
from torch import Tensor, nn

import regard
from regard.attention import Records

CLOSE = 1e-5
"""The largest difference from a model's own weights that counts as right, in float32."""
NEW = 5
"""Tokens that are generated."""
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True},
    "beams": {"num_beams": 3, "do_sample": False},
}


class Wrong(Exception):
    """What was recorded is not what the model does."""


@dataclass
class Row:
    """What was found of one architecture."""

    architecture: Architecture
    layers: int = 0
    difference: float = 0.0
    more: int = 0
    """Layers that the model itself does not report."""
    found: dict[str, str] = field(default_factory=dict)
    """By check: yes, –, or what was wrong."""

    @property
    def right(self) -> bool:
        """Whether nothing was wrong."""
        return all(each in ("yes", "–") for each in self.found.values())


class Wrapper(nn.Module):
    """A module of one's own around a model, or around several."""

    def __init__(self, *models: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList(models)

    def forward(self, **given: Any) -> Any:
        """Ask every model, and return what the last one says."""
        return [model(**given) for model in self.inner][-1]


def reported(output: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the weights that a model reports, with the name that it has for them."""
    for key, value in output.items():
        if hasattr(value, "to_tuple"):
            yield from reported(value, f"{key}.")
        elif key.endswith("attentions") and "global" not in key:
            for each in value:
                if each is not None:
                    yield from ((prefix + key, one) for one in _streams(each))


def _streams(each: Tensor) -> Iterator[Tensor]:
    if (each < 0).any():
        each = each.softmax(-1)  # scores under the name of weights
    yield from each.unbind(1) if each.dim() == 5 else [each]


def distance(record: regard.Record, expected: Tensor) -> float:
    """Return the largest difference between weights, also where a model reports bands, or the mean of its heads."""
    found = record.weights
    if found.shape[:3] != expected.shape[:3]:
        return float("inf")
    if found.shape[3] != expected.shape[3]:
        found = _bands(found, expected.shape[3])
    elif found.shape[1] > 1 and bool((expected == expected[:, :1]).all()):
        found = found.mean(1, keepdim=True)
    if record.mask is not None:  # of queries that see nothing there is nothing to compare
        sees = record.mask.expand_as(record.weights).any(-1, keepdim=True) | (record.weights != 0).any(
            -1, keepdim=True
        )
        expected = expected * (sees if found.shape[1] == sees.shape[1] else sees.any(1, keepdim=True))
    return float((found - expected).abs().max())


def _bands(whole: Tensor, window: int) -> Tensor:
    """Return of each query only the keys around it, as Longformer reports them."""
    steps = torch.arange(whole.shape[2])
    keys = steps[:, None] - window // 2 + torch.arange(window)
    inside = (keys >= 0) & (keys < whole.shape[3])
    index = keys.clamp(0, whole.shape[3] - 1).expand(*whole.shape[:2], *keys.shape)
    return whole.gather(-1, index) * inside


def compare(records: Records, output: Any, row: Row) -> None:
    """Compare what was recorded with what a model reports; raises `Wrong`."""
    left = dict(records)
    if not left:
        raise Wrong("nothing recorded")
    for key, expected in reported(output):
        near = {name: distance(record, expected) for name, record in left.items()}
        name = min(near, key=lambda each: near[each], default="")
        if not name or not near[name] <= CLOSE:
            raise Wrong(f"{key} {tuple(expected.shape)}: off by {near.get(name, float('nan')):.1g}")
        row.difference = max(row.difference, near[name])
        del left[name]
    row.layers, row.more = len(records), len(left)
    for each in left.values():
        if not ((each.weights.sum(-1) - 1).abs() < 1e-4).all():
            raise Wrong("rows that the model does not report do not sum to one")


def check_masks(records: Records) -> None:
    """Raise `Wrong` where something masked has weight, or something free has none; queries that see nothing aside."""
    for name, record in records.items():
        mask = (
            torch.ones_like(record.weights) > 0 if record.mask is None else record.mask.expand_as(record.weights)
        )
        sees = mask.any(-1, keepdim=True)
        if (record.weights[~mask & sees] != 0).any():
            raise Wrong(f"{name}: something masked has weight")
        if (record.weights[mask & sees] == 0).float().mean() > 0.01:  # which may be too little for float32
            raise Wrong(f"{name}: something that may be attended has none")


def run(model: nn.Module, given: dict[str, Any], **options: Any) -> tuple[Any, Records]:
    """Run a model and record it."""
    with torch.no_grad(), regard.record(model, **options) as records:
        output = model(**given)
    return output, records


def own(architecture: Architecture, given: dict[str, Any]) -> Any:
    """Return what the model itself reports."""
    model = build(architecture, "eager")
    with torch.no_grad():
        model(**given)  # BigBird chooses its attention in its first pass
        return model(**given, output_attentions=True)


def implementations(model: nn.Module) -> dict[int, str]:
    """Return what all configs of a model name."""
    configs = [getattr(each, "config", None) for each in model.modules()]
    return {id(each): each._attn_implementation for each in configs if hasattr(each, "_attn_implementation")}


def check_weights(row: Row, padding: str) -> None:
    """Weights, masks and outputs, with one kind of padding."""
    given = make_inputs(row.architecture, padding)
    model = build(row.architecture)
    before = implementations(model)
    with torch.no_grad():
        plain = model(**given)[0]
    output, records = run(model, given)
    if implementations(model) != before:
        raise Wrong("the implementation is another one afterwards")
    scale = max(float(plain.abs().max()), 1.0)
    if not float((output[0] - plain).abs().max()) <= CLOSE * scale:
        raise Wrong(f"the output is off by {float((output[0] - plain).abs().max()):.1g}")
    compare(records, own(row.architecture, given), row)
    check_masks(records)


def check_implementation(row: Row, name: str) -> None:
    """Weights, with one implementation of attention."""
    model = build(row.architecture)
    try:
        model.set_attn_implementation(name)  # type: ignore[operator]
    except ValueError as error:
        raise NotImplementedError from error
    before = implementations(model)
    given = make_inputs(row.architecture)
    _, records = run(model, given)
    if implementations(model) != before:
        raise Wrong("the implementation is another one afterwards")
    compare(records, own(row.architecture, given), row)


def check_inside(row: Row) -> None:
    """Weights, inside a module of one's own, and `DataParallel`."""
    given = make_inputs(row.architecture)
    model = build(row.architecture)
    for outer in (Wrapper(model), nn.DataParallel(model)):
        _, records = run(outer, given)
        compare(records, own(row.architecture, given), row)
        if not all(name.startswith(("inner.0", "module")) for name in records):
            raise Wrong("names do not say where the model is")


def check_repeated(row: Row) -> None:
    """Every run of a layer that runs twice has its own record."""
    given = make_inputs(row.architecture)
    model = build(row.architecture)
    _, once = run(Wrapper(model), given)
    _, twice = run(Wrapper(model, model), given)
    if len(twice) != 2 * len(once) or not any("#" in name for name in twice):
        raise Wrong(f"{len(once)} records once, {len(twice)} twice")
    found = [record.weights for record in twice.values()]
    for first, second in zip(found[: len(once)], found[len(once) :], strict=True):
        if not torch.equal(first, second):
            raise Wrong("the second run is another one")


def check_mixed(row: Row) -> None:
    """Several implementations beside each other stay what they were, also after an exception."""
    models = [build(row.architecture, each) for each in row.architecture.implementations]
    if len(models) < 2:
        raise NotImplementedError
    both, given = Wrapper(*models), make_inputs(row.architecture)
    before = implementations(both)
    _, records = run(both, given)
    if implementations(both) != before:
        raise Wrong("an implementation is another one afterwards")
    compare(_beginning(records, "inner.0"), own(row.architecture, given), row)
    try:
        with regard.record(both):
            raise KeyError
    except KeyError:
        if implementations(both) != before:
            raise Wrong("an implementation is another one after an exception") from None


def _beginning(records: Records, start: str) -> Any:
    return {name: record for name, record in records.items() if name.startswith(start)}


def check_generation(row: Row, way: str) -> None:
    """What was recorded step by step is what the whole result gives at once."""
    architecture = row.architecture
    if not architecture.generates or architecture.sort not in ("decoder", "encoder-decoder"):
        raise NotImplementedError
    given = make_inputs(architecture, "none")
    given.pop("decoder_input_ids", None)
    model = build(architecture)
    torch.manual_seed(3)
    with torch.no_grad(), regard.record(model) as records:
        sequences = model.generate(**given, min_new_tokens=NEW, max_new_tokens=NEW, **WAYS[way])  # type: ignore[operator]
    read = sequences[:, :-1]
    if architecture.sort == "encoder-decoder":
        whole = given | {"decoder_input_ids": read}
    else:
        whole = {"input_ids": read, "attention_mask": torch.ones_like(read)}
    compare(records, own(architecture, whole), row)


CHECKS: dict[str, Callable[[Row], None]] = {
    "padding right": lambda row: check_weights(row, "right"),
    "padding left": lambda row: check_weights(row, "left"),
    "eager": lambda row: check_implementation(row, "eager"),
    "sdpa": lambda row: check_implementation(row, "sdpa"),
    "flex": lambda row: check_implementation(row, "flex_attention"),
    "inside": check_inside,
    "repeated": check_repeated,
    "mixed": check_mixed,
    **{way: lambda row, way=way: check_generation(row, way) for way in WAYS},  # type: ignore[misc]
}


def examine(architecture: Architecture) -> Row:
    """Check one architecture in all ways."""
    row = Row(architecture)
    if architecture.excuse:
        return row
    for name, check in CHECKS.items():
        if name == "padding left" and "attention_mask" not in make_inputs(architecture):
            row.found[name] = "–"
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(row)
            row.found[name] = "yes"
        except NotImplementedError:
            row.found[name] = "–"
        except Exception as error:  # a crash is a finding
            row.found[name] = " ".join(str(error).split())[:90] or type(error).__name__
    return row


HEADER = """# Models that are recorded

`regard.record(model)` on small random models of {count} architectures of Hugging Face's (transformers
{transformers}, PyTorch {torch}), made by `make models` and never downloaded. What it keeps is compared with what a copy
of the model reports that works its attention out by itself (`attn_implementation="eager"`,
`output_attentions=True`). {right} of {count} are right in every way.

- *Layers*: records of one pass; *+n* are those of which the model itself reports nothing.
- *Off by*: the largest difference of any weight in all these checks, in float32.
- *Padding*: with padding on the right and on the left, weights, masks and outputs are the model's.
- *eager, sdpa, flex*: set to each implementation that the model accepts, and set to the same one afterwards.
- *Inside*: in a module of one's own, and in `DataParallel`. *Repeated*: called twice, it has two records of each layer.
  *Mixed*: beside a copy of another implementation, and after an exception.
- *Greedy, sampling, beams*: what was recorded of each generated token is what the model reports of the whole result.

– means that the model has no such thing. G: groups of heads share their keys. W: some layers see a window.

"""


def as_table(rows: list[Row]) -> str:
    """Return the rows as a table."""
    import transformers

    right = sum(row.right for row in rows)
    head = HEADER.format(
        count=len(rows), right=right, transformers=transformers.__version__, torch=torch.__version__
    )
    lines = [
        head + f"| Architecture | | Layers | Off by | {' | '.join(CHECKS)} |",
        "|---|---|---|---|" + "---|" * len(CHECKS),
    ]
    for sort in dict.fromkeys(row.architecture.sort for row in rows):
        lines.append(f"| **{sort}** |" + " |" * (3 + len(CHECKS)))
        for row in rows:
            if row.architecture.sort == sort:
                lines.append(_line(row))
    excuses = [
        f"- **{row.architecture.name}**: {row.architecture.excuse}" for row in rows if row.architecture.excuse
    ]
    notes = [f"- **{row.architecture.name}**: {row.architecture.note}" for row in rows if row.architecture.note]
    return "\n".join([*lines, "", *notes, *excuses, ""])


def _line(row: Row) -> str:
    marks = ("G" if row.architecture.heads_differ else "") + ("W" if row.architecture.window else "")
    layers = f"{row.layers}" + (f" (+{row.more})" if row.more else "")
    cells = [
        row.architecture.name,
        marks,
        layers,
        f"{row.difference:.0e}" if row.difference else "0",
        *row.found.values(),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Check all architectures, or some, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for architecture in ARCHITECTURES:
        if not options.only or architecture.name in options.only:
            rows.append(examine(architecture))
            print("right" if rows[-1].right else "WRONG", architecture.name, rows[-1].found, flush=True)
    if options.out:
        options.out.write_text(as_table(rows), encoding="utf-8")
    sys.exit(not all(row.right for row in rows))


if __name__ == "__main__":
    main()
