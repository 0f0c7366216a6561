"""The architecture of a model, found by running it: its parts, what flows between them, and their sizes.

One input goes through the model while every module tells what it was given and what it gave. Which part follows
which is read off the graph that PyTorch keeps for gradients, so that sums, residuals and one's own arithmetic
between two parts are seen as well, and parts whose weights are used without a call of theirs; nothing is known
of any model beforehand.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention import Attention, FeedForward, MultiHeadAttention, Positions
from regard.attention.blocks import Residual

WHOLE = (Attention, MultiHeadAttention, FeedForward, nn.MultiheadAttention, nn.RNNBase, Positions)
"""Modules that are shown as one part, whatever is inside."""
ATTENDING = (Attention, MultiHeadAttention, nn.MultiheadAttention)
ROLES = ("query", "key", "value")
"""What attention calls the first things that it is given."""
INPUT, ANSWER, SUM, PARAMETER, AGAIN = "input", "answer", "sum", "parameter", "weights used again"
"""Kinds of boxes that are no modules."""


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
    flows: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """By the names of who gives and who is given: what it is for attention, of query, key and value."""

    def flow(self, one: str, other: str, role: str = "") -> None:
        """Note that one part feeds another."""
        if one == other:
            return
        roles = self.flows.setdefault((one, other), [])
        if role and role not in roles:
            roles.append(role)


def blueprint_of(
    model: nn.Module, work: Callable[[], Any], title: str, inputs: Mapping[str, Tensor] | None = None
) -> Blueprint:
    """Return the parts of a model and what flows between them, while `work` has it answer `inputs` once.

    `work` returns the tensor that the model answers with. The model is left as it was. Without `inputs`, all that
    comes from nowhere is one.
    """
    found = Blueprint(title, sum(each.numel() for each in model.parameters()))
    homes = _homes(model)
    trace = _Tracing(found, model, homes, inputs or {})
    with ExitStack() as stack, torch.enable_grad():
        for name, module in model.named_modules():
            if name in homes:
                stack.callback(module.register_forward_pre_hook(trace.given(name), with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(trace.gave(name)).remove)
            elif isinstance(module, Residual):
                stack.callback(module.register_forward_hook(trace.summed(name)).remove)
        with _Calls(trace):
            answer = work()
        shape = tuple(answer.shape)
        trace.back(ANSWER, answer)
        found.parts[ANSWER] = Box(ANSWER, ANSWER, given=shape, gave=shape)  # after all that comes to it
    return found


class _Calls(TorchFunctionMode):
    """Sees every call of PyTorch's: how large what it made is, and from which inputs that came."""

    def __init__(self, trace: "_Tracing") -> None:
        super().__init__()
        self.trace = trace

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        self.trace.made([*_tensors(args), *_tensors(kwargs or {})], _tensors(made))
        return made


class _Tracing:
    """Hooks that note what flows, and the gradient nodes by which it is recognised."""

    def __init__(
        self, found: Blueprint, model: nn.Module, homes: dict[str, str], inputs: Mapping[str, Tensor]
    ) -> None:
        self.found, self.model, self.homes = found, model, homes
        self.origins: dict[Any, str] = {}
        """Nodes of what parts gave, which are known by identity and so are kept alive."""
        self.owners = {id(each): name for name, each in model.named_parameters()}
        self.shapes: dict[Any, tuple[int, ...]] = {}
        self.cells = {name for name, each in model.named_modules() if isinstance(each, nn.RNNBase)}
        self.called: set[str] = set()
        self.running: list[str] = []
        self.inputs = list(inputs) or [INPUT]
        self.from_inputs = {id(each): {name} for name, each in inputs.items()}
        self._kept: list[Tensor] = list(inputs.values())
        for name in self.inputs:
            given = inputs.get(name)
            found.parts[name] = Box(name, INPUT, gave=None if given is None else tuple(given.shape))

    def made(self, given: list[Tensor], made: list[Tensor]) -> None:
        """Note what a call of PyTorch's made of what."""
        sources = set[str]().union(*(self.from_inputs.get(id(each), ()) for each in given))
        for each in made:
            if each.grad_fn is not None:
                self.shapes.setdefault(each.grad_fn, tuple(each.shape))
            elif sources and not each.requires_grad:
                self.from_inputs[id(each)] = sources
                self._kept.append(each)

    def given(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        """Return a hook that notes what a part is given, and from where it came."""

        def note(module: nn.Module, args: Any, kwargs: Any) -> None:
            part = self._part(name)
            named = [*zip(_taken(module), args, strict=False), *kwargs.items()]
            for taken, value in named:
                for each in _tensors(value):
                    part.given = part.given or tuple(each.shape)
                    self.back(part.name, each, self._role(name, part, taken))
            self.running.append(name)

        return note

    def _role(self, name: str, part: Box, taken: str) -> str:
        """Return what attention takes something for."""
        if not part.attends:
            return ""
        if name == part.name:
            return taken if taken in ROLES else ""
        if part.name in self.running:  # by then it has told
            return ""
        inside = name.rpartition(".")[2]
        return inside if inside in ROLES else "key"  # what is prepared of keys

    def gave(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        """Return a hook that notes what a part gave."""

        def note(module: nn.Module, given: Any, gave: Any) -> None:
            self.running.remove(name)
            part = self._part(name)
            self.called.add(part.name)
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
                self.found.parts.setdefault(name, Box(name, SUM, gave=tuple(gave.shape)))
                self.back(name, gave)
                self.origins[gave.grad_fn] = name

        return note

    def back(self, name: str, tensor: Tensor, role: str = "") -> None:
        """Note from which parts a tensor came to a part."""
        if tensor.grad_fn is None:
            if not tensor.requires_grad and tensor.dtype != torch.bool:  # neither a weight nor a mask
                for each in sorted(self.from_inputs.get(id(tensor), self.inputs[:1])):
                    self.found.parts[each].gave = self.found.parts[each].gave or tuple(tensor.shape)
                    self.found.flow(each, name, role)
            return
        waiting: list[tuple[Any, str, str, Any]] = [(tensor.grad_fn, name, role, tuple(tensor.shape))]
        seen: set[tuple[Any, str]] = set()
        while waiting:
            node, to, role, shape = waiting.pop()
            if node is None or (node, to) in seen:
                continue
            seen.add((node, to))  # one thing can come to a part directly, and by another part too
            shape = self.shapes.get(node, shape)
            if node in self.origins:
                self.found.flow(self.origins[node], to, role)
                continue
            if (variable := getattr(node, "variable", None)) is not None:
                self._weight(variable, to, role)
                continue
            below = [each for each, _ in node.next_functions if each is not None]
            user = next(filter(None, map(self._used, below)), None) if len(below) > 1 else None
            if user is not None:  # weights are used outside of their module
                self.found.flow(user, to, role)
                self.origins[node] = user
                below = [each for each in below if self._used(each) is None]
                part, to, role = self.found.parts[user], user, ""
                if user not in self.cells:  # of one step's gates nobody asked
                    part.given = part.given or next(filter(None, map(self._shape, below)), None)
                    part.gave = part.gave or shape
            waiting += [(each, to, role, shape) for each in below]

    def _shape(self, node: Any) -> tuple[int, ...] | None:
        """Return the shape of what a node made, or of the nearest known one that it was made from."""
        while node is not None and node not in self.shapes:
            node = node.next_functions[0][0] if node.next_functions else None
        return None if node is None else self.shapes[node]

    def _used(self, node: Any) -> str | None:
        """Return the part that stands for weights which are used without their module; None for what is none."""
        while node is not None and not hasattr(node, "variable"):
            if node in self.origins or len(node.next_functions) != 1:
                return None
            node = node.next_functions[0][0]
        own = None if node is None else self.owners.get(id(node.variable))
        module = "" if own is None else own.rpartition(".")[0]
        if module not in self.homes:
            return None
        part = self._part(module)
        if part.name not in self.called:
            return part.name
        name = f"{part.name}, again"
        self.found.parts.setdefault(name, Box(name, AGAIN))
        return name

    def _weight(self, variable: Any, name: str, role: str) -> None:
        """Note a parameter that is used outside of its module, or is the model's own, as learned queries are."""
        own = self.owners.get(id(variable))
        module = "" if own is None else own.rpartition(".")[0]
        if module in self.homes:
            self.found.flow(self._part(module).name, name, role)
        elif own is not None:
            self.found.parts.setdefault(own, Box(own, PARAMETER, variable.numel(), gave=tuple(variable.shape)))
            self.found.flow(own, name, role)

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


def _taken(module: nn.Module) -> list[str]:
    """Return what a module calls what it is given; of any number of things, the last name stands for all."""
    names = list(inspect.signature(module.forward).parameters)
    return names + names[-1:] * 8


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return [each for one in inside for each in _tensors(one)]
