"""Heads that are taken out of a model of Hugging Face's for good, and the folder of what is left.

Nobody is believed: after heads have gone, the model must answer as it did with them switched off, or they come
back and whoever asked is told.
"""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.attention import short_name
from regard.errors import InputError
from regard.external import shrinking
from regard.external.intervening import intervene
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
from regard.io import write_file
from regard.viz import Layer

KEPT = "kept_heads"
"""What a config says of the heads that are left."""
CODE = "modeling_pruned"
SAME = 1e-3
"""How far from its output with heads switched off a model without them may be, as a share of the largest."""


class PrunableLayer:
    """A layer whose heads can be taken out."""

    def __init__(self, name: str, layer: nn.Module, output_name: str, output: nn.Module, heads: int) -> None:
        self.name, self.layer, self.output_name, self.output, self.heads = name, layer, output_name, output, heads
        values = find_part(layer, VALUES)
        width = projection_width(output, 1) // heads
        self.groups = heads if values is None else projection_width(values, 0) // width

    @property
    def together(self) -> list[list[int]]:
        """Which heads go together: those that share their keys."""
        size = self.heads // self.groups
        return [list(range(group * size, (group + 1) * size)) for group in range(self.groups)]


def prunable_layers(model: nn.Module, layers: Sequence[Layer]) -> dict[str, PrunableLayer]:
    """Return the layers of a model whose heads can be taken out, as far as their parts show."""
    modules = dict(model.named_modules())
    names = {short_name(name): name for name in modules}
    found = {}
    for each in layers:
        name = names.get(each.name)
        if name is None:
            continue
        if (place := _output(modules, name)) is None:
            continue
        layer, output = modules[name], modules[place]
        separate = all(find_part(layer, some) is not None for some in (QUERIES, KEYS, VALUES))
        if (separate or find_part(layer, [FUSED]) is not None) and projection_width(output, 1) % each.heads == 0:
            found[each.name] = PrunableLayer(name, layer, place, output, each.heads)
    return found


def _output(modules: Mapping[str, nn.Module], name: str) -> str | None:
    """Return the name of the projection after a layer's heads: in the layer itself, or beside it."""
    for around in (name, name.rpartition(".")[0]):
        for each in OUTPUTS:
            place = f"{around}.{each}"
            if place in modules and getattr(modules[place], "weight", None) is not None:
                return place
    return None


def prunable_heads(model: nn.Module, layers: Sequence[Layer]) -> dict[str, list[list[int]]]:
    """Return by layer which heads go together, of those that can be taken out."""
    return {name: each.together for name, each in prunable_layers(model, layers).items()}


def remove_heads(
    model: nn.Module, layers: Sequence[Layer], name: str, kept: Sequence[int], answer: Callable[[], Tensor]
) -> None:
    """Leave in a layer only the heads `kept`; `answer`: runs the model, and returns what comes out.

    Raises `InputError`, and leaves all as it was, where the model then answers otherwise than with the others
    switched off.
    """
    found = prunable_layers(model, layers)
    if name not in found:
        raise InputError(f"heads of {name!r} cannot be taken out: choose {', '.join(found) or 'another model'}")
    with intervene(model, name, heads=[head for head in range(found[name].heads) if head not in kept]):
        expected = answer()
    give_own_biases(model)
    removal = Removal(found[name], kept)
    try:
        off = float((answer() - expected).abs().max() / expected.abs().max().clamp(min=1))
    except (RuntimeError, ValueError, AttributeError, TypeError):
        off = float("inf")
    if not off < SAME:
        removal.undo()
        raise InputError(
            f"heads of {name!r} cannot be taken out of {type(model).__name__}, which then answers otherwise than"
            " with them switched off: switch them off"
        )


def save_pruned(
    model: Any, before: Sequence[Layer], left: Mapping[str, Sequence[int]], after: Sequence[Layer], folder: Path
) -> None:
    """Write a model without some heads into a folder, as transformers reads it; `left`: by layer, those that stay
    of those `before`."""
    config, heads = model.config, {each.name: each.heads for each in before}
    found = prunable_layers(model, after)
    kept = copy.deepcopy(getattr(config, KEPT, None) or {})
    for name, some in left.items():
        each = found[name]
        earlier = kept.get(each.name) or {"kept": range(heads[name]), "heads": heads[name]}
        kept[each.name] = {
            "output": each.output_name,
            "heads": earlier["heads"],
            "kept": [earlier["kept"][place] for place in some],
        }
    if getattr(config, KEPT, None) is None and _said_by_config(config, left, before, after):
        model.save_pretrained(folder)
        return
    setattr(config, KEPT, kept)
    kind = type(model).__name__.removeprefix("Pruned")
    config.auto_map = dict.fromkeys(automatic_names(model), f"{CODE}.Pruned{kind}")
    model.save_pretrained(folder)
    write_code(model, folder)


class Removal:
    """Heads that have gone from a layer, and can come back."""

    def __init__(self, found: PrunableLayer, kept: Sequence[int]) -> None:
        self.parts = [found.layer, found.output, *found.layer.modules()]
        self.before = [(dict(each._parameters), _numbers(each)) for each in self.parts]
        shrink(found.layer, found.output, found.heads, kept)

    def undo(self) -> None:
        """Put them back."""
        for part, (parameters, numbers) in zip(self.parts, self.before, strict=True):
            part._parameters.update(parameters)
            vars(part).update(numbers)


def _numbers(module: nn.Module) -> dict[str, int]:
    return {name: value for name, value in vars(module).items() if isinstance(value, int)}


def _said_by_config(
    config: Any, left: Mapping[str, Sequence[int]], before: Sequence[Layer], after: Sequence[Layer]
) -> bool:
    """Let the config say itself how many heads there are, where it can: as many in every layer, of a width that
    it names. Returns whether it did."""
    counts = {each.heads for each in after}
    if len(counts) != 1 or len(left) != len(before) or getattr(config, "head_dim", None) is None:
        return False
    groups, heads = getattr(config, "num_key_value_heads", None), config.num_attention_heads
    config.num_attention_heads = counts.pop()
    if groups is not None:
        config.num_key_value_heads = groups * config.num_attention_heads // heads
    return True


def write_code(model: Any, folder: Path) -> None:
    """Write beside a pruned model what transformers needs to build it, and name it in its config."""
    kind = type(model).__name__.removeprefix("Pruned")
    code = (
        f"{inspect.getsource(shrinking)}\n\nfrom transformers import {kind}  # noqa: E402\n\n\n"
        f"class Pruned{kind}({kind}):\n"
        f'    """{kind}, with the heads that its config keeps."""\n\n'
        f"    def __init__(self, config, *args, **options):\n"
        f"        super().__init__(config, *args, **options)\n"
        f"        shrink_model(self, config.{KEPT})\n"
    )
    write_file(folder / f"{CODE}.py", code.encode())


def automatic_names(model: Any) -> list[str]:
    """Return which automatic classes of transformers build such a model.

    Raises `InputError` where none does.
    """
    from transformers.models.auto import modeling_auto

    kind, found = type(model).__name__.removeprefix("Pruned"), []
    for name, automatic in vars(modeling_auto).items():
        mapping = getattr(automatic, "_model_mapping", None)
        if name.startswith("AutoModel") and mapping is not None and type(model.config) in mapping:
            built = mapping[type(model.config)]
            kinds = built if isinstance(built, tuple) else (built,)
            found += [name] * (kind in [each.__name__ for each in kinds])
    if not found:
        raise InputError(
            f"{kind} is of no automatic class of transformers: its heads can be switched off, not saved"
        )
    return found


def pruned_class(kind: Any) -> Any:
    """Return the class of a pruned model, for weights to be loaded into."""

    def build(self: Any, config: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, config, *args, **options)
        shrinking.shrink_model(self, getattr(config, KEPT))

    return type(f"Pruned{kind.__name__}", (kind,), {"__init__": build, "__module__": kind.__module__})
