"""Attention maps as plain data: what a model answered to one input, and what every layer attended to on the way.

Nothing here knows how they came about, or how they are shown.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from regard.errors import InputError
from regard.viz.sums import Sums

LayerKind = Literal["encoder", "decoder", "cross"]
"""Who attends to whom: inputs to inputs, outputs to outputs, or outputs to inputs."""
CROSS: LayerKind = "cross"
TITLES: dict[LayerKind, str] = {
    "encoder": "Self-attention of the input",
    "decoder": "Self-attention of the outputs",
    "cross": "Encoder-decoder attention",
}


UNFINITE = "not finite"
"""What a weight is called that is NaN or infinite."""


def finite(weights: np.ndarray) -> np.ndarray:
    """Return weights with 0 for those that are NaN or infinite: what a scale is made of."""
    return np.where(np.isfinite(weights), weights, 0)


class LongRows(NamedTuple):
    """The rows of a layer whose map is of squares of steps."""

    side: int
    """Steps along the side of a square."""
    of: Callable[[int], np.ndarray]
    """Works the weights (H, Tk) of one step out again."""
    queries: list[str]
    """What the steps that look are called."""
    keys: list[str]
    """The same of those that are looked at."""


class Patches(NamedTuple):
    """Which steps of a layer are the patches of a picture, row by row: so many from the first one on."""

    first: int
    rows: int
    columns: int


@dataclass(frozen=True, kw_only=True, repr=False)
class LayerMap:
    """The weights of one attention layer for one input."""

    name: str
    """The layer's name in the model, without `.layers`: `encoder.0.self_attention`, ..., `cross`."""
    title: str
    weights: np.ndarray
    """(H, Tq, Tk) float32; every row sums to 1."""
    query_labels: list[str]
    key_labels: list[str]
    relevant: np.ndarray | None = None
    """(Tq, Tk) bool, which keys each query's answer depends on; None where the task does not say."""
    written: bool = False
    """Whether the queries are named by what the model writes at each step, and not by what it reads there."""
    reads: LayerKind | None = None
    """Who attends to whom, where the model has said so; None where the name tells."""
    numbers: tuple[int, ...] | None = None
    """Of the heads that are here, in the model; None where all are."""
    names: tuple[str, ...] | None = None
    """What these are called, where a number does not say it: the mean of several is no head."""
    rows: LongRows | None = None
    """Of an input so long that a weight here is the largest of a square of steps: each row by itself."""
    patches: Patches | None = None
    """Which steps are patches of the picture that was given; None where none are."""

    def number(self, head: int) -> int:
        """Return which head of the model one that is here is."""
        return head if self.numbers is None else self.numbers[head]

    def called(self, head: int) -> str:
        """Return what a head that is here is called."""
        return f"head {self.number(head)}" if self.names is None else self.names[head]

    @property
    def kind(self) -> LayerKind:
        """Who attends to whom."""
        return self.reads or kind_of(self.name)

    def __repr__(self) -> str:
        heads, queries, keys = self.weights.shape
        return f"<LayerMap: {self.name}, {heads} heads, {queries} queries, {keys} keys>"


class Aligned(NamedTuple):
    """A head, and the layer that it belongs to."""

    layer: LayerMap
    head: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Map:
    """One input, its prediction and truth, and the attention of every layer."""

    task: str
    input: str
    prediction: list[int] | str | None
    """The number of each output step, or a text; None where it was not kept."""
    truth: list[int] | str | None
    """The same of the task's oracle; None where it does not know."""
    layers: dict[str, LayerMap]
    """By the layer's name, in the order in which a model runs them; empty for a model without attention."""
    outputs: list[str]
    """Name of each output step: what it answers, or the symbol that it writes."""
    probabilities: list[float]
    """Probability (0 to 1) that the model gives to its prediction, at each output step."""
    position_norms: list[float] | None = None
    """L2 norm of each learned position; None without positions."""
    pixels: np.ndarray | None = None
    """(height, width, 3) uint8, the picture as the model was given it; None where it was given none."""
    note: str = ""
    """What is unusual about the input, such as a length that training has not seen; empty where nothing is."""
    picked: bool = False
    """Whether somebody has chosen its layers: a picture shows all of them then."""
    sums: Sums | None = None
    """How each weight came about; None where that was not asked for, or would be too much."""
    model: str = ""
    """Where the model is kept, or what it is called; empty where nobody says."""
    interventions: tuple[str, ...] = ()
    """What had been done to the model, in words: `cross: head 1 off`."""
    original: "Map | None" = None
    """What the model answers without these interventions; None where there are none, or that was not asked."""
    aligning: tuple[str, int] | None = None
    """Layer and head that were chosen to align by, on many inputs; None where nobody has."""

    def __post_init__(self) -> None:
        """Name in the note the first layer whose weights are NaN or infinite, or else the probabilities."""
        broken = (name for name, layer in self.layers.items() if not np.isfinite(layer.weights).all())
        said = next((f"weights of {name} are {UNFINITE}, the first such layer" for name in broken), "")
        if not said and not np.isfinite(self.probabilities).all():
            said = f"the answer's probabilities are {UNFINITE}"
        if said not in self.note:
            object.__setattr__(self, "note", "; ".join(filter(None, (self.note, said))))

    @property
    def cross(self) -> LayerMap:
        """The (first) layer in which the outputs attend to the inputs; raises `InputError` without one."""
        for layer in self.layers.values():
            if layer.kind == CROSS:
                return layer
        raise InputError(f"the run on {self.task} has no attention to show: train it with attention")

    @property
    def aligned(self) -> Aligned | None:
        """The head that aligns best, of those that read the input; None where none does.

        That which was chosen, where it is here. Else, where the task knows what each output depends on, that with
        most weight there. Else that whose largest weights reach most of the inputs: each input is worth the most
        that any output gives it, which is much where each output has an input of its own, and little where all
        look at one, or everywhere alike.
        """
        return self.chosen_head or best_aligned(layer for layer in self.layers.values() if layer.kind == CROSS)

    @property
    def chosen_head(self) -> Aligned | None:
        """The head that was chosen to align by; None where none was, or it is not here."""
        name, number = self.aligning or ("", 0)
        layer = self.layers.get(name)
        for head in range(0 if layer is None else len(layer.weights)):
            if layer is not None and layer.number(head) == number:
                return Aligned(layer, head)
        return None

    @property
    def drawn(self) -> list[LayerMap]:
        """The layers of a static picture: all, or of a model that writes symbols those that read the input, where
        some do and nobody has chosen others."""
        reading = [layer for layer in self.layers.values() if layer.kind == CROSS and not self.picked]
        return reading if isinstance(self.prediction, str) and reading else list(self.layers.values())


def best_aligned(layers: Iterable[LayerMap]) -> Aligned | None:
    """Return, of all heads of some layers, the one that aligns best; None where there is none."""
    heads = (Aligned(layer, head) for layer in layers for head in range(len(layer.weights)))
    return max(heads, key=_alignment, default=None)


def _alignment(found: Aligned) -> float:
    weights, relevant = finite(found.layer.weights[found.head]), found.layer.relevant
    if relevant is not None:
        return float(weights[relevant].sum())
    return float(weights.max(0, initial=0.0).sum())


def kind_of(name: str) -> LayerKind:
    """Say of a layer, by its name, who attends to whom."""
    parts = name.split(".")
    return "cross" if parts[-1] == CROSS else "encoder" if parts[0] == "encoder" else "decoder"


def layer_map(
    name: str,
    weights: np.ndarray,
    labels: dict[LayerKind, tuple[list[str], list[str]]],
    relevant: np.ndarray | None,
    *,
    written: bool = False,
) -> LayerMap:
    """Return the map of a layer, titled by its kind and number.

    `labels`: of queries and keys by kind; `written`: whether the model writes a sequence, whose symbols name the
    rows.
    """
    kind = kind_of(name)
    queries, keys = labels[kind]
    parts = name.split(".")
    return LayerMap(
        name=name,
        title=TITLES[kind] + (f", layer {parts[1]}" if len(parts) > 2 else ""),
        weights=weights,
        query_labels=queries,
        key_labels=keys,
        relevant=relevant if kind == CROSS else None,
        written=written and kind != "encoder",
    )
