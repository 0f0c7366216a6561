"""What the view is given: maps as plain data, in the shape of their JSON.

The shape is written here, and once more for the type checker of the view (`view/data.js`); a test holds that one
to this. `regard.viz.page` makes such data of maps.
"""

from typing import Literal, NotRequired, TypedDict

import numpy as np


class PackedWeights(TypedDict):
    """Weights (H, Tq, Tk), rounded: a small part of what they are as numbers in JSON."""

    packed: str
    """Base64 of zlib of unsigned 16-bit numbers, low byte first, head by head and row by row."""
    largest: float
    """What the number `levels` stands for."""
    levels: int
    """65535; 65534 where 65535 stands for weights that are NaN or infinite."""
    heads: int


class LayerData(TypedDict):
    """The attention of one layer."""

    name: str
    title: str
    kind: Literal["encoder", "decoder", "cross"]
    queries: list[str]
    keys: list[str]
    query_words: list[list[int]] | None
    """The labels that are pieces of each word; None where labels are no pieces of words."""
    key_words: list[list[int]] | None
    weights: PackedWeights | np.ndarray
    """(H, Tq, Tk); an array becomes nested lists."""
    relevant: list[list[int]] | None
    """Pairs of a query and a key that its answer depends on; None where the task does not say."""
    square: int
    """Steps along the side of the square that a weight is the largest of; 1: of each step its own weight."""
    patches: list[int] | None
    """Of steps that are patches of a picture: the first, and how many rows and columns of them there are."""
    written: bool
    """Whether queries are named by what is written at each step, and not by what is read there."""
    names: list[str] | None
    """What its heads are called; None where that is their place: head 0, head 1."""


class LargeData(TypedDict):
    """One of the largest weights of a row."""

    step: int
    key: str
    weight: float


class RowData(TypedDict):
    """The weights of one step of a long input, exactly."""

    query: str
    weights: list[float]
    largest: list[LargeData]
    """The largest first."""


class NumbersData(TypedDict):
    """Numbers as they were computed, in single precision."""

    numbers: str
    """Base64 of zlib of them, 4 bytes each, low byte first, the last dimension running fastest."""
    shape: list[int]


class StepData(TypedDict):
    """One of the vectors that a score is made of."""

    name: str
    of: Literal["query", "key", "pair", "product"]
    """What it depends on; `product`: it is that of two steps before it."""
    numbers: NumbersData | None
    """(H, Tq, D), (H, Tk, D) or (H, Tq, Tk, D)."""
    factors: list[int] | None
    """Which steps it is the product of."""


class LayerSumsData(TypedDict):
    """How the weights of a layer came about: see `regard.viz.sums`."""

    steps: list[StepData]
    scale: float
    scores: NumbersData
    may_see: NumbersData
    weights: NumbersData
    values: NumbersData
    context: NumbersData
    added: NumbersData
    own_part: NumbersData | None
    before_norm: NumbersData | None
    after_norm: NumbersData | None


class AnswerData(TypedDict):
    """What a model made of the state of one output step."""

    answer: str
    probability: float
    state: list[float]
    classes: list[str]
    logits: list[float]
    probabilities: list[float]


class SumsData(TypedDict):
    """How all weights of a map came about."""

    layers: dict[str, LayerSumsData]
    answers: list[AnswerData]


class MapData(TypedDict):
    """One input, what was answered, and the attention of every layer."""

    task: str
    input: str
    prediction: list[int] | str | None
    truth: list[int] | str | None
    outputs: list[str]
    probabilities: list[float]
    """`null` where they are not finite."""
    layers: list[LayerData]
    opens: str | None
    """The layer to begin with: of those that read the input, the one that aligns best; None without any."""
    head: int | None
    """The head of it to begin with, which was chosen to align by; None where none was."""
    picture: str | None
    """The picture that was given, as the address `data:image/png;base64,...`; None where none was."""
    note: str
    """What is unusual about the input; empty where nothing is."""
    model: str
    """Where the model is kept, or what it is called; empty where nobody says."""
    interventions: list[str]
    """What had been done to the model, in words."""
    original_prediction: list[int] | str | None
    """What it answers without the interventions; None where there are none, or that was not asked."""
    sums: NotRequired[SumsData]
    """Where they were kept."""


class PlaybackData(TypedDict):
    """How attention on one input formed during training."""

    steps: list[int]
    """Training steps behind each frame."""
    losses: list[list[float]]
    """Pairs of a step and the loss of its batch."""
    frames: list[MapData]


class InterventionData(TypedDict):
    """What is done to heads, or to one of their weights."""

    layer: str
    heads: list[int]
    to: Literal["off", "uniform"] | float
    query: NotRequired[int]
    key: NotRequired[int]


class StrengthData(TypedDict):
    """How purely a head has a role: 0 as even attention, 1 as the role alone."""

    mean: float
    low: float
    """Of the 95 % interval."""
    high: float


class RoleData(TypedDict):
    """What a head does, over many samples."""

    role: str | None
    """None where nothing was found that is sure."""
    strength: StrengthData | None
    untrained: float
    """The most that a head has of that role before training."""


class WorthData(TypedDict):
    """What is added to the loss when a head is off, in nats."""

    added: float
    low: float | None
    """Of the 95 % interval; None where that is not known."""
    high: float | None


class BesideData(TypedDict):
    """What another model did with the same input."""

    name: str
    map: MapData


class ViewData(TypedDict):
    """All that a view shows."""

    maps: list[MapData]
    original: NotRequired[MapData]
    """What the model did before it was touched."""
    importance: NotRequired[dict[str, list[WorthData]]]
    """By layer, what each head is worth."""
    examined: NotRequired[dict[str, list[str]]]
    """By layer, what an examination says of each head."""
    roles: NotRequired[dict[str, list[RoleData]]]
    """By layer, what each head does."""
    beside: NotRequired[list[BesideData]]
    """What other models did with the first of the maps' inputs."""
    playback: NotRequired[PlaybackData]
    interventions: NotRequired[list[InterventionData]]
    """What has been done to the model."""
    behind: NotRequired[bool]
    """Whether more has been touched since, and the answer to that is still to come."""
