"""Code of a user's own, by the name `module:Class`."""

import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from regard.errors import InputError, unknown

Base = TypeVar("Base")
Built = TypeVar("Built")

_FORM = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):[^\W\d]\w*")


def module_of(name: str) -> str | None:
    """Return the module that `module:Class` names; None for a name of another form, which is never imported."""
    found = _FORM.fullmatch(name)
    return None if found is None else found["module"]


class OwnCodeError(InputError):
    """Code of a user's own that is not found, or fails; a run that names it need not be damaged."""


def import_own(what: str, name: str) -> object:
    """Return what `module:Class` names, a `what` such as a score.

    Raises `OwnCodeError` where the name has another form, or its module is not found, fails, or has no such
    class.
    """
    module = module_of(name)
    if module is None:
        raise OwnCodeError(
            f"{what} {name!r} is not of the form module:Class, as in lookback:LookBack: name a class of a module"
        )
    try:
        return getattr(importlib.import_module(module), name.rpartition(":")[2])
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _failed(what, name, error) from error
        raise OwnCodeError(
            f"{what} {name!r} is not found: there is no module {module!r} in {str(Path.cwd())!r} nor on Python's "
            f"path; go to the folder it lies in, or put that into PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:  # a user's module can fail in any way
        raise _failed(what, name, error) from error


def own_class(what: str, name: str, base: type[Base], choices: Iterable[str] = ()) -> type[Base]:
    """Return the class derived from `base` that `module:Class` names, a `what` such as a score.

    Raises `InputError` for a name without a colon, which is none of the `choices` there are, and `OwnCodeError`
    for a class that cannot be imported or is another one.
    """
    if ":" not in name:
        raise unknown(what, name, choices, other="module:Class")
    found = import_own(what, name)
    if not (isinstance(found, type) and issubclass(found, base)):
        where = ".".join(base.__module__.split(".")[:2])  # where it is exported
        raise OwnCodeError(
            f"{what} {name!r} is not a class derived from {where}.{base.__name__}: derive it from that"
        )
    return found


def build_own(what: str, name: str, build: Callable[[], Built], sizes: str, takes: str) -> Built:
    """Return what `build` makes of a user's class; raises `OwnCodeError`, with the sizes that it was given and
    what it is to take, where that fails in whatever way."""
    try:
        return build()
    except InputError:
        raise
    except Exception as error:
        raise OwnCodeError(
            f"{what} {name!r} cannot be built for {sizes}: {told(error)}; it takes {takes}"
        ) from error


def _failed(what: str, name: str, error: BaseException) -> OwnCodeError:
    return OwnCodeError(f"{what} {name!r} cannot be imported: {told(error)}; mend its module")


def told(error: BaseException, most: int = 300) -> str:
    """Say in one line what a user's code has raised."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= most else text[: most - 1] + "…"
