"""Write signatures and types for the reference.

Types of this package get their full names, which become links. The site shows only the last part.
"""

import ast
from copy import deepcopy

from source import Function, Module, PublicNames


class Annotations:
    """Write the types and signatures of one module."""

    def __init__(self, module: Module, names: PublicNames) -> None:
        self._module, self._names = module, names

    def type(self, annotation: ast.expr) -> str:
        """Write a type."""
        return ast.unparse(_FullNames(self._module, self._names).visit(deepcopy(annotation)))

    def signature(self, function: Function, *, bound: bool = False) -> str:
        """Write the arguments and the result of a function; `bound` omits the first argument."""
        arguments = deepcopy(function.args)
        if bound:
            first = arguments.posonlyargs or arguments.args
            del first[:1]
        full = _FullNames(self._module, self._names)
        for argument in ast.walk(arguments):
            if isinstance(argument, ast.arg) and argument.annotation is not None:
                argument.annotation = full.visit(argument.annotation)
        result = "" if function.returns is None else f" -> {self.type(function.returns)}"
        return f"({ast.unparse(arguments)}){result}"


class _FullNames(ast.NodeTransformer):
    """Replace this package's types by their full names, and unquote forward references."""

    def __init__(self, module: Module, names: PublicNames) -> None:
        self._module, self._names = module, names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        full = self._names.seen_from(self._module, node.id)
        return node if full is None else ast.parse(full, mode="eval").body

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "Literal":
            return node  # strings in Literal are values, not types
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return node  # calls in Annotated are metadata, not types

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self.visit(ast.parse(node.value, mode="eval").body) if isinstance(node.value, str) else node
