"""Types of the data that the JavaScript view displays.

The type checker of the view reads them as TypeScript, which `tests/viz/view_types.py` writes (`make lint`).
`regard.viz.serialization` converts maps to this data.
"""

from typing import Literal, NotRequired, TypedDict

import numpy as np


class PackedWeights(TypedDict):
    """Rounded weights (H, Tq, Tk), much smaller than JSON numbers."""

    packed: str  # base64 of zlib of unsigned 16-bit little-endian numbers, by head, then row
    largest: float  # the weight that is stored as `levels`
    levels: int  # 65535; 65534 if 65535 marks weights that are NaN or infinite
    heads: int
    side: int  # of the squares of which each number is the maximum, in steps; 1 except in a thumbnail


class LayerData(TypedDict):
    """The attention of one layer."""

    name: str
    title: str
    kind: Literal["encoder", "decoder", "cross"]
    queries: list[str]
    keys: list[str]
    query_words: list[list[int]] | None  # indices of the pieces of each word; None if labels are not word pieces
    key_words: list[list[int]] | None
    weights: PackedWeights | np.ndarray  # (H, Tq, Tk); an array becomes nested lists
    relevant: list[list[int]] | None  # pairs of a query and a relevant key; None if the task does not define them
    square: int  # each weight is the maximum of a square with this side, in steps; usually 1
    patches: list[int] | None  # first step, rows and columns of the patches of an image
    written: bool  # whether query labels are symbols written at each step, not those read
    names: list[str] | None  # names of the heads; None for head 0, head 1, ...
    measures: dict[str, list[float]] | None  # of the heads of a thumbnail, by name


class LargeData(TypedDict):
    """One of the largest weights of a row."""

    step: int
    key: str
    weight: float


class RowData(TypedDict):
    """The exact weights of one query of a long input."""

    query: str
    weights: list[float]
    largest: list[LargeData]  # in descending order


class NumbersData(TypedDict):
    """Numbers in single precision."""

    numbers: str  # base64 of zlib of little-endian float32, the last dimension contiguous
    shape: list[int]


class StepData(TypedDict):
    """One of the vectors from which a score is computed."""

    name: str
    of: Literal["query", "key", "pair", "product"]  # its dependency, or a product of two earlier steps
    numbers: NumbersData | None  # (H, Tq, D), (H, Tk, D) or (H, Tq, Tk, D)
    factors: list[int] | None  # indices of the steps of a product


class LayerSumsData(TypedDict):
    """Intermediate values of a layer: see `regard.viz.maps.LayerIntermediates`."""

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
    """State, logits and probabilities of one output step."""

    answer: str
    probability: float
    state: list[float]
    classes: list[str]
    logits: list[float]
    probabilities: list[float]


class SumsData(TypedDict):
    """Intermediate values of all weights of a map."""

    layers: dict[str, LayerSumsData]
    answers: list[AnswerData]


class MapData(TypedDict):
    """One input, its prediction, and the attention of every layer."""

    task: str
    input: str
    prediction: list[int] | str | None
    truth: list[int] | str | None
    outputs: list[str]
    probabilities: list[float]  # `null` if not finite
    layers: list[LayerData]
    opens: str | None  # the layer shown first: the encoder-decoder layer that aligns best
    head: int | None  # the head shown first, if one was chosen for alignment
    picture: str | None  # data URL (PNG) of the input image
    note: str  # remark on the input; may be empty
    model: str  # path or name of the model; may be empty
    interventions: list[str]  # active interventions in words
    original_prediction: list[int] | str | None  # the prediction without interventions, if known
    sums: NotRequired[SumsData]


class PlaybackData(TypedDict):
    """Attention maps of one input at several training steps."""

    steps: list[int]  # training step of each frame
    losses: list[list[float]]  # pairs of a step and the loss of its batch
    frames: list[MapData]


class InterventionData(TypedDict):
    """A change of some heads, or of a single weight."""

    layer: str
    heads: list[int]
    to: Literal["off", "uniform"] | float
    query: NotRequired[int]
    key: NotRequired[int]


class StrengthData(TypedDict):
    """The strength of a head's role, from 0 for uniform attention to 1 for attention to only the role's keys,
    with its 95 % interval."""

    mean: float
    low: float
    high: float


class RoleData(TypedDict):
    """The role of a head over many samples."""

    role: str | None  # None if no role is significant
    strength: StrengthData | None
    untrained: float  # the largest strength of any head before training
    error: str  # how often such a description is wrong; empty without a role
    reliable: bool  # whether the error rate is low


class WorthData(TypedDict):
    """Loss increase in nats when a head is ablated, with its 95 % interval if known."""

    added: float
    low: float | None
    high: float | None


class BesideData(TypedDict):
    """The map of another model for the same input."""

    name: str
    map: MapData


class ViewData(TypedDict):
    """All data of a view."""

    maps: list[MapData]
    original: NotRequired[MapData]  # the map without interventions
    importance: NotRequired[dict[str, list[WorthData]]]  # by layer, for each head
    examined: NotRequired[dict[str, list[str]]]  # by layer, findings about each head
    roles: NotRequired[dict[str, list[RoleData]]]  # by layer, for each head
    beside: NotRequired[list[BesideData]]  # other models on the input of the first map
    playback: NotRequired[PlaybackData]
    interventions: NotRequired[list[InterventionData]]
    behind: NotRequired[bool]  # whether the map does not yet reflect the latest interventions
