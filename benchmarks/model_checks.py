"""Checks of every architecture in the table of `models`."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from architectures import Architecture, build, make_inputs
from torch import Tensor, nn

import regard
from regard.attention import Records

CLOSE = 1e-5
"""Largest allowed difference from a model's own weights, in float32."""
NEW_TOKENS = 5
"""Number of generated tokens."""
STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True},
    "beams": {"num_beams": 3, "do_sample": False},
}


class WrongError(Exception):
    """The record differs from the model."""


@dataclass
class Row:
    """Results of the checks for one architecture."""

    architecture: Architecture
    layers: int = 0
    difference: float = 0.0
    more: int = 0
    """Recorded layers whose weights the model itself does not return."""
    found: dict[str, str] = field(default_factory=dict)
    """By check: yes, - (not applicable), or the problem."""

    @property
    def right(self) -> bool:
        """Whether all checks passed."""
        return all(each in ("yes", "-") for each in self.found.values())


class Wrapper(nn.Module):
    """A custom module that contains one or more models."""

    def __init__(self, *models: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList(models)

    def forward(self, **given: Any) -> Any:
        """Run every model, and return the output of the last one."""
        return [model(**given) for model in self.inner][-1]


def reported(output: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the weights in a model's output, with the names of their fields."""
    for key, value in output.items():
        if hasattr(value, "to_tuple"):
            yield from reported(value, f"{key}.")
        elif key.endswith("attentions") and "global" not in key:
            for each in value:
                if each is not None and key == "cross_attentions" and "decoder_ngram_attentions" in output:
                    main, *others = each.softmax(-1).chunk(3, dim=2)
                    yield prefix + key, main
                    yield from ((f"{prefix}ngram {key}", other) for other in others)
                elif each is not None:
                    yield from ((prefix + key, one) for one in _streams(each))


def _streams(each: Tensor) -> Iterator[Tensor]:
    if (each < 0).any():
        each = each.softmax(-1)  # scores in a field named attentions
    yield from each.unbind(1) if each.dim() == 5 else [each]


def distance(record: regard.Record, expected: Tensor) -> float:
    """Return the largest difference of weights; a model may return windows, or the mean of heads."""
    found = record.weights
    if found.shape[:3] != expected.shape[:3]:
        return float("inf")
    if found.shape[3] != expected.shape[3]:
        found = _bands(found, expected.shape[3])
    elif found.shape[1] > 1 and bool((expected == expected[:, :1]).all()):
        found = found.mean(1, keepdim=True)
    if record.mask is not None:  # queries that may attend to nothing are not compared
        sees = record.mask.expand_as(record.weights).any(-1, keepdim=True) | (record.weights != 0).any(
            -1, keepdim=True
        )
        expected = expected * (sees if found.shape[1] == sees.shape[1] else sees.any(1, keepdim=True))
    return float((found - expected).abs().max())


def _bands(whole: Tensor, window: int) -> Tensor:
    """Return only the keys in the window of each query, as Longformer returns them."""
    steps = torch.arange(whole.shape[2])
    keys = steps[:, None] - window // 2 + torch.arange(window)
    inside = (keys >= 0) & (keys < whole.shape[3])
    index = keys.clamp(0, whole.shape[3] - 1).expand(*whole.shape[:2], *keys.shape)
    return whole.gather(-1, index) * inside


def compare(records: Records, output: Any, row: Row) -> None:
    """Compare records with the weights that a model returns; raises `WrongError`."""
    left = dict(records)
    if not left:
        raise WrongError("nothing recorded")
    for key, expected in reported(output):
        if "ngram" in key and not any("stream" in name for name in records):
            continue  # in single steps these streams have other keys
        near = {name: distance(record, expected) for name, record in left.items()}
        name = min(near, key=lambda each: near[each], default="")
        if not name or not near[name] <= CLOSE:
            raise WrongError(f"{key} {tuple(expected.shape)}: off by {near.get(name, float('nan')):.1g}")
        row.difference = max(row.difference, near[name])
        del left[name]
    row.layers, row.more = len(records), len(left)
    for each in left.values():
        if not ((each.weights.sum(-1) - 1).abs() < 1e-4).all():
            raise WrongError("rows that the model does not report do not sum to one")


def check_masks(records: Records) -> None:
    """Raise `WrongError` if a masked key has weight, or an allowed key has none.

    Queries that may attend to nothing are ignored.
    """
    for name, record in records.items():
        mask = (
            torch.ones_like(record.weights) > 0 if record.mask is None else record.mask.expand_as(record.weights)
        )
        sees = mask.any(-1, keepdim=True)
        if (record.weights[~mask & sees] > 1e-30).any():
            raise WrongError(f"{name}: something masked has weight")
        if (record.weights[mask & sees] == 0).float().mean() > 0.01:  # a weight may round to zero in float32
            raise WrongError(f"{name}: something that may be attended has none")


def run(model: nn.Module, given: dict[str, Any], **options: Any) -> tuple[Any, Records]:
    """Run and record a model."""
    with torch.no_grad(), regard.record(model, **options) as records:
        output = model(**given)
    return output, records


def reference_output(architecture: Architecture, given: dict[str, Any]) -> Any:
    """Return the output of the model with its own weights."""
    model = build(architecture, "eager")
    with torch.no_grad():
        model(**given)  # BigBird chooses its attention in the first pass
        return model(**given, output_attentions=True)


def implementations(model: nn.Module) -> dict[int, str]:
    """Return the attention implementation in each config of a model."""
    configs: list[Any] = [getattr(each, "config", None) for each in model.modules()]
    return {id(each): each._attn_implementation for each in configs if hasattr(each, "_attn_implementation")}


def check_weights(row: Row, padding: str) -> None:
    """Check weights, masks and outputs with one kind of padding."""
    given = make_inputs(row.architecture, padding)
    model = build(row.architecture)
    before = implementations(model)
    with torch.no_grad():
        plain = model(**given)[0]
    output, records = run(model, given)
    if implementations(model) != before:
        raise WrongError("the implementation is another one afterwards")
    scale = max(float(plain.abs().max()), 1.0)
    if not float((output[0] - plain).abs().max()) <= CLOSE * scale:
        raise WrongError(f"the output is off by {float((output[0] - plain).abs().max()):.1g}")
    compare(records, reference_output(row.architecture, given), row)
    check_masks(records)


def runs_as_written(model: Any, given: dict[str, Any]) -> bool:
    """Return whether a model runs with FlexAttention that is not compiled: some architectures do not."""
    with torch.no_grad(), torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model(**given)
        except (IndexError, RuntimeError, ValueError):
            return False
    return True


def check_implementation(row: Row, name: str) -> None:
    """Check weights with one implementation of attention."""
    model = build(row.architecture)
    try:
        model.set_attn_implementation(name)  # type: ignore[operator]
    except ValueError as error:
        raise NotImplementedError from error
    before = implementations(model)
    given = make_inputs(row.architecture)
    if name == "flex_attention" and not runs_as_written(model, given):
        raise NotImplementedError
    _, records = run(model, given)
    if implementations(model) != before:
        raise WrongError("the implementation is another one afterwards")
    compare(records, reference_output(row.architecture, given), row)


def check_inside(row: Row) -> None:
    """Check weights inside a custom module, and inside `DataParallel`."""
    given = make_inputs(row.architecture)
    model = build(row.architecture)
    for outer in (Wrapper(model), nn.DataParallel(model)):
        _, records = run(outer, given)
        compare(records, reference_output(row.architecture, given), row)
        if not all(name.startswith(("inner.0", "module")) for name in records):
            raise WrongError("names do not say where the model is")


def check_repeated(row: Row) -> None:
    """Check that each run of a layer that runs twice has its own record."""
    given = make_inputs(row.architecture)
    model = build(row.architecture)
    _, once = run(Wrapper(model), given)
    _, twice = run(Wrapper(model, model), given)
    if len(twice) != 2 * len(once) or not any("#" in name for name in twice):
        raise WrongError(f"{len(once)} records once, {len(twice)} twice")
    found = [record.weights for record in twice.values()]
    for first, second in zip(found[: len(once)], found[len(once) :], strict=True):
        if not torch.equal(first, second):
            raise WrongError("the second run is another one")


def check_mixed(row: Row) -> None:
    """Check that the implementations of several models do not change, even after an exception."""
    models = [build(row.architecture, each) for each in row.architecture.implementations]
    if len(models) < 2:
        raise NotImplementedError
    both, given = Wrapper(*models), make_inputs(row.architecture)
    before = implementations(both)
    _, records = run(both, given)
    if implementations(both) != before:
        raise WrongError("an implementation is another one afterwards")
    compare(_beginning(records, "inner.0"), reference_output(row.architecture, given), row)
    try:
        with regard.record(both):
            raise KeyError
    except KeyError:
        if implementations(both) != before:
            raise WrongError("an implementation is another one after an exception") from None


def _beginning(records: Records, start: str) -> Any:
    return {name: record for name, record in records.items() if name.startswith(start)}


def check_generation(row: Row, way: str) -> None:
    """Compare the records of single steps with one pass over the whole result."""
    architecture = row.architecture
    writes = architecture.category in ("decoder", "encoder-decoder") or architecture.name == "whisper"
    if not architecture.generates or not writes:
        raise NotImplementedError
    given = make_inputs(architecture, "none")
    given.pop("decoder_input_ids", None)
    model = build(architecture)
    torch.manual_seed(3)
    with torch.no_grad(), regard.record(model) as records:
        sequences = model.generate(
            **given, min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS, **STRATEGIES[way]
        )  # type: ignore[operator]
    if architecture.name == "whisper":  # Whisper removes the first token
        sequences = torch.nn.functional.pad(sequences, (1, 0), value=1)
    read = sequences[:, :-1]
    if architecture.category != "decoder":
        whole = given | {"decoder_input_ids": read}
    else:
        whole = {"input_ids": read, "attention_mask": torch.ones_like(read)}
    compare(records, reference_output(architecture, whole), row)


def check_excuse(row: Row) -> str:
    """Return "yes" if an unsupported model gives a warning, and the same output as without recording."""
    given, model = make_inputs(row.architecture), build(row.architecture)
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.manual_seed(0)
        plain = model(**given)[0]
        torch.manual_seed(0)
        with regard.record(model) as records:
            output = model(**given)
    silent = not any("nothing was recorded" in str(each.message) for each in said)
    return "wrong" if records or silent or not torch.equal(plain, output[0]) else "yes"


CHECKS: dict[str, Callable[[Row], None]] = {
    "padding right": lambda row: check_weights(row, "right"),
    "padding left": lambda row: check_weights(row, "left"),
    "eager": lambda row: check_implementation(row, "eager"),
    "sdpa": lambda row: check_implementation(row, "sdpa"),
    "flex": lambda row: check_implementation(row, "flex_attention"),
    "inside": check_inside,
    "repeated": check_repeated,
    "mixed": check_mixed,
    **{way: lambda row, way=way: check_generation(row, way) for way in STRATEGIES},  # type: ignore[misc]
}


def examine(architecture: Architecture) -> Row:
    """Run all checks on one architecture."""
    row = Row(architecture)
    if architecture.unsupported:
        row.found = {"": check_excuse(row)}
        return row
    for name, check in CHECKS.items():
        if name == "padding left" and "attention_mask" not in make_inputs(architecture):
            row.found[name] = "-"
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(row)
            row.found[name] = "yes"
        except NotImplementedError:
            row.found[name] = "-"
        except Exception as error:  # an exception is a result of the check
            row.found[name] = " ".join(str(error).split())[:90] or type(error).__name__
    return row
