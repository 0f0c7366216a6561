"""Checks of the arguments of exported functions, constructors and methods against their annotations.

    regard.examine(run, samples="many")     InputError: samples 'many' is of type str: give int

Types and choices come from the annotations, and ranges from `RANGES` or from `Annotated[int, Limits(1, 26)]`.
The decorator `public` adds the checks to a class or function. A value of a related type is converted: a number of
NumPy, or an iterable where a sequence is expected. Calls by Regard's own code are not checked, because mypy
checks them. Exceptions are commands and the server, whose values come from a user, and constructors of layers,
whose options mypy cannot check. `forward` of a layer is checked after an error of PyTorch.
"""

import ast
import math
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.errors import PACKAGES, InputError, is_own, one_line, unknown_choice

LONGEST_SHOWN = 60  # Largest number of characters of a value in a message
UNIONS = (Union, types.UnionType)
TENSOR_ERRORS = (RuntimeError, IndexError, ValueError, TypeError, AttributeError, ArithmeticError)
"""Errors of PyTorch for tensors that do not fit, and of Python for values that are not tensors."""
Function = TypeVar("Function", bound=Callable[..., Any])
Member = TypeVar("Member", bound=Callable[..., Any])


class Limits(NamedTuple):
    """Smallest and largest value of a number or of all values of a tensor. `excluded`: impossible bounds."""

    low: float
    high: float
    excluded: Literal["", "low", "high", "both"] = ""

    def check(self, name: str, value: Any) -> None:
        """Raise `InputError` for a number that is out of range, or for an empty collection of `NOT_EMPTY`."""
        if isinstance(value, list | tuple | Set) and not value and name in NOT_EMPTY:
            raise InputError(f"{name} {value} is empty: give one or more")
        if is_tensor(value) and value.numel() and not value.is_complex():
            self.check(name, value.min().item())
            value = value.max().item()
        if not isinstance(value, int | float) or isinstance(value, bool):
            return
        above, below = self.excluded in ("low", "both"), self.excluded in ("high", "both")
        if not self.low <= value <= self.high or (above and value == self.low) or (below and value == self.high):
            raise InputError(f"{name} {show_value(value)} is out of range: choose {self.words}")

    @property
    def words(self) -> str:
        """The range in words.

        >>> Limits(0, 1, "high").words
        'at least 0 and less than 1'
        """
        above, below = self.excluded in ("low", "both"), self.excluded in ("high", "both")
        low = f"{'above' if above else 'at least'} {self.low}"
        if self == ANY_NUMBER:
            return "a finite number"
        if self.high == math.inf:
            return f"a {'finite ' if below else ''}number {low}"
        if self.excluded:
            return f"{low} and {'less than' if below else 'at most'} {self.high}"
        return f"from {self.low} to {self.high}"


NOT_EMPTY = ("layers", "seeds", "receivers")
ANY_NUMBER = Limits(-(2**63), 2**63 - 1)
SIZES = "width heads head_width memory_width key_width inner_width hidden layers"
LENGTHS = "length longest letters classes outputs input_len symbols source_symbols target_symbols"
COUNTS = "samples seeds count side splits sample_len new batch tokens"
INDICES = "head output queries keys first offset top_k most number input input_width time sources targets"
RANGES: dict[str, Limits | None] = {
    **dict.fromkeys(SIZES.split(), Limits(1, 2**20)),
    **dict.fromkeys([*LENGTHS.split(), "largest"], Limits(1, 2**31)),
    **dict.fromkeys(COUNTS.split(), Limits(1, 10**9)),
    **dict.fromkeys(INDICES.split(), Limits(0, 2**31)),
    **dict.fromkeys(("dropout", "epsilon"), Limits(0, 1, "high")),
    **dict.fromkeys(("base", "rotary_base"), Limits(1, math.inf, "both")),
    **dict.fromkeys(("top_p", "to"), Limits(0, 1)),
    "seed": Limits(0, 2**32 - 1),
    "max_len": Limits(0, 10**9),  # a search without steps has empty answers
    **dict.fromkeys(
        ("alpha", "length_penalty", "temperature", "false_alarms"), None
    ),  # each function has its own range
}
"""Ranges of arguments that have the same meaning in all functions and layers."""


class _MismatchError(Exception):
    """A value does not conform to an annotation."""


def check_value(name: str, value: Any, hint: Any) -> Any:
    """Return a value that conforms to a type hint, or the converted value. Raises `InputError` for other values.

    >>> check_value("kind", "self", Literal["causal", "self"]), check_value("heads", range(2), Sequence[int])
    ('self', range(0, 2))
    """
    try:
        return _conform(name, value, hint)
    except _MismatchError:
        choices = [choice for choice in _choices(hint) if isinstance(choice, str)]
        if isinstance(value, str) and choices:
            raise unknown_choice(name, value, choices) from None
        shown = f"{name} {show_value(value)}".rstrip()
        raise InputError(f"{shown} is of type {type(value).__name__}: give {describe_hint(hint)}") from None


def check_fields(config: Any) -> None:
    """Raise `InputError` for a field of a dataclass that does not conform to its annotation."""
    for name, hint in _field_hints(config.__class__).items():
        check_value(name, getattr(config, name), hint)


@cache
def _field_hints(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def _conform(name: str, value: Any, hint: Any) -> Any:
    """Return a value converted to a hint. Raises `_MismatchError` for another type, and `InputError` out of range."""
    origin, parts = get_origin(hint), get_args(hint)
    kind = origin or (type(None) if hint is None else hint)
    if origin is Annotated:
        value = _conform(name, value, parts[0])
        for limits in parts[1:]:
            if isinstance(limits, Limits):
                limits.check(name, value)
        return value
    if origin in UNIONS:
        out_of_range: InputError | None = None
        for part in parts:  # the first hint to which the value conforms
            try:
                return _conform(name, value, part)
            except _MismatchError:
                continue
            except InputError as error:
                out_of_range = error
        raise out_of_range or _MismatchError
    if isinstance(hint, TypeVar):
        return value if hint.__bound__ is None else _conform(name, value, hint.__bound__)
    if kind in (int, float, bool):
        if getattr(value, "shape", None) == ():  # a number of NumPy, or a tensor without dimensions
            value = value.item()
        if kind is float and type(value) is int and abs(value) < 2**1000:
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _MismatchError
        return value
    if kind is Path and isinstance(value, str):
        return Path(value)
    if _is_collection(kind):
        return _conform_items(name, value, kind, parts)
    if kind is Literal:
        conforms = any(type(value) is type(choice) and value == choice for choice in parts)
    elif kind is Callable:
        conforms = callable(value)
    elif kind is Any or not isinstance(kind, type):
        conforms = True  # a form that has no check
    elif kind is type and parts:
        base = get_origin(parts[0]) or parts[0]
        conforms = isinstance(value, type) and (base is Any or issubclass(value, base))
    elif getattr(kind, "_is_protocol", False):
        # isinstance would evaluate the properties of the value. A value may lack what a function does not use.
        protocols = [base for base in kind.__mro__ if getattr(base, "_is_protocol", False)]
        members = {member for base in protocols for member in vars(base) if not member.startswith("_")}
        names = {*dir(type(value)), *getattr(value, "__dict__", ())}
        conforms = len(members & names) >= min(len(members), 3)
    elif kind.__name__ == "device" and isinstance(value, str):  # torch.device; torch may not be imported
        try:
            return kind(value)
        except RuntimeError:
            conforms = False
    else:
        conforms = isinstance(value, kind)
    if not conforms:
        raise _MismatchError
    return value


def _conform_items(name: str, value: Any, kind: type, parts: tuple[Any, ...]) -> Any:
    """Return a collection whose items conform to `parts`. Items of an iterator are not checked."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _MismatchError
    if isinstance(value, Mapping) != issubclass(kind, Mapping):
        raise _MismatchError
    if isinstance(value, Mapping):
        for pair in value.items() if parts else ():
            _conform_items(name, pair, tuple, parts)
        return value
    if not issubclass(kind, Sequence):
        for item in value if parts and isinstance(value, Collection) else ():
            _conform(name, item, parts[0])
        if not isinstance(value, kind):
            raise _MismatchError
        return value
    items = list(value)
    has_length = kind is tuple and parts and parts[-1] is not Ellipsis
    hints = parts if has_length else [parts[0] if parts else Any] * len(items)
    if isinstance(value, Set) or len(hints) != len(items):
        raise _MismatchError  # a set has no order
    converted = [_conform(name, item, hint) for item, hint in zip(items, hints, strict=True)]
    if isinstance(value, kind) and all(new is old for new, old in zip(converted, items, strict=True)):
        return value
    return tuple(converted) if kind is tuple else converted


def _is_collection(kind: Any) -> bool:
    plain = isinstance(kind, type) and kind.__module__ in ("builtins", "collections.abc")
    return plain and issubclass(kind, Iterable) and kind not in (str, bytes)


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of PyTorch, which may not be imported."""
    return hasattr(value, "element_size")


def _choices(hint: Any) -> list[Any]:
    if get_origin(hint) in (Annotated, *UNIONS):
        return [choice for part in get_args(hint) for choice in _choices(part)]
    return list(get_args(hint)) if get_origin(hint) is Literal else []


def show_value(value: Any) -> str:
    """Return a value in one short line for a message; empty for objects without a short form.

    >>> show_value("a"), show_value(object())
    ("'a'", '')
    """
    if isinstance(getattr(value, "shape", None), tuple):
        return f"of shape {tuple(value.shape)}"
    if not isinstance(value, str | bytes | int | float | list | tuple | dict | Set | range | Path | None):
        return ""
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        return "with thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def describe_hint(hint: Any) -> str:
    """Return a description of the values of a type for a message.

    >>> describe_hint(str | Sequence[int] | None)
    'None or a sequence of int or str'
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Annotated, type):
        return "a class derived from " * (origin is type) + describe_hint(parts[0])
    if origin is Literal or origin in UNIONS:
        return " or ".join(map(repr, parts) if origin is Literal else sorted(map(describe_hint, parts)))
    if _is_collection(kind := origin or hint):
        items = dict.fromkeys(describe_hint(part) for part in parts if part not in (Ellipsis, Any))
        plain = "sequence" if issubclass(kind, Sequence) else kind.__name__.lower()
        return f"a{'n' * (plain[0] == 'i')} {plain}{' of ' * bool(items)}{' and '.join(items)}"
    names: dict[Any, str] = {None: "None", type(None): "None", Callable: "a function"}
    return names.get(kind) or str(getattr(kind, "__name__", kind))


class _Names(dict[str, Any]):
    """The names that an annotation may contain: those of some modules, and their imports for type checkers."""

    def __missing__(self, name: str) -> Any:
        modules = [sys.modules[module] for module in self["modules"]]
        for module in modules:
            if name in vars(module):
                return vars(module)[name]
        for module in modules:
            loader = getattr(module.__spec__, "loader", None)
            source = ast.parse(loader.get_source(module.__name__)) if loader else ast.Module([], [])
            blocks = [part for part in source.body if isinstance(part, ast.If)]  # if TYPE_CHECKING
            for statement in [statement for block in blocks for statement in block.body]:
                if isinstance(statement, ast.ImportFrom) and statement.module:
                    for alias in statement.names:
                        if name == (alias.asname or alias.name):
                            return getattr(__import__(statement.module, fromlist=[alias.name]), alias.name)
        raise KeyError(name)


@cache
def _parameters(function: Callable[..., Any], owner: type | None) -> tuple[Any, dict[str, Any]]:
    """Return the signature of a function or method, and the hints of its parameters with the ranges of numbers.
    Fields of dataclasses have the ranges of their own annotations."""
    import inspect  # local imports, to keep `import regard` fast
    from dataclasses import is_dataclass

    numbers = function.__name__ != "__init__" or not is_dataclass(owner)
    modules = dict.fromkeys([function.__module__, *(base.__module__ for base in getattr(owner, "__mro__", ()))])
    hints: dict[str, Any] = {}
    for name, annotation in function.__annotations__.items():
        try:
            holder = types.SimpleNamespace(__annotations__={name: annotation} if name != "return" else {})
            hint = get_type_hints(holder, {}, _Names(modules=modules), include_extras=True).get(name, Any)
        except (NameError, ImportError, AttributeError):
            continue  # a type of a package that is not installed
        has_range = any(get_origin(part) is Annotated for part in (hint, *get_args(hint)))
        if numbers and not has_range and hint is not Any and "Tensor" not in str(hint):
            limits = RANGES.get(name, ANY_NUMBER)
            hint = hint if limits is None else Annotated[hint, limits]
        hints[name] = hint
    return inspect.signature(function), hints


def _check_arguments(function: Callable[..., Any], owner: type | None, args: Any, kwargs: Any) -> Any:
    signature, hints = _parameters(function, owner)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        function(*args, **kwargs)  # raises the error of Python, which names the argument
        raise
    for name, value in bound.arguments.items():
        parameter, hint = signature.parameters[name], hints.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: check_value(key, item, hint) for key, item in value.items()}
        elif parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(check_value(name, item, hint) for item in value)
        elif value is not parameter.default:
            bound.arguments[name] = check_value(name, value, hint)
    return bound


def guard(function: Function, owner: type | None = None, *, always: bool = False) -> Function:
    """Return a function that checks the arguments of a user's calls, or `always`. `owner`: class of a method."""
    # `torch.compile` cannot trace the checks.
    compiling = sys.modules["torch"].compiler.is_compiling if "torch" in sys.modules else bool

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if compiling() or not (always or _passes_on(sys._getframe(1).f_globals.get("__name__", ""))):
            return function(*args, **kwargs)
        bound = _check_arguments(function, owner, args, kwargs)
        try:
            return function(*bound.args, **bound.kwargs)
        except TENSOR_ERRORS as error:
            if (message := _explain(error, function, bound.arguments)) is None:
                raise
            raise InputError(message) from error

    return checked  # type: ignore[return-value]


def guard_forward(forward: Function, owner: type) -> Function:
    """Return the `forward` of a layer that checks only its options, and whose errors name the tensors. Training
    calls `forward` at each step, so the other arguments are checked after an error. The function adds 0.5 us to
    a call (an encoder layer takes 200 us or more)."""
    kinds: dict[str, Any] = {"bool": bool, "int | None": int | None, "int": int}
    texts = {name: getattr(hint, "__name__", str(hint)) for name, hint in forward.__annotations__.items()}
    options = {name: kinds[text] for name, text in texts.items() if text in kinds}

    @wraps(forward)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if options:
            for name, value in kwargs.items():
                if name in options and not isinstance(value, options[name]):
                    check_value(name, value, options[name])
        try:
            return forward(*args, **kwargs)
        except TENSOR_ERRORS as error:
            message = _explain(error, forward, _check_arguments(forward, owner, args, kwargs).arguments)
            if message is None:
                raise
            raise InputError(message) from error

    return checked  # type: ignore[return-value]


def _passes_on(module: str) -> bool:
    own_commands = ("regard.cli.", "regard.server.", "regard_lab.cli.", "regard_course.cli.")
    return module.partition(".")[0] not in PACKAGES or module.startswith(own_commands)


def _explain(error: Exception, function: Callable[..., Any], arguments: Mapping[str, Any]) -> str | None:
    """Return a message with the shapes of the tensors for an error that PyTorch raised for them. Returns None
    for other errors: those of custom code, of the device, and those without tensors."""
    import traceback  # local import, to keep `import regard` fast

    file = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    inside = "torch" in file.parts or bool({*PACKAGES} & {*file.parts})
    is_torch = not isinstance(error, TypeError | AttributeError) and type(error).__name__ != "OutOfMemoryError"
    if not (inside and is_torch) or "CUDA" in str(error):
        return None
    texts = []
    for name, value in arguments.items():
        if is_tensor(value):
            kind = str(value.dtype).removeprefix("torch.")
            numbers = f" from {value.min()} to {value.max()}" if value.numel() and "int" in kind else ""
            texts.append(f"{name} {tuple(value.shape)} {kind}{numbers}")
    name = function.__qualname__.removesuffix(".forward").removesuffix(".__init__")
    return f"{name} cannot use {' and '.join(texts)}: {one_line(error, 200)}" if texts else None


_GUARDED: set[type] = set()


def public(member: Member) -> Member:
    if isinstance(member, type):
        guard_class(member)
        return member
    return guard(member)


def guard_class(cls: type) -> None:
    """Add checks to the constructor and the public methods of a class and of its bases in Regard."""
    if cls in _GUARDED:
        return
    _GUARDED.add(cls)
    for base in cls.__mro__[1:]:
        if is_own(base.__module__):
            guard_class(base)
    if getattr(cls, "_is_protocol", False) or issubclass(cls, tuple | BaseException):
        return
    layer = "torch" in sys.modules and issubclass(cls, sys.modules["torch"].nn.Module)
    for name, member in list(vars(cls).items()):
        method = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        is_checked = name == "__init__" or not (name.startswith("_") or (layer and name == "forward"))
        if not isinstance(method, types.FunctionType) or not is_checked:
            continue
        guarded = guard(method, cls, always=layer and name == "__init__")
        setattr(cls, name, guarded if method is member else type(member)(guarded))
    if layer and "forward" in vars(cls):
        cls.forward = guard_forward(vars(cls)["forward"], cls)  # type: ignore[attr-defined]
