"""Names of layers: one name in records, interventions, maps and results, and the names that a user may type."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from regard.errors import is_own, unknown_choice


def short_name(name: str) -> str:
    """Return a layer's name without `.layers`.

    >>> short_name("decoder.layers.0.cross")
    'decoder.0.cross'
    """
    return name.replace(".layers.", ".")


def plain_name(name: str) -> str:
    """Return a module's name without the wrapper of `torch.compile`."""
    if "_orig_mod" not in name:  # a recording calls this function for every module
        return name
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def layer_name(model: Any, path: str) -> str:
    """Return the name of a module in records, interventions, maps and results: its path in the model.

    Names in Regard's own models leave out `.layers`; in every model, a user may omit `.layers` (`find_name`).

    >>> layer_name(object(), "decoder.layers.0.self_attn")
    'decoder.layers.0.self_attn'
    """
    return layer_namer(model)(path)


def layer_namer(model: Any) -> Callable[[str], str]:
    """Return the function of a path that `layer_name` is for one model."""
    cls: Any = type(getattr(model, "_orig_mod", model))
    return (lambda path: short_name(plain_name(path))) if _is_own_model(cls) else plain_name


@cache
def _is_own_model(cls: Any) -> bool:
    return any(is_own(base.__module__) for base in cls.__mro__)


def find_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name in `names` that is equal to a name, or equal if both leave out `.layers`; None if no name is.

    >>> find_name("decoder.0.cross", ["decoder.layers.0.cross"])
    'decoder.layers.0.cross'
    """
    names = list(names)
    if name in names:
        return name
    return next((known for known in names if short_name(known) == short_name(name)), None)


def known_name(name: str, names: Iterable[str], what: str = "layer") -> str:
    """Return the name in `names` that `find_name` returns; raises `InputError` if there is none."""
    names = list(names)
    if (known := find_name(name, names)) is None:
        raise unknown_choice(what, name, names)
    return known
