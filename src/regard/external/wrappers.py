"""Models in a wrapper (adapters of PEFT, `DataParallel`, compiled ones), and weights that lie elsewhere."""

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from regard.errors import InputError, shorten


def module_of(model: Any, at: str | None = None) -> tuple[nn.Module, str | None]:
    """Return the module of a model, and the modules (`at`) that its weights pass.

    `model`: a module, a run, or what `look` returns. Raises `InputError` for anything else.
    """
    if isinstance(model, nn.Module):
        return model, at
    module = getattr(model, "model", None)
    if not isinstance(module, nn.Module):
        kind = f"{type(model).__name__} {shorten(repr(model))}"
        raise InputError(f"model is {kind}: give a torch module, a run, or what regard.look returns")
    return module, at or getattr(model, "at", None)


def is_adapted(module: nn.Module) -> bool:
    """Say whether a module is a model of PEFT's; peft is not imported for that."""
    peft = sys.modules.get("peft")
    return peft is not None and isinstance(module, peft.PeftModel | peft.PeftMixedModel)


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model that runs inside of wrappers. One of PEFT's that learned a prompt stays as it is: the
    prompt is part of its wrapper. Other adapters sit in the layers of the inner model."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        elif is_adapted(model) and not virtual_tokens([model]):
            model = base_of(model)
        else:
            return model


def base_of(model: nn.Module) -> nn.Module:
    """Return the model under the adapters of PEFT, or the model itself where there are none."""
    if not is_adapted(model):
        return model
    inner: Any = model
    base: nn.Module = inner.base_model if virtual_tokens([model]) else inner.base_model.model
    return base


def virtual_tokens(modules: Iterable[Any]) -> int:
    """Return the number of learned steps that PEFT puts before every input: prefix tuning, prompt tuning."""
    for module in filter(is_adapted, modules):
        config: Any = getattr(module, "active_peft_config", None)
        if getattr(config, "is_prompt_learning", False):
            return int(config.num_virtual_tokens)
    return 0


def device_of(model: nn.Module) -> torch.device:
    """Return where inputs of a model belong. Hooks of accelerate bring offloaded weights, and move inputs."""
    for parameter in model.parameters():
        if parameter.device.type != "meta":
            return parameter.device
    return torch.device("cpu")


def check_weights(model: nn.Module) -> None:
    """Raise `InputError` for a model on the meta device, unless hooks of accelerate bring its weights."""
    for name, module in model.named_modules():
        missing = any(each.is_meta for each in module.parameters(recurse=False))
        if missing and not hasattr(module, "_hf_hook"):
            raise InputError(
                f"{type(model).__name__} has no weights: {name or 'it'} is on the meta device; load them, as"
                " from_pretrained does"
            )


def check_whole(model: nn.Module) -> None:
    """Raise `InputError` for a model of which no part can be taken out for good."""
    if any(hasattr(each, "base_layer") or is_adapted(each) for each in model.modules()):
        raise InputError(
            f"{type(model).__name__} has adapters of PEFT's: merge them first, model = model.merge_and_unload()"
        )
    if any(each.is_meta for each in model.parameters()):
        raise InputError(f"{type(model).__name__} has offloaded weights: load it whole, without device_map")
