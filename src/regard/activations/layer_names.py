"""Names of activations: the number of a layer in its stack, and the parts of a layer.

A model with one stack of layers has `layer.0.z`, `layer.1.z`, ...; one with an encoder and a decoder has
`encoder.layer.0.z`, `decoder.layer.0.z` and, for the second attention of a layer, `decoder.layer.0.cross.z`.
Other stacks, and attention outside a stack, have their names in the model.
"""

import re
from collections.abc import Collection, Mapping
from functools import cache
from inspect import signature
from typing import Any

from torch import nn

from regard.activations.attention_interface import find_eager_function
from regard.attention.blocks import Block
from regard.attention.hooks import AttentionLayer

ATTENTION = re.compile(r"Attention|Attn")
"""Parts of class names of attention layers."""
CROSS = re.compile(r"cross|enc|multihead", re.I)
"""Parts of names of layers that attend to another sequence."""


def is_norm(module: nn.Module) -> bool:
    """Return whether a module is a normalization layer, judged by the name of its class."""
    return type(module).__name__.endswith(("Norm", "LayerNorm", "RMSNorm"))


def is_linear(module: nn.Module) -> bool:
    """Return whether a module is a linear layer, judged by its class."""
    return isinstance(module, nn.Linear) or type(module).__name__.endswith(("Linear", "Conv1D"))


def find_block(modules: Mapping[str, nn.Module], layer: str) -> str | None:
    """Return the name of the block that holds a layer; None if the layer is in no list of modules."""
    parts = layer.split(".")
    for end in range(1, len(parts)):
        if isinstance(modules.get(".".join(parts[:end])), nn.ModuleList | nn.Sequential):
            return ".".join(parts[: end + 1])
    return None


class LayerNames:
    """The prefixes of the names of activations of one model."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self.modules = modules
        attending = [name for name, module in modules.items() if _attends(module)]
        parents = {name[:end] for name in attending for end in range(len(name)) if name[end] == "."}
        parents |= {""} if len(attending) > 1 else set()
        self.attention = [name for name in attending if name not in parents]
        """Names of attention layers: the innermost modules that attend."""
        self._attending = attending
        self._order = {name: place for place, name in enumerate(modules)}
        self._known: dict[str, str] = {}
        self._block_of: dict[str, str | None] = {}
        self._feed_forward: dict[str, str | None] = {}
        blocks = map(self.block_of, self.attention)
        self.blocks = list(dict.fromkeys(block for block in blocks if block is not None))
        if not self.attention:  # the code of the blocks may attend itself
            children = (name for name in modules if find_block(modules, f"{name}.") == name)
            self.blocks = [name for name in children if name]
        stacks = list(dict.fromkeys(block.rpartition(".")[0] for block in self.blocks))
        sides = [[side for side in ("encoder", "decoder") if side in stack.split(".")] for stack in stacks]
        self._stacks: dict[str, str | None] = dict.fromkeys(stacks)
        if len(stacks) == 1:
            self._stacks = {stacks[0]: "layer"}
        elif sorted(map(tuple, sides)) == [("decoder",), ("encoder",)]:
            self._stacks = {stack: f"{side[0]}.layer" for stack, side in zip(stacks, sides, strict=True)}

    def block_of(self, name: str) -> str | None:
        """Return the block that holds a module: an own block, or a member of the outermost list of modules."""
        if name not in self._block_of:
            parts = name.split(".")
            parents = [".".join(parts[:end]) for end in range(len(parts))]
            own = [parent for parent in parents if isinstance(self.modules.get(parent), Block)]
            in_list = find_block(self.modules, name) or find_block(self.modules, f"{name}.")
            self._block_of[name] = own[-1] if own else in_list
        return self._block_of[name]

    def block(self, name: str) -> str:
        """Return the prefix of a block: `layer.0`; none if the model itself is a block."""
        if not name:
            return ""
        stack, _, number = name.rpartition(".")
        label = self._stacks.get(stack)
        return f"{label}.{number}" if label is not None else name

    def layer(self, name: str) -> str:
        """Return the prefix of an attention layer: that of its block, and `cross` for the second attention."""
        if name not in self._known:
            self._known[name] = self._find_prefix(name)
        return self._known[name]

    def _find_prefix(self, name: str) -> str:
        block = self.block_of(name)
        if block is None:
            return name
        beside = [other for other in self.attention if other != name and self.block_of(other) == block]
        if not beside or self._order[name] < min(self._order[other] for other in beside):
            return self.block(block)
        part = name.removeprefix(f"{block}.")
        return ".".join(filter(None, (self.block(block), "cross" if CROSS.search(part) else part)))

    def feed_forward(self, block: str) -> str | None:
        """Return the name of the feed-forward layer of a block; None if there is none."""
        if block not in self._feed_forward:
            self._feed_forward[block] = find_feed_forward(self.modules, block, self._attending, ())
        return self._feed_forward[block]


def _attends(module: nn.Module) -> bool:
    cls = type(module)
    named = ATTENTION.search(cls.__name__) is not None
    return (
        isinstance(module, AttentionLayer | nn.MultiheadAttention)
        or named
        or find_eager_function(cls) is not None
    )


def find_feed_forward(
    modules: Mapping[str, nn.Module], block: str, attention: Collection[str], projections: Collection[nn.Module]
) -> str | None:
    """Return the name of the largest module that is last in a block and is a feed-forward layer."""
    largest: list[str] = []
    for name, module in modules.items():
        inside = name.startswith(f"{block}.") if block else bool(name)
        if not inside or any(f"{name}.".startswith(f"{known}.") for known in (*attention, *largest)):
            continue
        parts = list(module.modules())
        if any(known.startswith(f"{name}.") for known in attention) or any(part in projections for part in parts):
            continue
        # BLOOM's feed-forward layer also gets the residual stream, and returns the sum.
        cls: Any = type(module)
        has_matrix = any(parameter.dim() > 1 for parameter in module.parameters()) and _required_inputs(cls) == 1
        if has_matrix and not any(isinstance(part, nn.Embedding) or is_norm(part) for part in parts):
            largest.append(name)
    return largest[-1] if largest else None


@cache
def _required_inputs(cls: Any) -> int:
    parameters = list(signature(cls.forward).parameters.values())[1:]
    return sum(parameter.default is parameter.empty and parameter.kind < 2 for parameter in parameters)
