"""Build, record and check every architecture of the installed transformers, in small sizes.

The reference is independent of Regard: an eager copy of the model runs while a `TorchFunctionMode` stores the
result of each softmax, and the weights of each call of PyTorch's fused kernel (in float64), with the calling
module. Every such tensor must be in the record, or a warning or `records.left_out` must name the module.
"""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from tiny_configs import tiny_config
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import regard

CLOSE = 2e-5
LENGTH, PROMPT, NEW = 13, 7, 6
"""Number of tokens in an input, in a prompt, and in the text generated after the prompt.

Each number exceeds every window and top-k in the configs.
"""
MOST = 20_000_000
"""Largest number of parameters of a small model."""
MAPPINGS = (
    "CAUSAL_LM",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "IMAGE_TEXT_TO_TEXT",
    "MULTIMODAL_LM",
    "",
    "TEXT_TO_WAVEFORM",
    "MASK_GENERATION",
    "KEYPOINT_MATCHING",
    "DEPTH_ESTIMATION",
    "POSE_ESTIMATION",
    "UNIVERSAL_SEGMENTATION",
    "BACKBONE",
)
SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax)


@dataclass
class Result:
    """Results of the checks for one architecture."""

    name: str
    kind: str = ""
    """Class name of the model."""
    family: str = ""
    status: str = ""
    """One of: exact, warned, not built, no attention, wrong."""
    why: str = ""
    layers: int = 0
    left_out: int = 0
    difference: float = 0.0
    unmasked: list[str] = field(default_factory=list)
    """Number of records in which the fully masked input has weights or a mask that allows a key."""
    checks: dict[str, str] = field(default_factory=dict)
    """Result of each check: yes, - (not applicable), or the problem."""


def model_names() -> list[str]:
    """Return all model types of the installed transformers."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return list(CONFIG_MAPPING_NAMES)


def find_classes(config: Any) -> list[Any]:
    """Return the model classes for a config, starting with the classes that can generate."""
    from transformers import PreTrainedModel
    from transformers.models.auto import modeling_auto

    first_mappings: tuple[str, ...] = ()
    if getattr(config, "is_encoder_decoder", False):
        first_mappings = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
    elif not getattr(config, "is_decoder", True):
        first_mappings = ("MASKED_LM",)
    classes = []
    for name in (*first_mappings, *MAPPINGS):
        mapping = getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING" if name else "MODEL_MAPPING")
        if type(config) in mapping:
            entry = mapping[type(config)]
            classes.append(entry[0] if isinstance(entry, tuple) else entry)
    module = inspect.getmodule(type(config))
    assert module is not None
    try:
        modeling = __import__(module.__name__.replace("configuration_", "modeling_"), fromlist=["x"])
    except ImportError:
        return classes
    for cls in vars(modeling).values():
        is_model = inspect.isclass(cls) and issubclass(cls, PreTrainedModel) and "PreTrained" not in cls.__name__
        if is_model and cls.config_class is type(config):
            classes.append(cls)
    return list(dict.fromkeys(classes))


@cache
def choose_class(name: str) -> Any:
    """Return the first class that builds a small model of a type; raises the error of the last class."""
    error: Exception = NotImplementedError("no class of models reads it")
    for cls in find_classes(tiny_config(name)):
        try:
            with torch.device("meta"):
                size = sum(parameter.numel() for parameter in cls(tiny_config(name)).parameters())
            if size <= MOST:
                return cls
            error = NotImplementedError(f"{size:,} parameters in its smallest configuration")
        except Exception as caught:
            error = caught
    raise error


def build(name: str, implementation: str = "") -> nn.Module:
    """Build a small model with random weights from a fixed seed, large enough that heads differ."""
    cls = choose_class(name)
    options = {"attn_implementation": implementation} if implementation else {}
    torch.manual_seed(0)
    model: nn.Module = cls._from_config(tiny_config(name), **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.2 * (parameter[0].numel()) ** -0.5)
            elif not torch.isfinite(parameter).all():
                parameter.zero_()
    return model


def find_implementation(model: nn.Module) -> str:
    """Return the attention implementation that a model selected."""
    return str(getattr(model.config, "_attn_implementation", "") or "eager")


def make_inputs(model: Any, masked: str = "") -> Iterator[dict[str, Any]]:
    """Yield possible inputs of a model, the most likely inputs first; `masked`: "", "right", "left" or
    "row"."""
    generator = torch.Generator().manual_seed(1)
    parameters = inspect.signature(model.forward).parameters
    config = model.config

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    if "input_ids" in parameters:
        tokens = torch.randint(20, 70, (2, LENGTH), generator=generator)
        attention_mask = torch.ones_like(tokens)
        if masked == "row":
            attention_mask[1] = 0
        elif masked:
            attention_mask[1, slice(-3, None) if masked == "right" else slice(3)] = 0
        inputs: dict[str, Any] = {"input_ids": tokens}
        if "attention_mask" in parameters:
            inputs["attention_mask"] = attention_mask
        if "decoder_input_ids" in parameters and getattr(config, "is_encoder_decoder", False):
            inputs["decoder_input_ids"] = torch.randint(20, 70, (2, 11), generator=generator)
        yield inputs
        size = _size(config)
        yield inputs | {"pixel_values": numbers(2, 3, size, size)}
        yield inputs | {"pixel_values": numbers(2, 4, 3, size, size)}
        yield inputs | {"bbox": torch.zeros(2, LENGTH, 4, dtype=torch.long)}
        yield {"input_ids": tokens.unsqueeze(-1).expand(-1, -1, 4).contiguous()}
        yield {"input_ids": tokens}
        yield inputs | {"decoder_input_ids": torch.randint(20, 70, (2, 11), generator=generator)}
    if masked:
        return
    size = _size(config)
    channels = int(getattr(config, "num_channels", 3) or 3)
    if "pixel_values" in parameters:
        yield {"pixel_values": numbers(2, channels, size, size)}
        yield {"pixel_values": numbers(2, 8, channels, size, size)}
        patch = int(getattr(config, "patch_size", 8))
        yield {"pixel_values": numbers(2, 16, channels * patch * patch)}
        frames = int(getattr(config, "num_frames", 4) or 4)
        yield {"pixel_values": numbers(2, frames, channels, size, size)}
        yield {"pixel_values": numbers(2, channels, 4 * size, 4 * size)}
    if "flattened_patches" in parameters:
        width = channels * config.patch_size**2 + 2 if hasattr(config, "patch_size") else 2 + 3 * 64
        yield {"flattened_patches": numbers(2, 16, width).abs().clamp(max=15)}
    if "pixel_values_videos" in parameters:
        yield {"pixel_values_videos": numbers(2, 4, channels, size, size)}
    for name in ("input_features", "input_values", "audio_values"):
        if name in parameters:
            decoder_inputs = {}
            if "decoder_input_ids" in parameters:
                decoder_inputs = {"decoder_input_ids": torch.randint(20, 70, (2, 11), generator=generator)}
            mel_bins = int(getattr(config, "num_mel_bins", 0) or getattr(config, "input_feat_per_channel", 0) or 80)
            for shape in ((2, mel_bins, 64), (2, 64, mel_bins), (2, 6400), (2, 1, 6400), (2, mel_bins, 256)):
                yield {name: numbers(*shape)} | decoder_inputs
    for name in ("hidden_states", "inputs_embeds", "context"):
        if name in parameters:
            width = int(getattr(config, "hidden_size", 64) or 64)
            yield {name: numbers(2, LENGTH, width)}
    if "hidden_states" in parameters and "grid_thw" in parameters:
        patch = config.in_channels if hasattr(config, "in_channels") else 3
        width = patch * getattr(config, "temporal_patch_size", 2) * config.patch_size**2
        yield {"hidden_states": numbers(32, width), "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]])}
    if "past_values" in parameters:
        steps = int(getattr(config, "context_length", 24))
        yield {"past_values": numbers(2, steps, int(getattr(config, "num_input_channels", 1) or 1))}


def _size(config: Any) -> int:
    for part in (config, getattr(config, "vision_config", None)):
        size = getattr(part, "image_size", None)
        if isinstance(size, int):
            return size
        if isinstance(size, list | tuple) and size:
            return int(size[0])
    return 32


class Softmaxes(TorchFunctionMode):
    """Stores the attention weights of every module, independently of Regard."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names = {id(module): name for name, module in model.named_modules()}
        self.running: list[str] = []
        self.captured: list[tuple[str, Tensor]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Store weights inside the block."""
        hooks = [
            nn.modules.module.register_module_forward_pre_hook(self._begin),
            nn.modules.module.register_module_forward_hook(self._end, always_call=True),
        ]
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _begin(self, module: nn.Module, _: Any) -> None:
        around = self.running[-1] if self.running else ""
        self.running.append(self.names.get(id(module), around))  # a module created during the pass has no name

    def _end(self, module: nn.Module, _: Any, __: Any) -> None:
        self.running.pop()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = function(*args, **kwargs)
        name = self.running[-1] if self.running else ""
        if function in SOFTMAXES:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if dim in (-1, output.dim() - 1) and output.dim() > 2:
                self.captured.append((name, output.detach()))
        elif function is F.scaled_dot_product_attention:
            self.captured.append((name, _sdpa_weights(*args, **kwargs)))
        elif function is F.multi_head_attention_forward:
            arguments = dict(zip(inspect.signature(function).parameters, args, strict=False)) | kwargs
            arguments |= {"need_weights": True, "average_attn_weights": False}
            weights = function(**arguments)[1]
            assert weights is not None
            self.captured.append((name, weights))
        return output


def _sdpa_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return the weights of a call of SDPA, computed in float64; a fully masked row is zero."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = query.double() @ key.double().transpose(-2, -1) * (scale or query.shape[-1] ** -0.5)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -torch.inf)
    if attn_mask is not None:
        bias = attn_mask
        if bias.dtype == torch.bool:
            bias = torch.zeros(bias.shape).masked_fill(~bias, -torch.inf)
        scores = scores + bias
    return scores.softmax(-1).nan_to_num(0.0).float()


def distance(record: Any, reference: Tensor) -> float:
    """Return the largest difference of a record from a reference, in the best matching layout."""
    weights = record.weights
    best = float("inf")
    for layout in _layouts(reference, weights):
        attends = (weights != 0).any(-1, keepdim=True)  # fully masked rows are zero in a record
        best = min(best, float((weights - layout.nan_to_num(0.0) * attends).abs().max()))
    return best


def _layouts(reference: Tensor, weights: Tensor) -> Iterator[Tensor]:
    """Yield a reference converted to (B, H, Tq, Tk) from folded heads, groups, sinks or windows."""
    keys = weights.shape[-1]
    banded = reference.dim() == 4 and reference.shape[2] == weights.shape[1] and reference.shape[1] >= keys > 1
    if banded and weights.shape[2] == keys:
        yield _expand_windows(reference, weights)
    for candidate in (reference, reference[..., :-1], reference[..., 1:]):
        if candidate.shape[-1] == keys and candidate.numel() == weights.numel():
            yield candidate.reshape(weights.shape)
            if candidate.dim() == 4:
                yield candidate.transpose(1, 2).reshape(weights.shape)
            if candidate.dim() == 5:  # windows between heads and queries
                yield candidate.transpose(1, 2).reshape(weights.shape)


def _expand_windows(bands: Tensor, weights: Tensor) -> Tensor:
    """Return weights (B, H, T, T) from windows (B, T', H, W), T' >= T; window t begins at key t - W // 2."""
    steps, width = weights.shape[2], bands.shape[3]
    whole = torch.zeros(*weights.shape[:3], steps + width)
    for query in range(steps):
        whole[:, :, query, query : query + width] = bands[:, query]
    return whole[..., width // 2 : width // 2 + weights.shape[3]]


def split_streams(name: str, reference: Tensor, records: Any) -> list[Tensor]:
    """Return the parts of a reference that have separate records: ProphetNet has several streams in a softmax."""
    count = sum(record_name.startswith(f"{name}.stream") for record_name in records)
    if not count:
        return [reference]
    if reference.dim() == 5:
        return list(reference.unbind(1))
    queries = records[name].weights.shape[2] if name in records else reference.shape[2]
    return list(reference.split(queries, dim=2))


def is_attention(name: str, weights: Tensor, batch: int) -> bool:
    """Return whether a softmax was computed over keys, and not over experts."""
    if re.search(r"router|gate|expert|moe\b|_hc$", name.rpartition(".")[2]):
        return False
    return weights.dim() > 3 or (len(weights) > batch and len(weights) % batch == 0)


def find_outputs(output: Any) -> list[Tensor]:
    """Return the floating-point tensors in a model's output, without caches and weights."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if hasattr(output, "items"):
        return [
            tensor
            for key, value in output.items()
            if "attentions" not in key and "past" not in key and "cache" not in key
            for tensor in find_outputs(value)
        ]
    if isinstance(output, tuple | list):
        return [tensor for value in output for tensor in find_outputs(value)]
    return []


class WrongError(Exception):
    """A record or an output differs from the reference."""


def first_accepted_inputs(model: nn.Module, masked: str = "") -> dict[str, Any]:
    """Return the first inputs that a model accepts; raises its first error if the model accepts no inputs."""
    errors = []
    for inputs in make_inputs(model, masked):
        try:
            with torch.no_grad():
                torch.manual_seed(0)
                model(**inputs)
            return inputs
        except Exception as error:
            errors.append(error)
    if not errors:
        raise NotImplementedError(f"no inputs are known for {sorted(inspect.signature(model.forward).parameters)[:6]}")
    raise errors[0]


def run(model: nn.Module, inputs: dict[str, Any]) -> Any:
    """Run a model with a fixed random seed."""
    torch.manual_seed(0)
    with torch.no_grad():
        return model(**inputs)


def compare_outputs(plain: Any, recorded: Any) -> None:
    """Raise `WrongError` if the outputs differ by more than rounding."""
    for expected, actual in zip(find_outputs(plain), find_outputs(recorded), strict=False):
        scale = max(float(expected.nan_to_num(0, 0, 0).abs().max()) if expected.numel() else 0, 1.0)
        if expected.shape != actual.shape or not torch.allclose(
            expected, actual, atol=CLOSE * scale, rtol=1e-4, equal_nan=True
        ):
            difference = float((expected - actual).abs().max()) if expected.shape == actual.shape else float("nan")
            raise WrongError(f"the output is off by {difference:.1g}")


def compare(result: Result, records: Any, references: list[tuple[str, Tensor]], messages: str, batch: int) -> None:
    """Match records and references; a warning must name each reference without a record."""
    unmatched_records = dict(records)
    missing = []
    parts = [(name, part) for name, whole in references for part in split_streams(name, whole, records)]
    for name, reference in parts:
        distances = {key: distance(record, reference) for key, record in unmatched_records.items()}
        nearest = min(distances, key=lambda key: distances[key], default="")
        if nearest and distances[nearest] <= CLOSE:
            result.difference = max(result.difference, distances[nearest])
            del unmatched_records[nearest]
        elif is_attention(name, reference, batch):
            distances = {key: distance(record, reference) for key, record in records.items()}
            if not any(value <= CLOSE for value in distances.values()):
                missing.append(name)
    if not records and "nothing was recorded" in messages:
        return
    extra = [name for name in unmatched_records if name not in messages]
    named = messages + " ".join(getattr(records, "left_out", {}))
    unnamed = [
        name
        for name in missing
        if name
        and name not in named
        and not any(name.startswith(layer) or layer.startswith(name) for layer in getattr(records, "left_out", {}))
    ]
    if extra:
        record = records[extra[0]]
        difference = min((distance(record, reference) for _, reference in references), default=float("nan"))
        raise WrongError(
            f"{len(extra)} records equal no softmax, {extra[0]} {tuple(record.weights.shape)} is off"
            f" by {difference:.1g}"
        )
    if unnamed:
        raise WrongError(f"silently missing: {unnamed[0]} ({len(unnamed)})")


def make_references(
    name: str, inputs: dict[str, Any], implementation: str = ""
) -> tuple[list[tuple[str, Tensor]], Any]:
    """Return the weights of a copy of the model, and its output."""
    model = build(name, implementation)
    softmaxes = Softmaxes(model)
    with softmaxes.watching():
        output = run(model, inputs)
    return softmaxes.captured, output


def check_weights(result: Result, masked: str) -> None:
    """Check weights and outputs for inputs longer than any window or top-k."""
    model = build(result.name)
    try:
        inputs = first_accepted_inputs(model, masked)
    except Exception as error:
        raise NotImplementedError from error  # the model takes no mask
    if masked and "attention_mask" not in inputs:
        raise NotImplementedError
    model = build(result.name)
    plain = run(model, inputs)
    references, _ = make_references(result.name, inputs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with regard.record(model) as records:
            output = run(model, inputs)
    messages = " ".join(str(warning.message) for warning in caught)
    compare_outputs(plain, output)
    result.layers = len(records)
    result.left_out = len(getattr(records, "left_out", {}))
    batch = len(next(iter(inputs.values())))
    compare(result, records, references, messages, batch)
    if masked == "row":
        for name, record in records.items():
            if record.kind == "cross" or len(record.weights) != batch or name.partition("#")[0] in messages:
                continue
            is_masked = record.mask is not None and not record.mask.expand_as(record.weights)[1].any()
            if record.weights.shape[-1] == LENGTH and not (is_masked and not record.weights[1].any()):
                result.unmasked.append(name)
    if (
        not records
        and references
        and any(is_attention(caller, weights, batch) for caller, weights in references)
        and "nothing was recorded" not in messages
        and not records.left_out
    ):
        raise WrongError("no attention is recorded, and there is no warning")
    if "nothing was recorded" in messages:
        result.why = "no attention is recorded, and a warning reports this"
    elif "not recorded: " in messages:
        result.why = messages.partition("not recorded: ")[2].partition(" with weights")[0]


def check_implementation(result: Result, implementation: str) -> None:
    """Check weights and outputs with one implementation."""
    try:
        model = build(result.name, implementation)
    except ValueError as error:
        raise NotImplementedError from error
    inputs = first_accepted_inputs(build(result.name))
    try:
        plain = run(model, inputs)
    except Exception as error:  # the model does not run with this implementation
        raise NotImplementedError from error
    references, _ = make_references(result.name, inputs, implementation)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with regard.record(model) as records:
            output = run(model, inputs)
    compare_outputs(plain, output)
    messages = " ".join(str(warning.message) for warning in caught)
    compare(result, records, references, messages, len(next(iter(inputs.values()))))


def check_generation(result: Result, **options: Any) -> None:
    """Compare the rows of generated tokens, beyond the window, with one pass without a cache."""
    model: Any = build(result.name)
    if (
        not getattr(model, "can_generate", lambda: False)()
        or "input_ids" not in inspect.signature(model.forward).parameters
    ):
        raise NotImplementedError
    inputs = first_accepted_inputs(model)
    is_encoder_decoder = getattr(model.config, "is_encoder_decoder", False)
    prompt = {
        key: value[:, :PROMPT] if key in ("input_ids", "attention_mask") and not is_encoder_decoder else value
        for key, value in inputs.items()
        if key != "decoder_input_ids"
    }
    if prompt["input_ids"].dim() > 2:
        raise NotImplementedError
    settings = {"min_new_tokens": NEW, "max_new_tokens": NEW, "do_sample": False} | options
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            expected = model.generate(**prompt, **settings)
            generation = model.generate(**prompt, **settings | {"return_dict_in_generate": True, "output_logits": True})
    except Exception as error:
        raise NotImplementedError from error  # not a fault of recording
    model = build(result.name)
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.no_grad(), regard.record(model) as records:
            sequences = model.generate(**prompt, **settings)
    if not isinstance(sequences, Tensor) or not isinstance(expected, Tensor):
        raise NotImplementedError
    if not torch.equal(expected, sequences):
        raise WrongError("the model generates another sequence while it is recorded")
    tokens_read = sequences[:, :-1]
    if is_encoder_decoder:
        whole_inputs = inputs | {"decoder_input_ids": tokens_read}
    else:
        whole_inputs = {
            key: value for key, value in inputs.items() if key not in ("decoder_input_ids", "attention_mask")
        } | {"input_ids": tokens_read}
    if "use_cache" in inspect.signature(model.forward).parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(model.forward).parameters.values()
    ):
        whole_inputs["use_cache"] = False
    try:
        references, whole_output = make_references(result.name, whole_inputs)
    except Exception as error:  # the model cannot read its whole result in one pass
        raise NotImplementedError from error
    step_logits = torch.stack(generation.logits, dim=1)
    if step_logits.shape[0] == len(tokens_read) and not torch.allclose(
        step_logits, whole_output.logits[:, -NEW:], atol=1e-3, rtol=1e-3
    ):
        raise NotImplementedError  # with a cache, the model computes another result
    messages = " ".join(str(warning.message) for warning in caught)
    if "keys that are not steps" in messages:
        result.why = messages.partition(": ")[0] + ", so the columns of generated tokens do not match"
    compare(result, records, references, messages, len(tokens_read))


CHECKS: dict[str, Callable[[Result], None]] = {
    "plain": lambda result: check_weights(result, ""),
    "right": lambda result: check_weights(result, "right"),
    "left": lambda result: check_weights(result, "left"),
    "row": lambda result: check_weights(result, "row"),
    "eager": lambda result: check_implementation(result, "eager"),
    "generate": lambda result: check_generation(result),
}


def examine(name: str) -> Result:
    """Build a model of one architecture, and run all checks."""
    result = Result(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = build(name)
            result.kind, result.family = type(model).__name__, type(model).__module__.split(".")[2]
            inputs = first_accepted_inputs(model)
            references, _ = make_references(name, inputs)
        except Exception as error:
            result.status, result.why = "not built", f"{type(error).__name__}: {_line(error)}"
            return result
        batch = len(next(iter(inputs.values())))
        if not any(is_attention(caller, weights, batch) for caller, weights in references):
            result.status, result.why = "no attention", "the model computes no softmax over keys"
            return result
        for check, function in CHECKS.items():
            try:
                function(result)
                result.checks[check] = "yes"
            except NotImplementedError:
                result.checks[check] = "-"
            except WrongError as error:
                result.checks[check] = _line(error)
            except Exception as error:
                result.checks[check] = f"{type(error).__name__}: {_line(error)}"
    faults = {check: outcome for check, outcome in result.checks.items() if outcome not in ("yes", "-")}
    result.status = "wrong" if faults else "warned" if result.why else "exact"
    return result


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:150]
