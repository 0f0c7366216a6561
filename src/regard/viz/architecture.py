"""The graph of a model's architecture: modules, data flow between them, shapes and parameter counts.

One input is passed through the model while hooks record the inputs and outputs of every module. The connections
are read from PyTorch's autograd graph. For any model, the graph therefore also contains sums, residual
connections, arithmetic between modules, and weights that are used without a call of their module.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention import Attention, FeedForward, MultiHeadAttention, Positions, Residual

ATOMIC = (Attention, MultiHeadAttention, FeedForward, nn.MultiheadAttention, nn.RNNBase, Positions)
"""Modules that are always shown as a single node, without submodules."""
ATTENTION = (Attention, MultiHeadAttention, nn.MultiheadAttention)
ROLES = ("query", "key", "value")
"""Parameter names of the inputs of attention modules."""
INPUT, ANSWER, SUM, PARAMETER, REUSED = "input", "answer", "sum", "parameter", "weights used again"
"""Kinds of nodes that are not modules."""
Shape = tuple[int, ...]


@dataclass
class GraphNode:
    """A module, input, output, sum or parameter."""

    name: str
    kind: str
    parameters: int = 0
    is_attention: bool = False
    input_shape: Shape | None = None  # shape of the first input tensor
    output_shape: Shape | None = None  # shape of the output tensor


@dataclass
class ModelGraph:
    """Nodes in the order of their first call, and the edges between them."""

    title: str
    parameters: int
    nodes: dict[str, GraphNode] = field(default_factory=dict)
    edges: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Roles of the data in attention (query, key, value), by the names of source and target."""

    def add_edge(self, source: str, target: str, role: str = "") -> None:
        """Add an edge, or a role to an existing edge; a node has no edge to itself."""
        if source == target:
            return
        roles = self.edges.setdefault((source, target), [])
        if role and role not in roles:
            roles.append(role)


def trace_graph(
    model: nn.Module, forward: Callable[[], Any], title: str, inputs: Mapping[str, Tensor] | None = None
) -> ModelGraph:
    """Run a model once and return the graph of its architecture.

    `forward` runs the model on `inputs` and returns its output tensor. The model is left unchanged. If `inputs`
    is None, all data of unknown origin is assigned to a single input.
    """
    graph = ModelGraph(title, sum(parameter.numel() for parameter in model.parameters()))
    owners = _node_names(model)
    tracer = _Tracer(graph, model, owners, inputs or {})
    with ExitStack() as stack, torch.enable_grad():
        for name, module in model.named_modules():
            if name in owners:
                stack.callback(module.register_forward_pre_hook(tracer.input_hook(name), with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(tracer.output_hook(name)).remove)
            elif isinstance(module, Residual):
                stack.callback(module.register_forward_hook(tracer.sum_hook(name)).remove)
        with _FunctionObserver(tracer):
            answer = forward()
        tracer.connect(ANSWER, answer)
        # Add the output last, because nodes are stored in the order of the forward pass.
        graph.nodes[ANSWER] = GraphNode(ANSWER, ANSWER, 0, False, tuple(answer.shape), tuple(answer.shape))
    return graph


class _FunctionObserver(TorchFunctionMode):
    """Reports the inputs and outputs of every PyTorch function to a tracer."""

    def __init__(self, tracer: "_Tracer") -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.tracer.record_function([*_tensors(args), *_tensors(kwargs or {})], _tensors(result))
        return result


class _Tracer:
    """Builds a graph from hooks, and identifies data by its autograd nodes."""

    def __init__(
        self, graph: ModelGraph, model: nn.Module, owners: dict[str, str], inputs: Mapping[str, Tensor]
    ) -> None:
        self.graph, self.model, self.owners = graph, model, owners
        self.origins: dict[Any, str] = {}  # autograd nodes of outputs; the reference keeps their identity valid
        self.parameter_names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.shapes: dict[Any, Shape] = {}
        self.recurrent = {name for name, module in model.named_modules() if isinstance(module, nn.RNNBase)}
        self.finished: set[str] = set()
        self.running: list[str] = []
        self.inputs = list(inputs) or [INPUT]
        self.input_sources = {id(tensor): {name} for name, tensor in inputs.items()}
        self._alive: list[Tensor] = list(inputs.values())  # keeps the identities of `input_sources` valid
        for name in self.inputs:
            shape = tuple(inputs[name].shape) if name in inputs else None
            graph.nodes[name] = GraphNode(name, INPUT, output_shape=shape)

    def record_function(self, arguments: list[Tensor], results: list[Tensor]) -> None:
        """Record the shapes of results, and the model inputs of results without gradients."""
        sources = set[str]().union(*(self.input_sources.get(id(tensor), ()) for tensor in arguments))
        for tensor in results:
            if tensor.grad_fn is not None:
                self.shapes.setdefault(tensor.grad_fn, tuple(tensor.shape))
            elif sources and not tensor.requires_grad:
                self.input_sources[id(tensor)] = sources
                self._alive.append(tensor)

    def input_hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        """Return a hook that connects a module with the origins of its inputs."""

        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            node = self._node(name)
            for parameter, value in [*zip(_parameter_names(module), args, strict=False), *kwargs.items()]:
                for tensor in _tensors(value):
                    node.input_shape = node.input_shape or tuple(tensor.shape)
                    self.connect(node.name, tensor, self._role(name, node, parameter))
            self.running.append(name)

        return hook

    def _role(self, name: str, node: GraphNode, parameter: str) -> str:
        """Return the role of an input in attention: query, key or value."""
        if not node.is_attention:
            return ""
        if name == node.name:
            return parameter if parameter in ROLES else ""
        if node.name in self.running:  # the roles are known from the module's own call
            return ""
        submodule = name.rpartition(".")[2]
        return submodule if submodule in ROLES else "key"  # keys may be projected before the first step

    def output_hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        """Return a hook that marks the outputs of a module."""

        def hook(module: nn.Module, args: Any, output: Any) -> None:
            self.running.remove(name)
            node = self._node(name)
            self.finished.add(node.name)
            for index, tensor in enumerate(_tensors(output)):
                if index == 0:  # a recurrent layer returns the states of all steps first, then the last states
                    node.output_shape = tuple(tensor.shape)
                if tensor.grad_fn is not None:
                    self.origins[tensor.grad_fn] = node.name

        return hook

    def sum_hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        """Return a hook that adds the sum of a residual connection, unless a norm follows it."""

        def hook(module: nn.Module, args: Any, output: Tensor) -> None:
            if output.grad_fn is not None and output.grad_fn not in self.origins:
                self.graph.nodes.setdefault(name, GraphNode(name, SUM, output_shape=tuple(output.shape)))
                self.connect(name, output)
                self.origins[output.grad_fn] = name

        return hook

    def connect(self, target: str, tensor: Tensor, role: str = "") -> None:
        """Add edges to `target` from all nodes from which `tensor` is computed."""
        if tensor.grad_fn is None:
            if not tensor.requires_grad and tensor.dtype != torch.bool:  # neither a weight nor a mask
                for source in sorted(self.input_sources.get(id(tensor), self.inputs[:1])):
                    node = self.graph.nodes[source]
                    node.output_shape = node.output_shape or tuple(tensor.shape)
                    self.graph.add_edge(source, target, role)
            return
        pending: list[tuple[Any, str, str, Any]] = [(tensor.grad_fn, target, role, tuple(tensor.shape))]
        visited: set[tuple[Any, str]] = set()
        while pending:
            step, target, role, shape = pending.pop()
            if step is None or (step, target) in visited:
                continue
            visited.add((step, target))  # by target, since data can reach a node directly and through another one
            shape = self.shapes.get(step, shape)
            if step in self.origins:
                self.graph.add_edge(self.origins[step], target, role)
            elif (variable := getattr(step, "variable", None)) is not None:
                self._connect_parameter(variable, target, role)
            else:
                below = [source for source, _ in step.next_functions if source is not None]
                user = next(filter(None, map(self._weight_user, below)), None) if len(below) > 1 else None
                if user is not None:
                    below = self._pass_through(user, step, target, role, below, shape)
                    target, role = user, ""
                pending += [(source, target, role, shape) for source in below]

    def _pass_through(
        self, user: str, step: Any, target: str, role: str, below: list[Any], shape: Shape
    ) -> list[Any]:
        """Treat an operation on a module's weights outside the module as a call of the module; return its other
        inputs."""
        self.graph.add_edge(user, target, role)
        self.origins[step] = user
        below = [source for source in below if self._weight_user(source) is None]
        node = self.graph.nodes[user]
        if user not in self.recurrent:  # there, it is a single gate of a single step
            node.input_shape = node.input_shape or next(filter(None, map(self._shape, below)), None)
            node.output_shape = node.output_shape or shape
        return below

    def _shape(self, step: Any) -> Shape | None:
        """Return the shape of an autograd node's result, or of its nearest ancestor with a known shape."""
        while step is not None and step not in self.shapes:
            step = step.next_functions[0][0] if step.next_functions else None
        return None if step is None else self.shapes[step]

    def _weight_user(self, step: Any) -> str | None:
        """Return the graph node for weights that are used without their module; None for other data."""
        while step is not None and not hasattr(step, "variable"):
            if step in self.origins or len(step.next_functions) != 1:
                return None
            step = step.next_functions[0][0]
        parameter = None if step is None else self.parameter_names.get(id(step.variable))
        module = "" if parameter is None else parameter.rpartition(".")[0]
        if module not in self.owners:
            return None
        node = self._node(module)
        if node.name not in self.finished:
            return node.name
        name = f"{node.name}, again"
        self.graph.nodes.setdefault(name, GraphNode(name, REUSED))
        return name

    def _connect_parameter(self, variable: Any, target: str, role: str) -> None:
        """Add an edge from a parameter that is used outside of a module, such as learned queries."""
        parameter = self.parameter_names.get(id(variable))
        module = "" if parameter is None else parameter.rpartition(".")[0]
        if module in self.owners:
            self.graph.add_edge(self._node(module).name, target, role)
        elif parameter is not None:
            shape = tuple(variable.shape)
            node = GraphNode(parameter, PARAMETER, variable.numel(), output_shape=shape)
            self.graph.nodes.setdefault(parameter, node)
            self.graph.add_edge(parameter, target, role)

    def _node(self, module_name: str) -> GraphNode:
        name = self.owners[module_name]
        if name not in self.graph.nodes:
            module = self.model.get_submodule(name)
            count = sum(parameter.numel() for parameter in module.parameters())
            kind = type(module).__name__
            self.graph.nodes[name] = GraphNode(name, kind, count, isinstance(module, ATTENTION))
        return self.graph.nodes[name]


def _node_names(model: nn.Module) -> dict[str, str]:
    """Map the name of each module with computations to the name of its node."""
    nodes: dict[str, str] = {}
    for name, module in model.named_modules():
        parent = next((parent for parent in _parents(name) if nodes.get(parent) == parent), None)
        if name and parent is not None and isinstance(model.get_submodule(parent), ATOMIC):
            nodes[name] = parent
        elif name and (isinstance(module, ATOMIC) or not list(module.children())) and _computes(module):
            nodes[name] = name
    return nodes


def _computes(module: nn.Module) -> bool:
    return not isinstance(module, nn.Identity) and "dropout" not in type(module).__name__.lower()


def _parents(name: str) -> Iterable[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _parameter_names(module: nn.Module) -> list[str]:
    """Return the parameter names of `forward`; the last name is repeated for variadic arguments."""
    names = list(inspect.signature(module.forward).parameters)
    return names + names[-1:] * 8


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    elements = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return [tensor for element in elements for tensor in _tensors(element)]
