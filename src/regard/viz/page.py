"""Self-contained HTML pages of attention maps, which open offline, and the data of the view."""

import base64
import dataclasses
import hashlib
import html
import io
import json
import math
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from regard.errors import check_range
from regard.io import write_file
from regard.viz.maps import CROSS, LayerMap, Map, finite, word_pieces


class PackedWeights(TypedDict):
    """Rounded weights (H, Tq, Tk), much smaller than JSON numbers."""

    packed: bytes  # unsigned 16-bit little-endian or 8-bit numbers, by head, then row; base64 of zlib, or start and end
    largest: float  # the weight that is stored as `levels`
    levels: int  # 65535 or 255; one less if the largest number marks weights that are NaN or infinite
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
    sums: NotRequired[dict[str, Any]]  # `Intermediates`, with arrays as `NumbersData`


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
    """The strength of a head's role, 0 (uniform attention) to 1 (all on its keys), with its 95 % interval."""

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


# Thumbnails of layers: the maximum of each square of weights, and measures of heads.
#
# A served page contains thumbnails of the layers of a large map, and requests whole layers when the reader selects
# them. Measures cannot be computed from maxima, so measures are sent, too; `js/measures.js` computes the same
# measures from whole layers.

PIXELS = 64
"""Maximum number of rows and columns of a thumbnail; most small pictures have fewer pixels per side."""

SINK = 0.25
"""Mean weight of a column from which it is an attention sink, as in `js/scale.js`."""
FEW = 8
"""In a head of fewer rows or columns, no column is a sink."""

EARLY = 4
"""The first rows of a causal head, a part of 1 / EARLY, have large weights because they have few keys."""


def thumbnail_side(layer: LayerMap) -> int:
    rows, columns = layer.weights.shape[1:]
    return math.ceil(max(int(rows), int(columns)) / PIXELS)


def pool(weights: np.ndarray, side: int) -> np.ndarray:
    """Return the maximum of each square of weights (H, Tq, Tk); the last squares may be smaller. NaN is larger.

    >>> pool(np.eye(3)[None], 2).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    rows, columns = (range(0, length, side) for length in weights.shape[1:])
    return np.maximum.reduceat(np.maximum.reduceat(weights, rows, axis=1), columns, axis=2)


def head_measures(layer: LayerMap) -> dict[str, list[float]]:
    """Return the measures of each head for the navigator: peak, entropy, distance, and any weight on relevant inputs.

    Peak: the mean over rows of the largest weight outside attention sinks and the own token. Entropy: the mean
    over rows, from 0 (one key) to 1 (uniform). Distance: the mean distance of query and key, in tokens; omitted
    for encoder-decoder attention.
    """
    weights = layer.weights if np.isfinite(layer.weights).all() else finite(layer.weights)
    heads, rows, columns = weights.shape
    few = rows < FEW or columns < FEW
    sinks = np.zeros((heads, columns), bool) if few else weights.mean(1) >= SINK
    own = np.eye(rows, columns, dtype=bool) if layer.kind != CROSS else np.zeros((rows, columns), bool)
    largest = np.where(sinks[:, None] | own, 0, weights).max(2, initial=0)
    # In a causal head, the first step attends only to itself, and the second step only to the first two steps.
    causal = rows == columns > 1 and not weights[:, 0, 1:].any() and not weights[:, 1, 2:].any()
    first = math.ceil(rows / EARLY) if causal else 0  # the early rows of a causal head have few keys and do not count
    # The entropy of each row, divided by its largest possible value
    positive, seen = np.where(weights > 0, weights, 1), (weights > 0).sum(2)
    sums = -np.einsum("hqk,hqk->hq", positive, np.log(positive))
    most = np.log(np.arange(rows) + 1 if causal else np.full(rows, columns))
    relative = np.divide(sums, most, out=np.zeros_like(sums), where=(seen > 1) & (most > 0))
    counted = (seen > 1) | (not causal)  # not a step that sees itself alone
    entropy = np.minimum(relative.sum(1) / np.maximum(counted.sum(1), 1), 1)
    measures = {"peak": largest[:, first:].mean(1), "entropy": entropy}
    if layer.kind != CROSS:
        steps = abs(np.arange(rows)[:, None] - np.arange(columns)).astype(weights.dtype)
        measures["distance"] = weights.reshape(heads, -1) @ steps.ravel() / max(rows, 1)
    if layer.relevant is not None and layer.relevant.any():
        measures["relevant"] = weights[:, layer.relevant].sum(1) / layer.relevant.any(1).sum()
    return {name: np.round(values.astype(float), 6).tolist() for name, values in measures.items()}


LARGEST_KEYS = 12  # keys that are listed for a row of a long input
EXACT = 20_000  # weights of a map up to which a served page gets exact numbers: at most 0.2 MB
WHOLE = 400_000  # weights of a map up to which a page gets all layers whole, in 16 bits: at most 1.1 MB
LEVELS = 65535  # 16 bits: a rounding error that no display resolves, in half the bytes of float32
COARSE = 255  # 8 bits, of the root of the weight: small weights keep two digits, in half the bytes of 16 bits
ROUNDED = "The weights in this page are rounded by at most 0.4 % of the largest weight of their layer."


def view_json(
    maps: Sequence[Map],
    *,
    packed: bool,
    original: Map | None = None,
    importance: Mapping[str, list[WorthData]] | None = None,
    playback: Mapping[str, Any] | None = None,
    beside: Sequence[tuple[str, Map]] = (),
    default: Callable[[bytes], Any] | None = None,
) -> str:
    """Return the data of a view, a `ViewData`, as JSON; `beside`: names and maps of other models. `default`: what
    stands for the bytes of packed weights, usually `zlib_text`.

    If one map is large, all are packed in 8 bits, and their notes say so.
    """
    original = maps[0].original if original is None and len(maps) == 1 else original
    frames = [] if playback is None else playback["frames"]
    every = [*maps, *frames, *(attention for _, attention in beside), *([] if original is None else [original])]
    levels = None if not packed else COARSE if max(map(_weight_count, every), default=0) > WHOLE else LEVELS
    data: ViewData = {"maps": [map_data(attention, levels) for attention in maps]}
    if original is not None:
        data["original"] = map_data(original, levels)
    if importance is not None:
        data["importance"] = dict(importance)
    if playback is not None:
        shown = [map_data(frame, levels) for frame in frames]
        data["playback"] = {"steps": playback["steps"], "losses": playback["losses"], "frames": shown}
    if beside:
        data["beside"] = [{"name": name, "map": map_data(attention, levels)} for name, attention in beside]
    return json.dumps(data, ensure_ascii=False, default=default or zlib_text)


def zlib_text(content: bytes) -> str:
    """Return packed weights as text: base64 of zlib."""
    return base64.b64encode(compress(content)).decode()


def compress(content: bytes | bytearray) -> bytes:
    """Return zlib data, with its strategy for noisy numbers."""
    packer = zlib.compressobj(9, memLevel=9, strategy=zlib.Z_FILTERED)
    return packer.compress(content) + packer.flush()


def first_data(attention: Map) -> MapData:
    """Return a map as a served page first shows it: a large map contains thumbnails of its layers, in 8 bits."""
    count = _weight_count(attention)
    levels = COARSE if count > WHOLE else LEVELS if count > EXACT else None
    return map_data(attention, levels, thumbnails=count > WHOLE)


def _weight_count(attention: Map) -> int:
    return sum(layer.weights.size for layer in attention.layers.values())


def map_data(attention: Map, levels: int | None = None, *, thumbnails: bool = False) -> MapData:
    """Return a map as plain values; `levels` as in `pack`, or None: the weights stay arrays."""
    rounded = ROUNDED if levels == COARSE and not thumbnails else ""
    aligned, selected, unknown = attention.aligned_head, attention.selected_head, cast(Any, None)
    data: MapData = {
        "task": attention.task,
        "input": attention.input,
        "prediction": attention.prediction,
        "truth": attention.truth,
        "outputs": attention.outputs,
        "probabilities": [round(value, 6) if math.isfinite(value) else unknown for value in attention.probabilities],
        "layers": [layer_data(layer, levels, thumbnail=thumbnails) for layer in attention.layers.values()],
        "opens": None if aligned is None else aligned.layer.name,
        "head": None if selected is None else selected.head,
        "picture": None if attention.pixels is None else image_url(attention.pixels),
        "note": f"{attention.note} {rounded}".strip(),
        "model": attention.model,
        "interventions": list(attention.interventions),
        "original_prediction": None if attention.original is None else attention.original.prediction,
    }
    if attention.sums is not None:
        data["sums"] = _plain(attention.sums)
    return data


def _plain(value: Any) -> Any:
    """Return intermediate values with arrays packed as `NumbersData`."""
    if isinstance(value, np.ndarray):
        return {"numbers": zlib_text(value.astype("<f4").tobytes()), "shape": list(value.shape)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return {name: _plain(content) for name, content in value.items()}
    return [_plain(element) for element in value] if isinstance(value, list | tuple) else value


def layer_data(layer: LayerMap, levels: int | None = LEVELS, *, thumbnail: bool = False) -> LayerData:
    """Return a layer as plain values; `levels` as in `map_data`.

    A thumbnail contains the measures of its heads.
    """
    named = layer.head_names is not None or layer.head_numbers is not None
    side = thumbnail_side(layer) if thumbnail else 1
    weights = layer.weights if levels is None else pack(layer.weights, side, levels)
    return {
        "name": layer.name,
        "title": layer.title,
        "kind": layer.kind,
        "queries": layer.query_labels,
        "keys": layer.key_labels,
        "query_words": word_pieces(layer.query_labels),
        "key_words": word_pieces(layer.key_labels),
        "weights": weights,
        "relevant": None if layer.relevant is None else np.argwhere(layer.relevant).tolist(),
        "square": 1 if layer.rows is None else layer.rows.side,
        "patches": None if layer.patches is None else list(layer.patches),
        "written": layer.written,
        "names": [layer.head_name(head) for head in range(len(layer.weights))] if named else None,
        "measures": head_measures(layer) if side > 1 else None,
    }


def row_data(layer: LayerMap, head: int, step: int) -> RowData:
    """Return the exact weights of one query, of any length; raises `InputError` for an unknown head or step."""
    rows = layer.rows
    queries, keys = (layer.query_labels, layer.key_labels) if rows is None else (rows.queries, rows.keys)
    check_range("step", step, 0, len(queries) - 1)
    head_rows = layer.weights[:, step] if rows is None else rows.of(step)
    check_range("head", head, 0, len(head_rows) - 1)
    weights = head_rows[head]
    order = np.argsort(-weights, kind="stable")[:LARGEST_KEYS]
    return {
        "query": queries[step],
        "weights": weights.tolist(),
        "largest": [{"step": int(key), "key": keys[key], "weight": float(weights[key])} for key in order],
    }


def image_url(pixels: np.ndarray) -> str:
    """Return an image (height, width, 3) uint8 as a data URL that contains it as PNG."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def pack(weights: np.ndarray, side: int = 1, levels: int = LEVELS) -> PackedWeights:
    """Pack weights (H, Tq, Tk) from 0 to 1, or the maxima of their squares.

    A weight w is stored as w / largest * levels, or, in 8 bits (`levels=COARSE`), as √(w / largest) * levels.

    >>> pack(np.array([[[0.25, 0.75]]]))["largest"]
    0.75
    """
    weights = pool(weights, side) if side > 1 else weights
    coarse = levels == COARSE
    usable = np.isfinite(weights)
    complete = bool(usable.all())
    most = levels if complete else levels - 1
    values = weights if complete else finite(weights)
    # The maximum of the whole layer, so that heads share one color scale; never 0, because weights are divided
    # by it.
    largest = max(float(values.max(initial=0.0)), 1e-9)
    shares = np.clip(values / largest, 0, 1)
    whole = np.rint((np.sqrt(shares) if coarse else shares) * most).astype("u1" if coarse else "<u2")
    if not complete:
        whole[~usable] = levels
    return {"packed": whole.tobytes(), "largest": largest, "levels": most, "heads": len(weights), "side": side}


VIEW = files("regard.viz") / "js"
FORBIDDEN = (0, 13, 60)  # Codes of characters that HTML replaces or that could end a script
TITLE_LENGTH = 60  # characters of the input in a title


def built_script(name: str) -> str:
    """Return a bundled script: `explorer`, `live`, `loader`, `view` or `worker`. `npm run build` makes them."""
    return (files("regard.viz") / "built" / f"{name}.js").read_text(encoding="utf-8").strip()


def text_of_bytes(content: bytes) -> str:
    """Return bytes as text with 7 bits in each character.

    >>> text_of_bytes(b"Regard")
    'RJ\\x1d\\x0b&\\x0e\\x19'
    """
    bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
    codes = np.pad(bits, (0, -len(bits) % 7)).reshape(-1, 7) @ (1 << np.arange(7))
    codes[np.isin(codes, FORBIDDEN)] += 128
    return codes.astype("<u2").tobytes().decode("utf-16-le")


def page(maps: Sequence[Map], **options: Any) -> str:
    """Return a page that shows `maps`, with a choice of input, layer and head; `options` as in `view_json`."""
    template, code = (VIEW / "page.html").read_text(encoding="utf-8"), built_script("view")
    name = html.escape(f"{maps[0].task}: {_title(maps[0].input)}" if maps else "nothing")
    weights = bytearray()  # of all layers, as one text: base64 in the JSON would have 14 % more characters

    def store(content: bytes) -> tuple[int, int]:
        weights.extend(content)
        return len(weights) - len(content), len(weights)

    # If "<" is escaped, the text of an input cannot end the script element.
    data = view_json(maps, packed=True, default=store, **options).replace("<", "\\u003c")
    packed = compress(weights)
    # The content security policy allows only this script, by its hash, and no network access.
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    parts = {"WEIGHTS": text_of_bytes(packed), "SIZE": str(len(packed))}
    parts |= {"VIEW": code, "DIGEST": digest, "DATA": data, "TITLE": f"{name} · Regard", "NAME": name}
    return re.sub(r"/\*([A-Z]+)\*/", lambda match: parts[match[1]], template)


def _title(text: str) -> str:
    """Shorten a text, and show the code points of characters that are invisible or change direction."""
    hidden = ("Cc", "Cf", "Zl", "Zp")
    text = "".join(
        f"[U+{ord(character):04X}]" if unicodedata.category(character) in hidden else character
        for character in text[: TITLE_LENGTH + 1]
    )
    return text if len(text) <= TITLE_LENGTH else f"{text[: TITLE_LENGTH - 1]}…"


def write_page(path: str | Path, maps: Sequence[Map], **options: Any) -> Path:
    """Write the page of `maps` to a file; raises `MachineError` if it cannot be written."""
    write_file(Path(path), page(maps, **options).encode())
    return Path(path)
