"""Checks of the architectures in the table of `models`."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from architectures import Architecture, build, make_inputs
from torch import Tensor, nn

import regard
from regard.attention.records import Records

CLOSE = 1e-5
"""Largest allowed difference between recorded weights and the model's own weights, in float32."""
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
    """Number of recorded layers whose weights the model itself does not return."""
    outcomes: dict[str, str] = field(default_factory=dict)
    """Result of each check: yes, - (not applicable), or the problem."""

    @property
    def right(self) -> bool:
        """Whether all checks passed."""
        return all(outcome in ("yes", "-") for outcome in self.outcomes.values())


class Wrapper(nn.Module):
    """A custom module that contains one or more models."""

    def __init__(self, *models: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList(models)

    def forward(self, **inputs: Any) -> Any:
        """Run every model, and return the output of the last model."""
        return [model(**inputs) for model in self.inner][-1]


def reported(output: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the weights in a model's output, with the names of their fields."""
    for key, value in output.items():
        if hasattr(value, "to_tuple"):
            yield from reported(value, f"{key}.")
        elif key.endswith("attentions") and "global" not in key:
            for weights in value:
                if weights is not None and key == "cross_attentions" and "decoder_ngram_attentions" in output:
                    main, *streams = weights.softmax(-1).chunk(3, dim=2)
                    yield prefix + key, main
                    yield from ((f"{prefix}ngram {key}", stream) for stream in streams)
                elif weights is not None:
                    yield from ((prefix + key, stream) for stream in _streams(weights))


def _streams(weights: Tensor) -> Iterator[Tensor]:
    if (weights < 0).any():
        weights = weights.softmax(-1)  # scores in a field named attentions
    yield from weights.unbind(1) if weights.dim() == 5 else [weights]


def distance(record: regard.Record, expected: Tensor) -> float:
    """Return the largest difference of weights; a model may return windows or the mean of its heads."""
    weights = record.weights
    if weights.shape[:3] != expected.shape[:3]:
        return float("inf")
    if weights.shape[3] != expected.shape[3]:
        weights = _bands(weights, expected.shape[3])
    elif weights.shape[1] > 1 and bool((expected == expected[:, :1]).all()):
        weights = weights.mean(1, keepdim=True)
    if record.mask is not None:  # queries that may attend to nothing are not compared
        attends = record.mask.expand_as(record.weights).any(-1, keepdim=True) | (record.weights != 0).any(
            -1, keepdim=True
        )
        expected = expected * (attends if weights.shape[1] == attends.shape[1] else attends.any(1, keepdim=True))
    return float((weights - expected).abs().max())


def _bands(weights: Tensor, window: int) -> Tensor:
    """Return the weights of the keys in the window of each query, in the format of Longformer."""
    steps = torch.arange(weights.shape[2])
    keys = steps[:, None] - window // 2 + torch.arange(window)
    inside = (keys >= 0) & (keys < weights.shape[3])
    index = keys.clamp(0, weights.shape[3] - 1).expand(*weights.shape[:2], *keys.shape)
    return weights.gather(-1, index) * inside


def compare(records: Records, output: Any, row: Row) -> None:
    """Compare records with the weights that a model returns; raises `WrongError`."""
    unmatched = dict(records)
    if not unmatched:
        raise WrongError("nothing recorded")
    for key, expected in reported(output):
        if "ngram" in key and not any("stream" in name for name in records):
            continue  # in single steps these streams have other keys
        distances = {name: distance(record, expected) for name, record in unmatched.items()}
        name = min(distances, key=lambda layer: distances[layer], default="")
        if not name or not distances[name] <= CLOSE:
            raise WrongError(f"{key} {tuple(expected.shape)}: off by {distances.get(name, float('nan')):.1g}")
        row.difference = max(row.difference, distances[name])
        del unmatched[name]
    row.layers, row.more = len(records), len(unmatched)
    for record in unmatched.values():
        if not ((record.weights.sum(-1) - 1).abs() < 1e-4).all():
            raise WrongError("rows that the model does not return do not sum to one")


def check_masks(records: Records) -> None:
    """Raise `WrongError` if the weight of a masked key is not zero, or the weight of an allowed key is zero.

    Queries that may attend to no key are ignored.
    """
    for name, record in records.items():
        mask = torch.ones_like(record.weights) > 0 if record.mask is None else record.mask.expand_as(record.weights)
        attends = mask.any(-1, keepdim=True)
        if (record.weights[~mask & attends] > 1e-30).any():
            raise WrongError(f"{name}: the weight of a masked key is not zero")
        if (record.weights[mask & attends] == 0).float().mean() > 0.01:  # a weight may round to zero in float32
            raise WrongError(f"{name}: weights of allowed keys are zero")


def run(model: nn.Module, inputs: dict[str, Any], **options: Any) -> tuple[Any, Records]:
    """Run and record a model."""
    with torch.no_grad(), regard.record(model, **options) as records:
        output = model(**inputs)
    return output, records


def reference_output(architecture: Architecture, inputs: dict[str, Any]) -> Any:
    """Return the output of the model with its own weights."""
    model = build(architecture, "eager")
    with torch.no_grad():
        model(**inputs)  # BigBird chooses its attention in the first pass
        return model(**inputs, output_attentions=True)


def implementations(model: nn.Module) -> dict[int, str]:
    """Return the attention implementation in each config of a model."""
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    return {id(config): config._attn_implementation for config in configs if hasattr(config, "_attn_implementation")}


def check_weights(row: Row, padding: str) -> None:
    """Check weights, masks and outputs with one kind of padding."""
    inputs = make_inputs(row.architecture, padding)
    model = build(row.architecture)
    before = implementations(model)
    with torch.no_grad():
        plain = model(**inputs)[0]
    output, records = run(model, inputs)
    if implementations(model) != before:
        raise WrongError("the attention implementation changed")
    scale = max(float(plain.abs().max()), 1.0)
    if not float((output[0] - plain).abs().max()) <= CLOSE * scale:
        raise WrongError(f"the output is off by {float((output[0] - plain).abs().max()):.1g}")
    compare(records, reference_output(row.architecture, inputs), row)
    check_masks(records)


def runs_as_written(model: Any, inputs: dict[str, Any]) -> bool:
    """Return whether a model runs with uncompiled FlexAttention, which fails for some architectures."""
    with torch.no_grad(), torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model(**inputs)
        except (IndexError, RuntimeError, ValueError):
            return False
    return True


def check_implementation(row: Row, name: str) -> None:
    """Check the weights of one attention implementation."""
    model = build(row.architecture)
    try:
        model.set_attn_implementation(name)  # type: ignore[operator]
    except ValueError as error:
        raise NotImplementedError from error
    before = implementations(model)
    inputs = make_inputs(row.architecture)
    if name == "flex_attention" and not runs_as_written(model, inputs):
        raise NotImplementedError
    _, records = run(model, inputs)
    if implementations(model) != before:
        raise WrongError("the attention implementation changed")
    compare(records, reference_output(row.architecture, inputs), row)


def check_inside(row: Row) -> None:
    """Check weights inside a custom module, and inside `DataParallel`."""
    inputs = make_inputs(row.architecture)
    model = build(row.architecture)
    for wrapper in (Wrapper(model), nn.DataParallel(model)):
        _, records = run(wrapper, inputs)
        compare(records, reference_output(row.architecture, inputs), row)
        if not all(name.startswith(("inner.0", "module")) for name in records):
            raise WrongError("names do not contain the path of the model")


def check_repeated(row: Row) -> None:
    """Check that a layer that runs twice has a record for each call."""
    inputs = make_inputs(row.architecture)
    model = build(row.architecture)
    _, once = run(Wrapper(model), inputs)
    _, twice = run(Wrapper(model, model), inputs)
    if len(twice) != 2 * len(once) or not any("#" in name for name in twice):
        raise WrongError(f"{len(once)} records of one call, {len(twice)} records of two calls")
    weights = [record.weights for record in twice.values()]
    for first, second in zip(weights[: len(once)], weights[len(once) :], strict=True):
        if not torch.equal(first, second):
            raise WrongError("the records of the second call differ")


def check_mixed(row: Row) -> None:
    """Check that the implementations of several models do not change, even after an exception."""
    models = [build(row.architecture, implementation) for implementation in row.architecture.implementations]
    if len(models) < 2:
        raise NotImplementedError
    both, inputs = Wrapper(*models), make_inputs(row.architecture)
    before = implementations(both)
    _, records = run(both, inputs)
    if implementations(both) != before:
        raise WrongError("an attention implementation changed")
    compare(_beginning(records, "inner.0"), reference_output(row.architecture, inputs), row)
    try:
        with regard.record(both):
            raise KeyError
    except KeyError:
        if implementations(both) != before:
            raise WrongError("an attention implementation changed after an exception") from None


def _beginning(records: Records, prefix: str) -> Any:
    return {name: record for name, record in records.items() if name.startswith(prefix)}


def check_generation(row: Row, strategy: str) -> None:
    """Compare the records of single decoding steps with one pass over the whole result."""
    architecture = row.architecture
    writes_text = architecture.category in ("decoder", "encoder-decoder") or architecture.name == "whisper"
    if not architecture.generates or not writes_text:
        raise NotImplementedError
    inputs = make_inputs(architecture, "none")
    inputs.pop("decoder_input_ids", None)
    model = build(architecture)
    torch.manual_seed(3)
    with torch.no_grad(), regard.record(model) as records:
        sequences = model.generate(
            **inputs, min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS, **STRATEGIES[strategy]
        )  # type: ignore[operator]
    if architecture.name == "whisper":  # Whisper removes the first token
        sequences = torch.nn.functional.pad(sequences, (1, 0), value=1)
    tokens_read = sequences[:, :-1]
    if architecture.category != "decoder":
        whole_inputs = inputs | {"decoder_input_ids": tokens_read}
    else:
        whole_inputs = {"input_ids": tokens_read, "attention_mask": torch.ones_like(tokens_read)}
    compare(records, reference_output(architecture, whole_inputs), row)


def check_excuse(row: Row) -> str:
    """Return "yes" if recording an unsupported model prints a warning and does not change the output."""
    inputs, model = make_inputs(row.architecture), build(row.architecture)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.manual_seed(0)
        plain = model(**inputs)[0]
        torch.manual_seed(0)
        with regard.record(model) as records:
            output = model(**inputs)
    is_silent = not any("nothing was recorded" in str(warning.message) for warning in caught)
    return "wrong" if records or is_silent or not torch.equal(plain, output[0]) else "yes"


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
        row.outcomes = {"": check_excuse(row)}
        return row
    for name, check in CHECKS.items():
        if name == "padding left" and "attention_mask" not in make_inputs(architecture):
            row.outcomes[name] = "-"
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(row)
            row.outcomes[name] = "yes"
        except NotImplementedError:
            row.outcomes[name] = "-"
        except Exception as error:  # an exception is a result of the check
            row.outcomes[name] = " ".join(str(error).split())[:90] or type(error).__name__
    return row
