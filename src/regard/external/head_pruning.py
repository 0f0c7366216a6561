"""Remove heads of a transformers model permanently, and save the smaller model in a folder.

After every removal, the output of the model must equal its output with the heads disabled. Otherwise the heads
are restored, and an error names the layer.
"""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.activations.forward_tracker import modules_by_name
from regard.activations.modules import check_prunable, count_parameters
from regard.activations.weights import intervene
from regard.arguments import public
from regard.errors import InputError
from regard.external import shrinking
from regard.external.shrinking import (
    FUSED,
    KEYS,
    OUTPUTS,
    QUERIES,
    VALUES,
    find_part,
    give_own_biases,
    projection_width,
    shrink,
)
from regard.interpret.importance import Pruned, prune_heads
from regard.io import new_folder, write_file
from regard.result import to_plain
from regard.viz.subject import Layer

KEPT = "kept_heads"
"""Name of the config entry that lists the remaining heads."""
CODE = "modeling_pruned"
"""Name of the Python module in the folder that builds the pruned model."""
TOLERANCE = 1e-3
"""Largest accepted difference between outputs with removed and with disabled heads, relative to the largest."""


class PrunableLayer(NamedTuple):
    """A layer whose heads can be removed."""

    layer: nn.Module
    output_name: str
    output: nn.Module
    heads: int

    @property
    def head_groups(self) -> list[list[int]]:
        """Groups of heads that share keys; the heads of a group can only be removed together."""
        values = find_part(self.layer, VALUES)
        width = projection_width(self.output, 1) // self.heads
        size = 1 if values is None else self.heads * width // projection_width(values, 0)
        return [list(range(first, first + size)) for first in range(0, self.heads, size)]


def prunable_layers(model: nn.Module, layers: Sequence[Layer]) -> dict[str, PrunableLayer]:
    """Return the layers whose heads can be removed, judged by the names of their submodules."""
    modules = modules_by_name(model)
    prunable = {}
    for layer in layers:
        name = layer.name
        if name not in modules or (output_name := find_output(modules, name)) is None:
            continue
        module, output = modules[name], modules[output_name]
        separate = all(find_part(module, names) is not None for names in (QUERIES, KEYS, VALUES))
        is_known = separate or find_part(module, [FUSED]) is not None
        if is_known and projection_width(output, 1) % layer.heads == 0:
            prunable[name] = PrunableLayer(module, output_name, output, layer.heads)
    return prunable


def find_output(modules: Mapping[str, nn.Module], name: str) -> str | None:
    """Return the name of a layer's output projection, which is inside the layer or next to it."""
    for parent in (name, name.rpartition(".")[0]):
        for part in OUTPUTS:
            output_name = f"{parent}.{part}"
            if output_name in modules and getattr(modules[output_name], "weight", None) is not None:
                return output_name
    return None


def remove_heads(
    model: nn.Module, layers: Sequence[Layer], name: str, kept: Sequence[int], answer: Callable[[], Tensor]
) -> None:
    """Remove all heads of a layer except `kept`; `answer`: a function that runs the model and returns its output.

    Raises `InputError`, and leaves the model unchanged, if removing heads changes the output more than disabling.
    """
    prunable = prunable_layers(model, layers)
    if name not in prunable:
        raise InputError(f"heads of {name!r} cannot be removed: choose {', '.join(prunable) or 'another model'}")
    with intervene(model, name, heads=[head for head in range(prunable[name].heads) if head not in kept]):
        expected = answer()
    give_own_biases(model)
    layer = prunable[name]
    modules = [layer.layer, layer.output, *layer.layer.modules()]
    # Parameters and counts, such as the number of heads, are restored if the outputs differ.
    before = [
        (dict(module._parameters), {name: value for name, value in vars(module).items() if isinstance(value, int)})
        for module in modules
    ]
    shrink(layer.layer, layer.output, layer.heads, kept)
    try:
        difference = float((answer() - expected).abs().max() / expected.abs().max().clamp(min=1))
    except (RuntimeError, ValueError, AttributeError, TypeError):
        difference = float("inf")
    if not difference < TOLERANCE:  # also true for NaN
        for module, (parameters, counts) in zip(modules, before, strict=True):
            module._parameters.update(parameters)
            vars(module).update(counts)
        raise InputError(
            f"heads of {name!r} cannot be removed from {type(model).__name__}: its output differs from"
            " the output with these heads disabled; disable the heads instead"
        )


def save_pruned(
    model: Any, before: Sequence[Layer], left: Mapping[str, Sequence[int]], after: Sequence[Layer], folder: Path
) -> None:
    """Save a pruned model in the format of transformers; `left`: the remaining heads of each layer in `before`."""
    config, heads = model.config, {layer.name: layer.heads for layer in before}
    prunable = prunable_layers(model, after)
    kept = copy.deepcopy(getattr(config, KEPT, None) or {})
    for name, remaining in left.items():
        # After an earlier pruning, the heads are numbered differently from those of the original model.
        earlier = kept.get(name) or {"kept": range(heads[name]), "heads": heads[name]}
        kept[name] = {
            "output": prunable[name].output_name,
            "heads": earlier["heads"],
            "kept": [earlier["kept"][head] for head in remaining],
        }
    if getattr(config, KEPT, None) is None and _update_config(config, left, before, after):
        model.save_pretrained(folder)
        return
    setattr(config, KEPT, kept)
    class_name = _original_class(model)
    config.auto_map = dict.fromkeys(auto_class_names(model), f"{CODE}.Pruned{class_name}")
    model.save_pretrained(folder)
    # The code from which transformers builds the pruned model
    code = (
        f"{inspect.getsource(shrinking)}\n\nfrom transformers import {class_name}  # noqa: E402\n\n\n"
        f"class Pruned{class_name}({class_name}):\n"
        f'    """{class_name}, with the heads that its config keeps."""\n\n'
        f"    def __init__(self, config, *args, **options):\n"
        f"        super().__init__(config, *args, **options)\n"
        f"        shrink_model(self, config.{KEPT})\n"
    )
    write_file(folder / f"{CODE}.py", code.encode())


def _update_config(
    config: Any, left: Mapping[str, Sequence[int]], before: Sequence[Layer], after: Sequence[Layer]
) -> bool:
    """Set the number of heads in a config; returns whether the config can describe the remaining heads.

    A config can describe the heads if every layer has the same number of heads and the config stores the head width.
    """
    counts = {layer.heads for layer in after}
    if len(counts) != 1 or len(left) != len(before) or getattr(config, "head_dim", None) is None:
        return False
    groups, heads = getattr(config, "num_key_value_heads", None), config.num_attention_heads
    config.num_attention_heads = counts.pop()
    if groups is not None:
        config.num_key_value_heads = groups * config.num_attention_heads // heads
    return True


def _original_class(model: Any) -> str:
    return type(model).__name__.removeprefix("Pruned")


def auto_class_names(model: Any) -> list[str]:
    """Return the auto classes of transformers that build a model; raises `InputError` if there are none."""
    from transformers.models.auto import modeling_auto

    class_name, names = _original_class(model), []
    for name, auto_class in vars(modeling_auto).items():
        mapping = getattr(auto_class, "_model_mapping", None)
        if name.startswith("AutoModel") and mapping is not None and type(model.config) in mapping:
            entry = mapping[type(model.config)]
            classes = entry if isinstance(entry, tuple) else (entry,)
            names += [name] * (class_name in [cls.__name__ for cls in classes])
    if not names:
        raise InputError(
            f"{class_name} belongs to no auto class of transformers: a pruned model cannot be saved;"
            " disable heads instead"
        )
    return names


def pruned_class(cls: Any) -> Any:
    """Return the class that loads the weights of a pruned model."""

    def build(self: Any, config: Any, *args: Any, **options: Any) -> None:
        cls.__init__(self, config, *args, **options)
        shrinking.shrink_model(self, getattr(config, KEPT))

    return type(f"Pruned{cls.__name__}", (cls,), {"__init__": build, "__module__": cls.__module__})


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class PrunedExternalModel(Pruned):
    """An external model after pruning, with the removed heads and the change of the loss."""

    subject: Any
    """The pruned model."""

    def json(self) -> dict[str, Any]:
        figures = {name: to_plain(value) for name, value in vars(self).items() if name != "subject"}
        return {**figures, "folder": self.subject.where}


def prune_model(whole: Any, heads: int, output: Path, *, samples: int, overwrite: bool) -> PrunedExternalModel:
    """Prune a copy of an `ExternalModel` with at most `samples` inputs. See `ExternalModel.prune`."""
    if output.exists() and not overwrite:
        raise InputError(f"{str(output)!r} exists already: choose another folder, or set overwrite=True")
    check_prunable(whole.model)
    subject = dataclasses.replace(copy.deepcopy(whole), prepared=tuple(whole.unseen(samples, 0)))
    with new_folder(output) as folder:
        removal = prune_heads(subject, heads)
        save_pruned(subject.model, whole.layers, removal.left, subject.layers, folder)
        if hasattr(whole.tokenizer, "save_pretrained"):
            whole.tokenizer.save_pretrained(folder)
    return PrunedExternalModel(
        subject=dataclasses.replace(subject, name=output.name, where=str(output), prepared=None),
        removed=removal.removed,
        samples=removal.before.samples,
        measure=whole.traits.measure,
        loss_before=removal.before.loss,
        loss_after=removal.after.loss,
        parameters_before=count_parameters(whole.model),
        parameters_after=count_parameters(subject.model),
    )
