"""Where a learner's module keeps its parameters, and which of the exercise's weights belongs where.

Told by shape first, then by name, then by the order in which they were defined.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.course.arrays import torch_of
from regard.course.exercises.exercise import Array

WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "letter": {
        "q": ("q", "wq", "query", "queries", "toq", "wquery"),
        "k": ("k", "wk", "key", "keys", "tok", "wkey"),
        "v": ("v", "wv", "value", "values", "tov", "wvalue"),
        "o": ("o", "wo", "out", "output", "unify", "wout", "proj", "final"),
    },
    "block": {
        "cross": (
            "cross",
            "src",
            "memory",
            "encdec",
            "encatt",
            "encattn",
            "multihead",
            "context",
            "second",
            "mem",
        ),
        "own": ("self", "own", "masked", "selfattn", "causal", "first"),
        "inner": ("ff", "ffn", "feed", "feedforward", "mlp", "linear", "fc", "pos", "positionwise", "inner"),
    },
    "side": {
        "encoder": ("encoder", "encoders", "enc", "source", "src", "encoderlayers"),
        "decoder": ("decoder", "decoders", "dec", "target", "tgt", "trg", "decoderlayers"),
    },
}
"""How learners call things, in pieces of names."""
IMPOSSIBLE = 1e6
TOO_STRANGE = 60.0
"""What no bias, gain or shift may be unlike its place."""
Writer = Callable[[Array, Array], None]
"""Writes a weight of the exercise into a buffer of the shape of a parameter."""


@dataclass(frozen=True)
class Reading:
    """One way to understand a module's parameters, where there are several."""

    turned: bool = False
    """Square matrices that are no nn.Linear's are applied from the left."""
    by_head: bool = False
    """A packed projection has queries, keys and values of head 1 first, then of head 2."""
    strided: int = 0
    """Heads take every h-th column: 1 also where they are joined, 2 only where they are split."""
    letters: str = "qkvo"
    """In which order projections without telling names are queries, keys, values and output."""


@dataclass
class Slot:
    """A parameter, or a part of one that packs several."""

    name: str
    shape: tuple[int, ...]
    owner: str
    """linear, embedding, norm or other."""
    ones: bool
    """Whether it starts as ones, as a norm's gain does."""
    packed: tuple[int, int] | None = None
    """Which part, and of how many."""
    features: dict[str, str] = field(default_factory=dict)


def parameters_of(thing: Any) -> dict[str, tuple[Any, str]]:
    """Return every parameter of a module, or every array of any other object, and what kind of part owns it."""
    torch = torch_of()
    if torch is not None and isinstance(thing, torch.nn.Module):
        owners = {}
        for path, module in thing.named_modules():
            for name, each in module.named_parameters(recurse=False):
                owners[f"{path}.{name}".lstrip(".")] = each, _owner(module, torch)
        once = {id(value): name for name, (value, _) in reversed(owners.items())}
        return {name: owners[name] for name in owners if name in once.values()}
    return dict(_arrays(thing, "", 0))


def _owner(module: Any, torch: Any) -> str:
    if isinstance(module, torch.nn.Linear):
        return "linear"
    if isinstance(module, torch.nn.Embedding):
        return "embedding"
    return "norm" if "norm" in type(module).__name__.lower() else "other"


def _arrays(thing: Any, path: str, depth: int) -> Iterator[tuple[str, tuple[Any, str]]]:
    if isinstance(thing, np.ndarray):
        if thing.dtype.kind == "f":
            yield path, (thing, "norm" if "norm" in path.lower() else "other")
    elif depth < 4:
        inside = thing if isinstance(thing, Mapping) else getattr(thing, "__dict__", None)
        if isinstance(thing, list | tuple):
            inside = dict(enumerate(thing))
        for name, each in (inside or {}).items():
            yield from _arrays(each, f"{path}.{name}".lstrip("."), depth + 1)


def tokens_of(name: str) -> list[str]:
    """Return the pieces of a parameter's name."""
    spread = re.sub(r"([a-z])([A-Z])", r"\1_\2", name)
    return [each for each in re.split(r"[._]|(?<=[a-zA-Z])(?=\d)|(?<=\d)(?=[a-zA-Z])", spread.lower()) if each]


def features_of(name: str) -> dict[str, str]:
    """Return what a parameter's name says of it."""
    pieces = tokens_of(name)
    found = {}
    for kind, values in WORDS.items():
        for piece in pieces if kind == "side" else reversed(pieces):
            hit = next((value for value, known in values.items() if piece in known), None)
            if hit:
                found[kind] = hit
                break
    numbers = [piece for piece in pieces if piece.isdigit()]
    if numbers:
        found["first"] = numbers[0]
    return found


def role_features(name: str, stacked: bool, decodes: bool = False) -> dict[str, str]:
    """Return what a weight of the exercise is, in the same terms."""
    *path, last = name.partition("@")[0].split(".")
    head, _, letter = last.partition("_")
    found = {}
    if path and path[0] in ("encoder", "decoder"):
        found["side"], found["first"] = path[0], path[1]
    if letter in tuple("qkvo") and head in ("w", "cross"):
        found |= {"letter": letter, "block": "cross" if head == "cross" else "own"}
    elif head in ("w", "b") and letter in ("1", "2"):
        found |= {"block": "inner"}
    elif head in ("gain", "shift"):
        blocks = ("own", "cross", "inner") if decodes or "decoder" in path else ("own", "inner")
        found |= {"kind": head, "block": blocks[int(letter) - 1]}
    elif last in ("source", "target"):
        found["side"] = "encoder" if last == "source" else "decoder"
    if not stacked:
        found.pop("first", None)
    return found


def slots_of(parameters: Mapping[str, tuple[Any, str]], width: int) -> list[Slot]:
    """Return the parameters as slots; one that packs two or three projections is as many."""
    found = []
    for name, (value, owner) in parameters.items():
        shape = tuple(value.shape)
        ones = bool((value == 1).all()) if len(shape) == 1 and shape else False
        parts = next((n for n in (3, 2) if shape in ((n * width, width), (width, n * width))), 1)
        if parts == 1 or owner == "embedding" or not _packs(name, owner, shape, width):
            found.append(Slot(name, shape, owner, ones, None, features_of(name)))
            continue
        order = "kqv" if "kqv" in name.lower() else "qkv"
        for part, letter in enumerate(order[-parts:]):
            known = {**features_of(name), "letter": letter}
            found.append(Slot(name, (width, width), owner, False, (part, parts), known))
    return found


def _packs(name: str, owner: str, shape: tuple[int, ...], width: int) -> bool:
    """Whether a parameter of two or three times the width is packed projections, not a wide layer or a
    narrowing one.
    """
    return owner == "other" or (owner == "linear" and shape[0] != width)


def writer_of(role: str, shape: tuple[int, ...], slot: Slot, heads: int, reading: Reading) -> Writer | None:
    """Return how a weight of `shape` gets into a slot, or None where it does not fit."""
    if len(shape) == 1:
        fits = math.prod(slot.shape) == shape[0] and max(slot.shape, default=0) == shape[0]
        return (lambda weight, buffer: np.copyto(buffer, weight.reshape(buffer.shape))) if fits else None
    if slot.packed is not None:
        return _packed_writer(slot, heads, reading) if shape == slot.shape else None
    rows, columns = shape
    if slot.owner == "embedding" or role in ("source", "target"):
        return _plain if slot.shape == shape else None
    if len(slot.shape) == 3:
        return _by_head(shape, slot.shape, heads)
    upright, turned = slot.shape == shape, slot.shape == (columns, rows)
    if slot.owner == "linear":
        free = role == "w_a" and rows != columns
        return _turned if turned else _plain if upright and free else None
    if rows == columns and upright:
        return _turned if reading.turned else _plain
    return _plain if upright else _turned if turned else None


def _plain(weight: Array, buffer: Array) -> None:
    buffer[...] = weight


def _turned(weight: Array, buffer: Array) -> None:
    buffer[...] = weight.T


def _by_head(shape: tuple[int, ...], slot: tuple[int, ...], heads: int) -> Writer | None:
    """Return how a square weight gets into three dimensions, one of which is heads."""
    rows, columns = shape
    ways: dict[tuple[int, ...], Callable[[Array], Array]] = {
        (heads, rows, columns // heads): lambda w: w.reshape(rows, heads, -1).transpose(1, 0, 2),
        (rows, heads, columns // heads): lambda w: w.reshape(rows, heads, -1),
        (heads, rows // heads, columns): lambda w: w.reshape(heads, -1, columns),
    }
    way = ways.get(slot)
    return None if way is None else (lambda weight, buffer: np.copyto(buffer, way(weight)))


def _packed_writer(slot: Slot, heads: int, reading: Reading) -> Writer:
    assert slot.packed is not None, "only packed slots have parts"
    part, parts = slot.packed

    def write(weight: Array, buffer: Array) -> None:
        across = buffer if buffer.shape[0] < buffer.shape[1] else buffer.T  # (D, parts * D)
        width = len(weight)
        if reading.by_head:
            whole = across.copy()
            whole.reshape(width, heads, parts, -1)[:, :, part] = weight.reshape(width, heads, -1)
            across[...] = whole
        else:
            across[:, part * width : (part + 1) * width] = weight

    return write


def readings(parameters: Mapping[str, tuple[Any, str]], width: int, heads: int, letters: bool) -> list[Reading]:
    """Return the ways to understand these parameters, the usual one first."""
    shapes = [(tuple(value.shape), owner) for value, owner in parameters.values()]
    square = any(owner == "other" and shape == (width, width) for shape, owner in shapes)
    packed = any(width * 3 in shape or width * 2 in shape for shape, _ in shapes)
    strides = (0, 1, 2) if letters and heads > 1 else (0,)
    usual = [
        Reading(turned, by_head, strided)
        for strided in strides
        for by_head in ((False, True) if packed else (False,))
        for turned in ((False, True) if square else (False,))
    ]
    told = all(
        "letter" in features_of(name)
        for name, (value, _) in parameters.items()
        if tuple(value.shape) == (width, width)
    )
    if not letters or told:
        return usual
    orders = ["".join(each) for each in itertools.permutations("qkvo")][1:]
    return [*usual, *(Reading(turned=turned, letters=each) for turned in (False, square) for each in orders)]


def assigned(
    weights: Mapping[str, Array], slots: list[Slot], heads: int, reading: Reading
) -> dict[str, tuple[Slot, Writer]]:
    """Return for each weight of the exercise the slot that it belongs to, where there is one."""
    names = list(weights)
    sides = {name.split(".")[0] for name in names if "." in name}
    cost = np.full((len(names), len(slots)), IMPOSSIBLE)
    writers: dict[tuple[int, int], Writer] = {}
    ranks = _ranks(_reordered(names, reading.letters), slots, weights)
    for row, name in enumerate(names):
        wanted = role_features(name, bool(sides), "cross_q" in weights)
        for column, slot in enumerate(slots):
            writer = writer_of(name.split(".")[-1], weights[name].shape, slot, heads, reading)
            if writer is not None:
                strange = _strangeness(wanted, slot)
                if weights[name].ndim == 1 and strange > TOO_STRANGE:
                    continue
                apart = ranks[name] - ranks[slot.name, slot.packed]
                cost[row, column] = strange + 0.01 * apart**2
                writers[row, column] = writer
    from scipy.optimize import linear_sum_assignment  # takes a quarter of a second

    rows, columns = linear_sum_assignment(cost)
    return {
        names[row]: (slots[column], writers[row, column])
        for row, column in zip(rows, columns, strict=True)
        if (row, column) in writers and cost[row, column] < IMPOSSIBLE / 2
    }


def _reordered(names: list[str], letters: str) -> list[str]:
    """Return names with the four projections of each attention in the order of `letters`."""
    found = list(names)
    for place, name in enumerate(names):
        if name.endswith("_q") and [each[-1] for each in names[place : place + 4]] == list("qkvo"):
            found[place : place + 4] = [name[:-1] + letter for letter in letters]
    return found


def _ranks(names: list[str], slots: list[Slot], weights: Mapping[str, Array]) -> dict[Any, int]:
    """Return where each weight and each slot stands among those of its shape."""
    counts: dict[Any, int] = {}
    found: dict[Any, int] = {}
    for name in names:
        key = tuple(sorted(weights[name].shape))
        found[name] = counts[key] = counts.get(key, -1) + 1
    counts.clear()
    for slot in slots:
        key = tuple(sorted(slot.shape))
        found[slot.name, slot.packed] = counts[key] = counts.get(key, -1) + 1
    return found


def _strangeness(wanted: Mapping[str, str], slot: Slot) -> float:
    """Return how little a slot looks like what is wanted."""
    cost = 0.0
    for kind, value in wanted.items():
        if kind == "kind":
            cost += _unlike_norm(value, slot)
        elif kind in slot.features:
            weight = 40.0 if kind in ("side", "first") else 10.0
            cost += -weight if slot.features[kind] == value else weight
    if slot.owner == "norm" and "kind" not in wanted:
        cost += 100
    if "kind" not in wanted and wanted.get("block") == "inner" and "letter" in slot.features:
        cost += 80 if len(slot.shape) == 1 and slot.features.get("block") != "inner" else 15
    return cost


def _unlike_norm(kind: str, slot: Slot) -> float:
    cost = 0.0 if slot.owner == "norm" else 30.0 if slot.owner == "other" else 100.0
    shifts = any(piece in ("bias", "shift", "beta", "b") for piece in tokens_of(slot.name)[-2:])
    return cost + (0.0 if (kind == "shift") == (shifts and not slot.ones) else 20.0)
