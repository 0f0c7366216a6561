"""Attention maps as plain data: the input, the prediction and the attention weights of each layer.

This module depends neither on a model nor on a way to display maps.
"""

import dataclasses
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from regard.arguments import public
from regard.data.tokenization import WITHOUT_BLANKS, find_script
from regard.errors import InputError

LayerKind = Literal["encoder", "decoder", "cross"]
"""Kind of a layer: queries and keys are both inputs, both outputs, or outputs and inputs."""
CROSS: LayerKind = "cross"
TITLES: dict[LayerKind, str] = {
    "encoder": "Self-attention of the input",
    "decoder": "Self-attention of the outputs",
    "cross": "Encoder-decoder attention",
}
UNFINITE = "not finite"  # how notes and legends describe NaN and infinite weights


def finite(weights: np.ndarray) -> np.ndarray:
    """Replace NaN and infinite weights by 0, so that a color scale can be computed.

    >>> finite(np.array([0.5, np.nan]))
    array([0.5, 0. ])
    """
    return np.where(np.isfinite(weights), weights, 0)


class ScoreStep(NamedTuple):
    """One of the vectors from which a score is computed, for all heads, queries and keys."""

    name: str
    numbers: np.ndarray | None
    """(H, Tq, D) if the vector depends only on the query, (H, Tk, D) if only on the key, otherwise (H, Tq, Tk,
    D). None for a product of two earlier steps."""
    of: Literal["query", "key", "pair", "product"]  # the dependency of the vector, or `product`
    factors: tuple[int, int] | None = None  # indices of the two steps of a product


@dataclass(frozen=True, kw_only=True)
class LayerIntermediates:
    """Intermediate values of one layer; `regard.interpret.explanation.Explanation` contains those of a single query."""

    steps: Sequence[ScoreStep]
    scale: float
    scores: np.ndarray  # (H, Tq, Tk)
    may_see: np.ndarray  # (H, Tq, Tk) bool; True means that the query may attend to the key
    weights: np.ndarray  # (H, Tq, Tk)
    values: np.ndarray  # (H, Tk, Dv)
    context: np.ndarray  # (H, Tq, Dv)
    added: np.ndarray  # (Tq, D)
    own_part: np.ndarray | None  # (H, Tq, D)
    before_norm: np.ndarray | None  # (Tq, D)
    after_norm: np.ndarray | None  # (Tq, D)


@dataclass(frozen=True, kw_only=True)
class AnswerIntermediates:
    """The model's answer at one output step."""

    answer: str
    """The predicted class: the likeliest class, unless a search selected another class."""
    probability: float
    """Probability of the answer (0 to 1)."""
    state: list[float]
    """Input of the last matrix product of the model, (D)."""
    classes: list[str]
    """The likeliest first."""
    logits: list[float]
    probabilities: list[float]
    """Softmax of the logits over all classes (0 to 1)."""


@dataclass(frozen=True, kw_only=True)
class Intermediates:
    """Intermediate values of all layers of a map, from which a page explains each weight without the model."""

    layers: dict[str, LayerIntermediates]
    answers: Sequence[AnswerIntermediates]  # one for each output step; empty if they were not recorded


class LongRows(NamedTuple):
    """Exact rows of a layer whose map contains only the maximum of each square of steps."""

    side: int  # steps along the side of a square
    of: Callable[[int], np.ndarray]  # recomputes the weights (H, Tk) of one query
    queries: list[str]  # labels of the queries
    keys: list[str]  # labels of the keys


class Patches(NamedTuple):
    """The steps of a layer that are patches of an image: index of the first patch, and the shape of the grid."""

    first: int
    rows: int
    columns: int


@public
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
    """(Tq, Tk) bool, True for the keys on which each answer depends. None if they are not defined."""
    written: bool = False
    """Whether query labels are the symbols that the model writes at each step, not the symbols that it reads."""
    kind_override: LayerKind | None = None
    """Kind of the layer, if the model reported it; None: derived from the name."""
    head_numbers: tuple[int, ...] | None = None
    """Numbers of the heads in the model; None if the map contains all heads."""
    head_names: tuple[str, ...] | None = None
    """Names of heads that are not described by numbers, such as the mean of several heads."""
    rows: LongRows | None = None
    """Exact rows of a long input, for which each weight of this map is the maximum of a square of steps."""
    patches: Patches | None = None
    """Steps that are patches of the input image; None without an image."""

    def head_number(self, head: int) -> int:
        """Return the number that a head of this map has in the model."""
        return head if self.head_numbers is None else self.head_numbers[head]

    def head_name(self, head: int) -> str:
        """Return the display name of a head of this map."""
        return f"head {self.head_number(head)}" if self.head_names is None else self.head_names[head]

    @property
    def kind(self) -> LayerKind:
        """Kind of the layer: `encoder`, `decoder` or `cross`."""
        return self.kind_override or layer_kind(self.name)

    def __repr__(self) -> str:
        heads, queries, keys = self.weights.shape
        return f"<LayerMap: {self.name}, {heads} heads, {queries} queries, {keys} keys>"


class AlignedHead(NamedTuple):
    """A head and its layer."""

    layer: LayerMap
    head: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Map:
    """One input, its prediction and truth, and the attention of every layer."""

    task: str
    input: str
    prediction: list[int] | str | None
    """The class of each output step, or a text; None if no prediction was recorded."""
    truth: list[int] | str | None
    """The correct answer in the same form as the prediction; None if unknown."""
    layers: dict[str, LayerMap]
    """By layer name, in the order of the forward pass; empty for a model without attention."""
    outputs: list[str]
    """Label of each output step: the answer, or the generated symbol."""
    probabilities: list[float]
    """Probability (0 to 1) of the prediction at each output step."""
    position_norms: list[float] | None = None
    """L2 norm of each learned position; None without positions."""
    pixels: np.ndarray | None = None
    """(height, width, 3) uint8, the image as the model received it; None without an image."""
    note: str = ""
    """Remark on the input, such as a length not seen in training; may be empty."""
    layers_selected: bool = False
    """Whether the user selected the layers; a static picture then shows all selected layers."""
    sums: Intermediates | None = None
    """Intermediate values of each weight; None if not requested or too many."""
    model: str = ""
    """Path or name of the model; may be empty."""
    interventions: tuple[str, ...] = ()
    """Active interventions in words: `cross: head 1 off`."""
    original: "Map | None" = None
    """The map without the interventions; None without interventions, or if this map was not requested."""
    alignment_head: tuple[str, int] | None = None
    """The layer and the head that align best over many inputs; None if no head was chosen."""

    def __post_init__(self) -> None:
        """Add a note about the first layer with NaN or infinite weights, or else about such probabilities."""
        broken = (name for name, layer in self.layers.items() if not np.isfinite(layer.weights).all())
        remark = next((f"weights of {name} are {UNFINITE}, the first such layer" for name in broken), "")
        if not remark and not np.isfinite(self.probabilities).all():
            remark = f"the answer's probabilities are {UNFINITE}"
        if remark not in self.note:
            object.__setattr__(self, "note", "; ".join(filter(None, (self.note, remark))))

    @property
    def cross(self) -> LayerMap:
        """The first layer in which outputs attend to inputs; raises `InputError` without one."""
        for layer in self.layers.values():
            if layer.kind == CROSS:
                return layer
        raise InputError(f"the run on {self.task} has no attention to show: train a model with attention")

    @property
    def aligned_head(self) -> AlignedHead | None:
        """The head that aligns outputs with inputs best; None without encoder-decoder attention.

        The result is the head chosen for alignment, if this map contains it. Otherwise, if the task defines the
        relevant keys, the result is the head with most weight on these keys. Otherwise, the result is the head with the
        largest sum over keys of the maximal weight that any query gives to the key. This sum is large if different
        outputs attend to different inputs, and small if all outputs attend to the same input or attend uniformly.
        """
        return self.selected_head or best_aligned(layer for layer in self.layers.values() if layer.kind == CROSS)

    @property
    def selected_head(self) -> AlignedHead | None:
        """The head chosen for alignment; None if no head was chosen, or if this map does not contain it."""
        name, number = self.alignment_head or ("", 0)
        layer = self.layers.get(name)
        for head in range(0 if layer is None else len(layer.weights)):
            if layer is not None and layer.head_number(head) == number:
                return AlignedHead(layer, head)
        return None

    @property
    def plotted_layers(self) -> list[LayerMap]:
        """The layers of a static picture.

        Otherwise the result contains all layers. For a model that writes symbols, the result contains only the
        encoder-decoder layers if such layers exist and the user has not selected layers.
        """
        cross = [layer for layer in self.layers.values() if layer.kind == CROSS and not self.layers_selected]
        return cross if isinstance(self.prediction, str) and cross else list(self.layers.values())


def best_aligned(layers: Iterable[LayerMap]) -> AlignedHead | None:
    """Return the head of `layers` that aligns best; None if there are no heads."""
    heads = (AlignedHead(layer, head) for layer in layers for head in range(len(layer.weights)))
    return max(heads, key=_alignment_score, default=None)


def _alignment_score(candidate: AlignedHead) -> float:
    weights, relevant = finite(candidate.layer.weights[candidate.head]), candidate.layer.relevant
    if relevant is not None:
        return float(weights[relevant].sum())
    return float(weights.max(0, initial=0.0).sum())


def mean_distance(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the mean total variation distance (...) between the rows of weights (..., Tq, Tk) of pairs, over the steps
    and inputs that both weights of a pair have."""
    distances = []
    for first, second in pairs:
        steps, inputs = (min(sizes) for sizes in zip(first.shape[-2:], second.shape[-2:], strict=True))
        # Half of the summed absolute differences is the total variation distance.
        difference = np.abs(first[..., :steps, :inputs] - second[..., :steps, :inputs])
        distances.append(difference.sum(-1).mean(-1) / 2)
    return np.asarray(np.mean(distances, 0))


def layer_kind(name: str) -> LayerKind:
    """Derive the kind of a layer from its name.

    >>> layer_kind("encoder.0.self_attention")
    'encoder'
    >>> layer_kind("decoder.1.cross")
    'cross'
    """
    parts = name.split(".")
    return "cross" if parts[-1] == CROSS else "encoder" if parts[0] == "encoder" else "decoder"


def make_layer_map(
    name: str,
    weights: np.ndarray,
    labels: dict[LayerKind, tuple[list[str], list[str]]],
    relevant: np.ndarray | None,
    *,
    written: bool = False,
) -> LayerMap:
    """Build the map of a layer from its weights (H, Tq, Tk), with a title from its kind and number.

    `labels`: of queries and keys, by kind. `written`: whether the model writes a sequence, which labels the queries.
    """
    kind = layer_kind(name)
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


WORD_START = "▁"  # begins the label of a word's first piece
SHOWN_WORD_START = "␣"  # shown instead of it, because `▁` looks like a bar


def merge_words(layer: LayerMap) -> LayerMap:
    """Merge the word pieces of a layer into words; labels without `▁` are already words.

    A word receives the sum of the weights of its pieces and gives the mean of their rows, so every row still sums to
    1 (Clark et al. 2019, section 4.1).
    """
    queries, keys = _group_pieces(layer.query_labels), _group_pieces(layer.key_labels)
    weights = _sum_groups(layer.weights, keys, axis=2)
    weights = _sum_groups(weights, queries, axis=1) / np.array([len(word) for word in queries])[:, None]
    relevant = layer.relevant
    if relevant is not None:
        relevant = _sum_groups(_sum_groups(relevant.astype(int), keys, axis=1), queries, axis=0) > 0
    return dataclasses.replace(
        layer,
        weights=weights.astype(layer.weights.dtype),
        query_labels=_join_pieces(layer.query_labels, queries),
        key_labels=_join_pieces(layer.key_labels, keys),
        relevant=relevant,
    )


def word_pieces(labels: list[str]) -> list[list[int]] | None:
    """Return the indices of the pieces of each word; None if the labels are not word pieces.

    >>> word_pieces(["▁un", "seen", "▁word"])
    [[0, 1], [2]]
    """
    return _group_pieces(labels) if any(label.startswith(WORD_START) for label in labels) else None


def _group_pieces(labels: list[str]) -> list[list[int]]:
    if not any(label.startswith(WORD_START) for label in labels):
        return [[index] for index in range(len(labels))]
    words: list[list[int]] = []
    for index, label in enumerate(labels):
        characters = label.removeprefix(WORD_START)
        punctuation = all(_is_punctuation(character) for character in characters)
        special = label[:1] + label[-1:] in ("<>", "[]")
        previous = labels[index - 1] if index else ""
        after_mark = len(previous.removeprefix(WORD_START)) == 1 and _is_punctuation(previous[-1])
        # A word continues after a separate `▁` piece, but not after punctuation or a special symbol, and not in
        # scripts without spaces, such as Thai, in which each piece is a word (see `word_spans`).
        dense = any(find_script(letter) in WITHOUT_BLANKS for letter in previous[-1:] + characters[:1])
        new_word = previous != WORD_START and (punctuation or special or not words or after_mark or dense)
        if label.startswith(WORD_START) or new_word:
            words.append([])
        words[-1].append(index)
    return words


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] == "P"


def _join_pieces(labels: list[str], words: list[list[int]]) -> list[str]:
    return ["".join(labels[index] for index in word).removeprefix(WORD_START) or WORD_START for word in words]


def _sum_groups(values: np.ndarray, groups: list[list[int]], axis: int) -> np.ndarray:
    return np.stack([values.take(group, axis).sum(axis) for group in groups], axis)


def shown_label(label: str) -> str:
    """Return the display form of a label, in which `␣` marks the start of a word.

    >>> shown_label("▁word")
    '␣word'
    """
    return label.replace(WORD_START, SHOWN_WORD_START)


def answer_text(answer: list[int] | str | None) -> str:
    """Return the display form of a prediction or truth.

    >>> answer_text([2, 0]), answer_text("two"), answer_text(None)
    ('2 0', "'two'", 'unknown')
    """
    if answer is None:
        return "unknown"
    return repr(answer) if isinstance(answer, str) else " ".join(map(str, answer))


def intervention_lines(attention: Map) -> list[str]:
    """Return caption lines with the interventions, if any, and the prediction without interventions."""
    if not attention.interventions:
        return []
    lines = [f"Interventions: {'; '.join(attention.interventions)}"]
    if attention.original is not None:
        lines.append(f"Prediction without interventions: {answer_text(attention.original.prediction)}")
    return lines


def figure_metadata(attention: Map, layers: Sequence[LayerMap], scale: str) -> dict[str, str]:
    """Return the metadata of a figure of `layers`, by name; `scale`: description of the color scale."""
    heads = {layer.name: ", ".join(map(layer.head_name, range(len(layer.weights)))) for layer in layers}
    metadata = {
        "model": attention.model or attention.task,
        "input": attention.input,
        "layers": "; ".join(f"{name} ({names})" for name, names in heads.items()),
        "interventions": "; ".join(attention.interventions) or "none",
        "scale": scale,
    }
    if attention.prediction is not None:
        metadata["prediction"] = answer_text(attention.prediction)
    if attention.original is not None:
        metadata["prediction without interventions"] = answer_text(attention.original.prediction)
    if attention.truth is not None:
        metadata["truth"] = answer_text(attention.truth)
    if attention.note:
        metadata["note"] = attention.note
    return metadata


def patch_weights(layer: LayerMap) -> np.ndarray:
    """Return the weight of each patch (H, rows, columns) for the class token, or as the mean over all queries."""
    assert layer.patches is not None
    first, rows, columns = layer.patches
    weights = layer.weights[:, 0] if first else layer.weights.mean(1)
    return weights[:, first : first + rows * columns].reshape(-1, rows, columns)


def query_description(layer: LayerMap) -> str:
    if layer.patches is not None and layer.patches.first:
        return f"weights of {layer.query_labels[0]}, from 0 to the largest weight of the layer"
    return "mean weights of all patches, from 0 to the largest weight of the layer"
