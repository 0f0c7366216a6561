"""Find the PyTorch module of a model inside wrappers (PEFT, `DataParallel`, `torch.compile`).

This file also counts parameters, handles offloaded weights, and makes randomly initialized copies.
"""

import copy
import inspect
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import nn

from regard.errors import InputError, shorten

TRANSFORMERS = "transformers.modeling_utils"
"""Module of the base class of transformers models."""


def resolve_module(model: Any, modules: str | None = None) -> tuple[nn.Module, str | None]:
    """Return the module of a model, and the name pattern of modules through which its weights pass.

    `model`: a module, a run, or the result of `look`. Raises `InputError` for any other value.
    """
    if isinstance(model, nn.Module):
        return model, modules
    module = getattr(model, "model", None)
    if not isinstance(module, nn.Module):
        value = f"{type(model).__name__} {shorten(repr(model))}"
        raise InputError(f"model is {value}: give a torch module, a run, or a result of regard.look")
    named = getattr(model, "modules", None)
    return module, modules or (named if isinstance(named, str) else None)


def is_transformers_model(module: nn.Module) -> bool:
    """Return whether a module is a transformers model, without importing transformers."""
    cls: Any = type(module)
    return _inherits(cls, TRANSFORMERS, "PreTrainedModel")


# A recording asks for every module of a model. The answer for a class never changes: a class that exists before
# transformers or peft is imported does not inherit from their classes.
@cache
def _inherits(cls: Any, library: str, *names: str) -> bool:
    imported = sys.modules.get(library)
    return imported is not None and issubclass(cls, tuple(getattr(imported, name) for name in names))


def parameter_names(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the parameters of a module's `forward`."""
    cls: Any = type(module)
    return _forward_parameters(cls)


@cache
def _forward_parameters(cls: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(cls.forward).parameters)[1:]


def is_peft_model(module: nn.Module) -> bool:
    """Return whether a module is a PEFT model, without importing peft."""
    cls: Any = type(module)
    return _inherits(cls, "peft", "PeftModel", "PeftMixedModel")


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside wrappers.

    A PEFT model with a learned prompt is not unwrapped, because the prompt belongs to the wrapper. Other adapters
    are inside the layers of the inner model.
    """
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        elif is_peft_model(model) and not prompt_length([model]):
            model = find_base_model(model)
        else:
            return model


def find_base_model(model: nn.Module) -> nn.Module:
    """Return the model inside PEFT adapters, or the model itself if it has no adapters."""
    if not is_peft_model(model):
        return model
    wrapper: Any = model
    base: nn.Module = wrapper.base_model if prompt_length([model]) else wrapper.base_model.model
    return base


def prompt_length(modules: Iterable[Any]) -> int:
    """Return the number of learned steps that PEFT adds before every input (prefix or prompt tuning)."""
    for module in filter(is_peft_model, modules):
        config: Any = getattr(module, "active_peft_config", None)
        if getattr(config, "is_prompt_learning", False):
            return int(config.num_virtual_tokens)
    return 0


def find_device(model: nn.Module) -> torch.device:
    """Return the device on which a model expects its inputs.

    Hooks of accelerate load offloaded weights and move inputs.
    """
    for parameter in model.parameters():
        if parameter.device.type != "meta":
            return parameter.device
    return torch.device("cpu")


def check_weights(model: nn.Module) -> None:
    """Raise `InputError` for a model on the meta device, unless hooks of accelerate load its weights."""
    for name, module in model.named_modules():
        missing = any(parameter.is_meta for parameter in module.parameters(recurse=False))
        if missing and not hasattr(module, "_hf_hook"):
            raise InputError(
                f"{type(model).__name__} has no weights: {name or 'it'} is on the meta device; load the weights "
                f"with from_pretrained"
            )


def check_prunable(model: nn.Module) -> None:
    """Raise `InputError` for a model with adapters or offloaded weights, whose heads cannot be removed."""
    if any(hasattr(module, "base_layer") or is_peft_model(module) for module in model.modules()):
        raise InputError(
            f"{type(model).__name__} has PEFT adapters: merge the adapters first, model = model.merge_and_unload()"
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise InputError(f"{type(model).__name__} has offloaded weights: load it without device_map")


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def random_init(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy of a model with initial parameters, as an untrained baseline.

    If the class cannot draw initial parameters, the parameters of the model are shuffled.
    """
    config, cls = getattr(model, "config", None), type(model)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if config is not None and hasattr(cls, "_from_config"):
            transformers_class: Any = cls
            initial: nn.Module = transformers_class._from_config(copy.deepcopy(config))
            return initial
        shuffled = copy.deepcopy(model)
        for parameter in shuffled.parameters():
            order = torch.randperm(parameter.numel())
            parameter.data = parameter.data.flatten()[order].reshape(parameter.shape)
        return shuffled
