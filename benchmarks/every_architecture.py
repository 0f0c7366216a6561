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
"""Tokens of an input, of a prompt, and generated after it: each more than any window or top-k of the configs."""
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
    """exact, warned, not built, no attention, or wrong."""
    why: str = ""
    layers: int = 0
    left_out: int = 0
    difference: float = 0.0
    unmasked: list[str] = field(default_factory=list)
    """Records in which the fully masked input has weights, or a mask that allows a key."""
    checks: dict[str, str] = field(default_factory=dict)
    """By check: yes, - (not applicable), or the problem."""


def model_names() -> list[str]:
    """Return all model types of the installed transformers."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return list(CONFIG_MAPPING_NAMES)


def find_classes(config: Any) -> list[Any]:
    """Return the model classes for a config, those that generate first."""
    from transformers import PreTrainedModel
    from transformers.models.auto import modeling_auto

    first: tuple[str, ...] = ()
    if getattr(config, "is_encoder_decoder", False):
        first = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
    elif not getattr(config, "is_decoder", True):
        first = ("MASKED_LM",)
    every = []
    for name in (*first, *MAPPINGS):
        mapping = getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING" if name else "MODEL_MAPPING")
        if type(config) in mapping:
            found = mapping[type(config)]
            every.append(found[0] if isinstance(found, tuple) else found)
    module = inspect.getmodule(type(config))
    assert module is not None
    try:
        code = __import__(module.__name__.replace("configuration_", "modeling_"), fromlist=["x"])
    except ImportError:
        return every
    for kind in vars(code).values():
        model = inspect.isclass(kind) and issubclass(kind, PreTrainedModel) and "PreTrained" not in kind.__name__
        if model and kind.config_class is type(config):
            every.append(kind)
    return list(dict.fromkeys(every))


@cache
def choose_class(name: str) -> Any:
    """Return the first class that builds a small model of a type; raises the error of the last one."""
    error: Exception = NotImplementedError("no class of models reads it")
    for kind in find_classes(tiny_config(name)):
        try:
            with torch.device("meta"):
                size = sum(parameter.numel() for parameter in kind(tiny_config(name)).parameters())
            if size <= MOST:
                return kind
            error = NotImplementedError(f"{size:,} parameters in its smallest configuration")
        except Exception as raised:
            error = raised
    raise error


def build(name: str, implementation: str = "") -> nn.Module:
    """Build a small model with fixed random weights, large enough that heads differ."""
    kind = choose_class(name)
    options = {"attn_implementation": implementation} if implementation else {}
    torch.manual_seed(0)
    model: nn.Module = kind._from_config(tiny_config(name), **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.2 * (parameter[0].numel()) ** -0.5)
            elif not torch.isfinite(parameter).all():
                parameter.zero_()
    return model


def find_implementation(model: nn.Module) -> str:
    """Return the attention implementation that a model chose."""
    return str(getattr(model.config, "_attn_implementation", "") or "eager")


def make_inputs(model: Any, masked: str = "") -> Iterator[dict[str, Any]]:
    """Yield possible inputs of a model, the likeliest first; `masked`: "", "right", "left" or "row"."""
    generator = torch.Generator().manual_seed(1)
    taken = inspect.signature(model.forward).parameters
    config = model.config

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    if "input_ids" in taken:
        tokens = torch.randint(20, 70, (2, LENGTH), generator=generator)
        there = torch.ones_like(tokens)
        if masked == "row":
            there[1] = 0
        elif masked:
            there[1, slice(-3, None) if masked == "right" else slice(3)] = 0
        given: dict[str, Any] = {"input_ids": tokens}
        if "attention_mask" in taken:
            given["attention_mask"] = there
        if "decoder_input_ids" in taken and getattr(config, "is_encoder_decoder", False):
            given["decoder_input_ids"] = torch.randint(20, 70, (2, 11), generator=generator)
        yield given
        size = _size(config)
        yield given | {"pixel_values": numbers(2, 3, size, size)}
        yield given | {"pixel_values": numbers(2, 4, 3, size, size)}
        yield given | {"bbox": torch.zeros(2, LENGTH, 4, dtype=torch.long)}
        yield {"input_ids": tokens.unsqueeze(-1).expand(-1, -1, 4).contiguous()}
        yield {"input_ids": tokens}
        yield given | {"decoder_input_ids": torch.randint(20, 70, (2, 11), generator=generator)}
    if masked:
        return
    size = _size(config)
    channels = int(getattr(config, "num_channels", 3) or 3)
    if "pixel_values" in taken:
        yield {"pixel_values": numbers(2, channels, size, size)}
        yield {"pixel_values": numbers(2, 8, channels, size, size)}
        patch = int(getattr(config, "patch_size", 8))
        yield {"pixel_values": numbers(2, 16, channels * patch * patch)}
        frames = int(getattr(config, "num_frames", 4) or 4)
        yield {"pixel_values": numbers(2, frames, channels, size, size)}
        yield {"pixel_values": numbers(2, channels, 4 * size, 4 * size)}
    if "flattened_patches" in taken:
        width = channels * config.patch_size**2 + 2 if hasattr(config, "patch_size") else 2 + 3 * 64
        yield {"flattened_patches": numbers(2, 16, width).abs().clamp(max=15)}
    if "pixel_values_videos" in taken:
        yield {"pixel_values_videos": numbers(2, 4, channels, size, size)}
    for name in ("input_features", "input_values", "audio_values"):
        if name in taken:
            more = {}
            if "decoder_input_ids" in taken:
                more = {"decoder_input_ids": torch.randint(20, 70, (2, 11), generator=generator)}
            bins = int(getattr(config, "num_mel_bins", 0) or getattr(config, "input_feat_per_channel", 0) or 80)
            for shape in ((2, bins, 64), (2, 64, bins), (2, 6400), (2, 1, 6400), (2, bins, 256)):
                yield {name: numbers(*shape)} | more
    for name in ("hidden_states", "inputs_embeds", "context"):
        if name in taken:
            width = int(getattr(config, "hidden_size", 64) or 64)
            yield {name: numbers(2, LENGTH, width)}
    if "hidden_states" in taken and "grid_thw" in taken:
        patch = config.in_channels if hasattr(config, "in_channels") else 3
        width = patch * getattr(config, "temporal_patch_size", 2) * config.patch_size**2
        yield {"hidden_states": numbers(32, width), "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]])}
    if "past_values" in taken:
        steps = int(getattr(config, "context_length", 24))
        yield {"past_values": numbers(2, steps, int(getattr(config, "num_input_channels", 1) or 1))}


def _size(config: Any) -> int:
    for each in (config, getattr(config, "vision_config", None)):
        size = getattr(each, "image_size", None)
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
        self.found: list[tuple[str, Tensor]] = []

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
                self.found.append((name, output.detach()))
        elif function is F.scaled_dot_product_attention:
            self.found.append((name, _sdpa_weights(*args, **kwargs)))
        elif function is F.multi_head_attention_forward:
            given = dict(zip(inspect.signature(function).parameters, args, strict=False)) | kwargs
            given |= {"need_weights": True, "average_attn_weights": False}
            weights = function(**given)[1]
            assert weights is not None
            self.found.append((name, weights))
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
    for each in _layouts(reference, weights):
        seen = (weights != 0).any(-1, keepdim=True)  # fully masked rows are zero in a record
        best = min(best, float((weights - each.nan_to_num(0.0) * seen).abs().max()))
    return best


def _layouts(reference: Tensor, like: Tensor) -> Iterator[Tensor]:
    """Yield a reference as (B, H, Tq, Tk), from folded heads, groups, weights with a sink, or windows."""
    keys = like.shape[-1]
    banded = reference.dim() == 4 and reference.shape[2] == like.shape[1] and reference.shape[1] >= keys > 1
    if banded and like.shape[2] == keys:
        yield _expand_windows(reference, like)
    for each in (reference, reference[..., :-1], reference[..., 1:]):
        if each.shape[-1] == keys and each.numel() == like.numel():
            yield each.reshape(like.shape)
            if each.dim() == 4:
                yield each.transpose(1, 2).reshape(like.shape)
            if each.dim() == 5:
                yield each.reshape(like.shape)


def _expand_windows(bands: Tensor, like: Tensor) -> Tensor:
    """Return weights (B, H, T, T) from windows (B, T', H, W), T' >= T; window t begins at key t - W // 2."""
    steps, width = like.shape[2], bands.shape[3]
    whole = torch.zeros(*like.shape[:3], steps + width)
    for query in range(steps):
        whole[:, :, query, query : query + width] = bands[:, query]
    return whole[..., width // 2 : width // 2 + like.shape[3]]


def split_streams(name: str, reference: Tensor, records: Any) -> list[Tensor]:
    """Return the parts of a reference with their own records: ProphetNet has several streams in a softmax."""
    count = sum(each.startswith(f"{name}.stream") for each in records)
    if not count:
        return [reference]
    if reference.dim() == 5:
        return list(reference.unbind(1))
    queries = records[name].weights.shape[2] if name in records else reference.shape[2]
    return list(reference.split(queries, dim=2))


def is_attention(name: str, weights: Tensor, batch: int) -> bool:
    """Return whether the result of a softmax is over keys, and not over experts."""
    if re.search(r"router|gate|expert|moe\b|_hc$", name.rpartition(".")[2]):
        return False
    return weights.dim() > 3 or (len(weights) > batch and len(weights) % batch == 0)


def find_outputs(output: Any) -> list[Tensor]:
    """Return the floating-point tensors in a model's output, without caches and weights."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if hasattr(output, "items"):
        return [
            one
            for key, each in output.items()
            if "attentions" not in key and "past" not in key and "cache" not in key
            for one in find_outputs(each)
        ]
    if isinstance(output, tuple | list):
        return [one for each in output for one in find_outputs(each)]
    return []


class WrongError(Exception):
    """A record or an output differs from the reference."""


def first_accepted_inputs(model: nn.Module, masked: str = "") -> dict[str, Any]:
    """Return the first inputs that a model accepts; raises its first error if it accepts none."""
    errors = []
    for given in make_inputs(model, masked):
        try:
            with torch.no_grad():
                torch.manual_seed(0)
                model(**given)
            return given
        except Exception as error:
            errors.append(error)
    if not errors:
        raise NotImplementedError(
            f"no inputs are known for {sorted(inspect.signature(model.forward).parameters)[:6]}"
        )
    raise errors[0]


def run(model: nn.Module, given: dict[str, Any]) -> Any:
    """Run a model with fixed random numbers."""
    torch.manual_seed(0)
    with torch.no_grad():
        return model(**given)


def compare_outputs(plain: Any, recorded: Any) -> None:
    """Raise `WrongError` if the outputs differ by more than rounding."""
    for one, other in zip(find_outputs(plain), find_outputs(recorded), strict=False):
        scale = max(float(one.nan_to_num(0, 0, 0).abs().max()) if one.numel() else 0, 1.0)
        if one.shape != other.shape or not torch.allclose(
            one, other, atol=CLOSE * scale, rtol=1e-4, equal_nan=True
        ):
            off = float((one - other).abs().max()) if one.shape == other.shape else float("nan")
            raise WrongError(f"the output is off by {off:.1g}")


def compare(result: Result, records: Any, references: list[tuple[str, Tensor]], said: str, batch: int) -> None:
    """Match records and references; a warning must name each missing one."""
    left = dict(records)
    unmatched = []
    parts = [(name, part) for name, each in references for part in split_streams(name, each, records)]
    for name, reference in parts:
        near = {each: distance(record, reference) for each, record in left.items()}
        best = min(near, key=lambda each: near[each], default="")
        if best and near[best] <= CLOSE:
            result.difference = max(result.difference, near[best])
            del left[best]
        elif is_attention(name, reference, batch):
            near = {each: distance(record, reference) for each, record in records.items()}
            if not any(value <= CLOSE for value in near.values()):
                unmatched.append(name)
    if not records and "nothing was recorded" in said:
        return
    wrong = [name for name in left if name not in said]
    named = said + " ".join(getattr(records, "left_out", {}))
    silent = [
        name
        for name in unmatched
        if name
        and name not in named
        and not any(name.startswith(each) or each.startswith(name) for each in getattr(records, "left_out", {}))
    ]
    if wrong:
        best = min((distance(records[wrong[0]], each) for _, each in references), default=float("nan"))
        raise WrongError(
            f"{len(wrong)} records equal no softmax, {wrong[0]} {tuple(records[wrong[0]].weights.shape)} is off"
            f" by {best:.1g}"
        )
    if silent:
        raise WrongError(f"silently missing: {silent[0]} ({len(silent)})")


def make_references(
    name: str, given: dict[str, Any], implementation: str = ""
) -> tuple[list[tuple[str, Tensor]], Any]:
    """Return the weights of a copy of the model, and its output."""
    model = build(name, implementation)
    watch = Softmaxes(model)
    with watch.watching():
        output = run(model, given)
    return watch.found, output


def check_weights(result: Result, masked: str) -> None:
    """Check weights and outputs for inputs longer than any window or top-k."""
    model = build(result.name)
    try:
        given = first_accepted_inputs(model, masked)
    except Exception as error:
        raise NotImplementedError from error  # the model takes no mask
    if masked and "attention_mask" not in given:
        raise NotImplementedError
    model = build(result.name)
    plain = run(model, given)
    references, _ = make_references(result.name, given)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with regard.record(model) as records:
            output = run(model, given)
    said = " ".join(str(each.message) for each in caught)
    compare_outputs(plain, output)
    result.layers = len(records)
    result.left_out = len(getattr(records, "left_out", {}))
    batch = len(next(iter(given.values())))
    compare(result, records, references, said, batch)
    if masked == "row":
        for name, record in records.items():
            if record.kind == "cross" or len(record.weights) != batch or name.partition("#")[0] in said:
                continue
            blind = record.mask is not None and not record.mask.expand_as(record.weights)[1].any()
            if record.weights.shape[-1] == LENGTH and not (blind and not record.weights[1].any()):
                result.unmasked.append(name)
    if (
        not records
        and references
        and any(is_attention(n, w, batch) for n, w in references)
        and "nothing was recorded" not in said
    ):
        raise WrongError("nothing recorded, nothing said")
    if "nothing was recorded" in said:
        result.why = "nothing is recorded, and a warning says so"
    elif "not recorded: " in said:
        result.why = said.partition("not recorded: ")[2].partition(" with weights")[0]


def check_implementation(result: Result, implementation: str) -> None:
    """Check weights and outputs with one implementation."""
    try:
        model = build(result.name, implementation)
    except ValueError as error:
        raise NotImplementedError from error
    given = first_accepted_inputs(build(result.name))
    try:
        plain = run(model, given)
    except Exception as error:  # the model does not run with this implementation
        raise NotImplementedError from error
    references, _ = make_references(result.name, given, implementation)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with regard.record(model) as records:
            output = run(model, given)
    compare_outputs(plain, output)
    said = " ".join(str(each.message) for each in caught)
    compare(result, records, references, said, len(next(iter(given.values()))))


def check_generation(result: Result, **options: Any) -> None:
    """Compare the rows of generated steps, beyond the window, with one pass without a cache."""
    model: Any = build(result.name)
    if (
        not getattr(model, "can_generate", lambda: False)()
        or "input_ids" not in inspect.signature(model.forward).parameters
    ):
        raise NotImplementedError
    given = first_accepted_inputs(model)
    pair = getattr(model.config, "is_encoder_decoder", False)
    prompt = {
        key: each[:, :PROMPT] if key in ("input_ids", "attention_mask") and not pair else each
        for key, each in given.items()
        if key != "decoder_input_ids"
    }
    if prompt["input_ids"].dim() > 2:
        raise NotImplementedError
    ways = {"min_new_tokens": NEW, "max_new_tokens": NEW, "do_sample": False} | options
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            expected = model.generate(**prompt, **ways)
            steps = model.generate(**prompt, **ways | {"return_dict_in_generate": True, "output_logits": True})
    except Exception as error:
        raise NotImplementedError from error  # not a fault of recording
    model = build(result.name)
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.no_grad(), regard.record(model) as records:
            sequences = model.generate(**prompt, **ways)
    if not isinstance(sequences, Tensor) or not isinstance(expected, Tensor):
        raise NotImplementedError
    if not torch.equal(expected, sequences):
        raise WrongError("generates another sequence while it is recorded")
    read = sequences[:, :-1]
    if pair:
        whole = given | {"decoder_input_ids": read}
    else:
        whole = {
            key: each for key, each in given.items() if key not in ("decoder_input_ids", "attention_mask")
        } | {"input_ids": read}
    if "use_cache" in inspect.signature(model.forward).parameters or any(
        p.kind is p.VAR_KEYWORD for p in inspect.signature(model.forward).parameters.values()
    ):
        whole["use_cache"] = False
    try:
        references, at_once = make_references(result.name, whole)
    except Exception as error:  # the model cannot read its whole result in one pass
        raise NotImplementedError from error
    told = torch.stack(steps.logits, dim=1)
    if told.shape[0] == len(read) and not torch.allclose(told, at_once.logits[:, -NEW:], atol=1e-3, rtol=1e-3):
        raise NotImplementedError  # with a cache, the model computes something else
    said = " ".join(str(each.message) for each in caught)
    if "no steps" in said:
        result.why = said.partition(": ")[0] + ", so that columns of generated steps do not match"
    compare(result, records, references, said, len(read))


CHECKS: dict[str, Callable[[Result], None]] = {
    "plain": lambda result: check_weights(result, ""),
    "right": lambda result: check_weights(result, "right"),
    "left": lambda result: check_weights(result, "left"),
    "row": lambda result: check_weights(result, "row"),
    "eager": lambda result: check_implementation(result, "eager"),
    "generate": lambda result: check_generation(result),
}


def examine(name: str) -> Result:
    """Build one architecture, and run all checks on it."""
    result = Result(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = build(name)
            result.kind, result.family = type(model).__name__, type(model).__module__.split(".")[2]
            given = first_accepted_inputs(model)
            references, _ = make_references(name, given)
        except Exception as error:
            result.status, result.why = "not built", f"{type(error).__name__}: {_line(error)}"
            return result
        batch = len(next(iter(given.values())))
        if not any(is_attention(each, weights, batch) for each, weights in references):
            result.status, result.why = "no attention", "it computes no softmax over keys"
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
    wrong = {check: each for check, each in result.checks.items() if each not in ("yes", "-")}
    result.status = "wrong" if wrong else "warned" if result.why else "exact"
    return result


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:150]
