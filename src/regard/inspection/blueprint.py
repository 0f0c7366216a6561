"""The architecture of a model, found by running it: its parts, what flows between them, and their sizes.

One input goes through the model while every module tells what it was given and what it gave. Which part follows
which is read off the graph that PyTorch keeps for gradients, so that sums, residuals and one's own arithmetic
between two parts are seen as well; nothing is known of any model beforehand.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attention, FeedForward, MultiHeadAttention, Positions
from regard.attention.blocks import Residual

WHOLE = (Attention, MultiHeadAttention, FeedForward, nn.MultiheadAttention, nn.RNNBase, Positions)
"""Modules that are shown as one part, whatever is inside."""
ATTENDING = (Attention, MultiHeadAttention, nn.MultiheadAttention)
INPUT, ANSWER = "input", "answer"


@dataclass
class Box:
    """One box of the picture."""

    name: str
    kind: str
    parameters: int = 0
    attends: bool = False
    given: tuple[int, ...] | None = None
    """Shape of the first tensor it was given."""
    gave: tuple[int, ...] | None = None
    """Shape of the last tensor it gave."""


@dataclass
class Blueprint:
    """Parts in the order in which they first worked, and which of them feeds which."""

    title: str
    parameters: int
    parts: dict[str, Box] = field(default_factory=dict)
    flows: list[tuple[str, str]] = field(default_factory=list)

    def flow(self, one: str, other: str) -> None:
        """Note that one part feeds another; what runs again and again feeds what is above only once."""
        if one != other and (one, other) not in self.flows and (other, one) not in self.flows:
            self.flows.append((one, other))


def blueprint_of(model: nn.Module, work: Callable[[], Any], title: str) -> Blueprint:
    """Return the parts of a model and what flows between them, while `work` has it answer an input once.

    `work` returns the tensor that the model answers with. The model is left as it was.
    """
    found = Blueprint(title, sum(each.numel() for each in model.parameters()))
    found.parts[INPUT] = Box(INPUT, INPUT)
    homes = _homes(model)
    trace = _Tracing(found, model, homes)
    with ExitStack() as stack, torch.enable_grad():
        for name, module in model.named_modules():
            if name in homes:
                stack.callback(module.register_forward_pre_hook(trace.given(name)).remove)
                stack.callback(module.register_forward_hook(trace.gave(name)).remove)
            elif isinstance(module, Residual):
                stack.callback(module.register_forward_hook(trace.summed(name)).remove)
        answer = work()
        found.parts[ANSWER] = Box(ANSWER, ANSWER, given=tuple(answer.shape), gave=tuple(answer.shape))
        trace.back(ANSWER, answer)
    return found


class _Tracing:
    """Hooks that note what flows, and the gradient nodes by which it is recognised."""

    def __init__(self, found: Blueprint, model: nn.Module, homes: dict[str, str]) -> None:
        self.found, self.model, self.homes = found, model, homes
        self.origins: dict[Any, str] = {}
        """Nodes of what parts gave, which are known by identity and so are kept alive."""
        self.owners = {id(each): name for name, each in model.named_parameters()}

    def given(self, name: str) -> Callable[[nn.Module, Any], None]:
        """Return a hook that notes what a part is given, and from where it came."""

        def note(module: nn.Module, given: Any) -> None:
            part = self._part(name)
            for each in _tensors(given):
                part.given = part.given or tuple(each.shape)
                self.back(part.name, each)

        return note

    def gave(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        """Return a hook that notes what a part gave."""

        def note(module: nn.Module, given: Any, gave: Any) -> None:
            part = self._part(name)
            for place, each in enumerate(_tensors(gave)):
                if not place:  # of a recurrent layer the states of all steps; what follows are the last ones
                    part.gave = tuple(each.shape)
                if each.grad_fn is not None:
                    self.origins[each.grad_fn] = part.name

        return note

    def summed(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        """Return a hook that notes the sum of a residual, where no norm comes after it."""

        def note(module: nn.Module, given: Any, gave: Tensor) -> None:
            if gave.grad_fn is not None and gave.grad_fn not in self.origins:
                self.found.parts.setdefault(name, Box(name, "sum", gave=tuple(gave.shape)))
                self.back(name, gave)
                self.origins[gave.grad_fn] = name

        return note

    def back(self, name: str, tensor: Tensor) -> None:
        """Note from which parts a tensor came to a part."""
        if tensor.grad_fn is None:
            if not tensor.requires_grad and tensor.dtype != torch.bool:  # neither a weight nor a mask
                self.found.parts[INPUT].gave = self.found.parts[INPUT].gave or tuple(tensor.shape)
                self.found.flow(INPUT, name)
            return
        waiting: list[Any] = [tensor.grad_fn]
        seen: set[Any] = set()
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node in self.origins:
                self.found.flow(self.origins[node], name)
            elif id(variable := getattr(node, "variable", None)) in self.owners:
                self._weight(variable, name)
            else:
                waiting += [each for each, _ in node.next_functions]

    def _weight(self, variable: Any, name: str) -> None:
        """Note a parameter that is used outside of its module, or is the model's own, as learned queries are."""
        own = self.owners[id(variable)]
        module = own.rpartition(".")[0]
        if module in self.homes:
            self.found.flow(self._part(module).name, name)
        else:
            self.found.parts.setdefault(own, Box(own, "parameter", variable.numel(), gave=tuple(variable.shape)))
            self.found.flow(own, name)

    def _part(self, name: str) -> Box:
        home = self.homes[name]
        if home not in self.found.parts:
            module = self.model.get_submodule(home)
            count = sum(each.numel() for each in module.parameters())
            self.found.parts[home] = Box(home, type(module).__name__, count, isinstance(module, ATTENDING))
        return self.found.parts[home]


def _homes(model: nn.Module) -> dict[str, str]:
    """Return, for each module that does something by itself, the name of the part that it belongs to."""
    found: dict[str, str] = {}
    for name, module in model.named_modules():
        above = next((each for each in _above(name) if each in found and found[each] == each), None)
        if name and above is not None and isinstance(model.get_submodule(above), WHOLE):
            found[name] = above
        elif name and (isinstance(module, WHOLE) or not list(module.children())) and _works(module):
            found[name] = name
    return found


def _works(module: nn.Module) -> bool:
    return not isinstance(module, nn.Identity) and "dropout" not in type(module).__name__.lower()


def _above(name: str) -> Iterable[str]:
    pieces = name.split(".")
    return [".".join(pieces[:count]) for count in range(1, len(pieces))]


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return [each for one in inside for each in _tensors(one)]
