"""Attention maps as one HTML page: data, drawing code and style in a file that opens offline.

The weights of a layer are kept as whole numbers from 0 to 65535, which stands for the largest weight of the
layer, compressed (zlib) and written in base64; a weight that is NaN or infinite is 65535, and the largest one
65534 then. What is shown so differs from what was computed by less than
0.000008 times that weight.
"""

import base64
import hashlib
import html
import io
import json
import math
import re
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import check_range
from regard.io import write_file
from regard.viz.bundle import VIEW, bundle
from regard.viz.data import (
    LargeData,
    LayerData,
    LayerSumsData,
    MapData,
    NumbersData,
    PackedWeights,
    RowData,
    StepData,
    SumsData,
    ViewData,
    WorthData,
)
from regard.viz.maps import LayerMap, LongRows, Map, finite
from regard.viz.sums import LayerSums, Sums
from regard.viz.words import word_pieces

NAMED = 60
"""Characters of an input that a title names, at most."""
NAMED_KEYS = 12
"""Keys of a row of a long input that are named."""
LEVELS = 65535
"""Whole numbers above 0 that a weight is rounded to."""


def page(maps: Sequence[Map], **more: Any) -> str:
    """Return a page that shows `maps`, with a choice of input, layer and head; `more` as in `as_data`."""
    # "<" cannot be followed into a tag, so no text of an input can end the script element.
    data = as_data(maps, packed=True, **more).replace("<", "\\u003c")
    template = (VIEW / "page.html").read_text(encoding="utf-8")
    code = bundle()
    script = template.partition('<script type="module">')[2].partition("</script>")[0].replace("/*VIEW*/", code)
    first = f"{maps[0].task}: {_shortened(maps[0].input)}" if maps else "nothing"
    name = html.escape(first)
    # The page may run this one script and nothing else, and ask nothing of any network.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {"VIEW": code, "DIGEST": digest, "DATA": data, "TITLE": f"{name} · Regard", "NAME": name}
    return re.sub(r"/\*([A-Z]+)\*/", lambda place: parts[place[1]], template)


def _shortened(text: str) -> str:
    """Return the beginning of a text, in which what is unseen, or turns letters around, is named."""
    hidden = ("Cc", "Cf", "Zl", "Zp")
    text = "".join(
        f"[U+{ord(each):04X}]" if unicodedata.category(each) in hidden else each for each in text[: NAMED + 1]
    )
    return text if len(text) <= NAMED else f"{text[: NAMED - 1]}…"


def write_page(path: str | Path, maps: Sequence[Map], **more: Any) -> Path:
    """Write the page of `maps` to a file; raises `MachineError` where that cannot be."""
    write_file(Path(path), page(maps, **more).encode())
    return Path(path)


def as_data(
    maps: Sequence[Map],
    *,
    packed: bool,
    original: Map | None = None,
    importance: Mapping[str, list[WorthData]] | None = None,
    playback: Mapping[str, Any] | None = None,
    beside: Sequence[tuple[str, Map]] = (),
) -> str:
    """Return what the view shows, a `ViewData`, as JSON; `beside`: others' names, and their maps."""
    data: ViewData = {"maps": [as_json(each, packed=packed) for each in maps]}
    if original is None and len(maps) == 1:
        original = maps[0].original
    if original is not None:
        data["original"] = as_json(original, packed=packed)
    if importance is not None:
        data["importance"] = dict(importance)
    if playback is not None:
        frames = [as_json(each, packed=packed) for each in playback["frames"]]
        data["playback"] = {"steps": playback["steps"], "losses": playback["losses"], "frames": frames}
    if beside:
        data["beside"] = [{"name": name, "map": as_json(each, packed=packed)} for name, each in beside]
    return json.dumps(data, ensure_ascii=False)


def as_json(attention: Map, *, packed: bool = False) -> MapData:
    """Return a map as plain values; `packed`: with weights as in the page, else as they are, an array."""
    found: MapData = {
        "task": attention.task,
        "input": attention.input,
        "prediction": attention.prediction,
        "truth": attention.truth,
        "outputs": attention.outputs,
        "probabilities": [_number(each) for each in attention.probabilities],
        "layers": [_layer(layer, packed) for layer in attention.layers.values()],
        "opens": None if (aligned := attention.aligned) is None else aligned.layer.name,
        "head": None if (chosen := attention.chosen_head) is None else chosen.head,
        "picture": None if attention.pixels is None else picture_address(attention.pixels),
        "note": attention.note,
        "model": attention.model,
        "interventions": list(attention.interventions),
        "original_prediction": None if attention.original is None else attention.original.prediction,
    }
    if attention.sums is not None:
        found["sums"] = _sums(attention.sums)
    return found


def _number(value: float) -> Any:
    """Return a number rounded, None where it is not finite, for which JSON has no word."""
    return round(value, 6) if math.isfinite(value) else None


def _sums(sums: Sums) -> SumsData:
    return {
        "layers": {name: _layer_sums(each) for name, each in sums.layers.items()},
        "answers": [
            {
                "answer": each.answer,
                "probability": each.probability,
                "state": list(each.state),
                "classes": list(each.classes),
                "logits": list(each.logits),
                "probabilities": list(each.probabilities),
            }
            for each in sums.answers
        ],
    }


def _layer_sums(sums: LayerSums) -> LayerSumsData:
    steps: list[StepData] = [
        {
            "name": each.name,
            "of": each.of,
            "numbers": None if each.numbers is None else _numbers(each.numbers),
            "factors": None if each.factors is None else list(each.factors),
        }
        for each in sums.steps
    ]
    return {
        "steps": steps,
        "scale": sums.scale,
        "scores": _numbers(sums.scores),
        "may_see": _numbers(sums.may_see),
        "weights": _numbers(sums.weights),
        "values": _numbers(sums.values),
        "context": _numbers(sums.context),
        "added": _numbers(sums.added),
        "own_part": None if sums.own_part is None else _numbers(sums.own_part),
        "before_norm": None if sums.before_norm is None else _numbers(sums.before_norm),
        "after_norm": None if sums.after_norm is None else _numbers(sums.after_norm),
    }


def _numbers(found: np.ndarray) -> NumbersData:
    packed = base64.b64encode(zlib.compress(found.astype("<f4").tobytes(), 6)).decode()
    return {"numbers": packed, "shape": list(found.shape)}


def _layer(layer: LayerMap, packed: bool) -> LayerData:
    named = layer.names is not None or layer.numbers is not None
    return {
        "name": layer.name,
        "title": layer.title,
        "kind": layer.kind,
        "queries": layer.query_labels,
        "keys": layer.key_labels,
        "query_words": word_pieces(layer.query_labels),
        "key_words": word_pieces(layer.key_labels),
        "weights": pack(layer.weights) if packed else layer.weights,
        "relevant": None if layer.relevant is None else np.argwhere(layer.relevant).tolist(),
        "square": 1 if layer.rows is None else layer.rows.side,
        "patches": None if layer.patches is None else list(layer.patches),
        "written": layer.written,
        "names": [layer.called(head) for head in range(len(layer.weights))] if named else None,
    }


def row_data(rows: LongRows, head: int, step: int) -> RowData:
    """Return the weights of one step of a long input; raises `InputError` for a head or step that it has not."""
    check_range("step", step, 0, len(rows.queries) - 1)
    found = rows.of(step)
    check_range("head", head, 0, len(found) - 1)
    weights = found[head]
    order = np.argsort(-weights, kind="stable")[:NAMED_KEYS]
    largest: list[LargeData] = [
        {"step": int(key), "key": rows.keys[key], "weight": float(weights[key])} for key in order
    ]
    return {"query": rows.queries[step], "weights": weights.tolist(), "largest": largest}


def picture_address(pixels: np.ndarray) -> str:
    """Return a picture (height, width, 3) uint8 as an address that holds it, in PNG."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def pack(weights: np.ndarray) -> PackedWeights:
    """Return weights (H, Tq, Tk) from 0 to 1 as the page keeps them: see the module's docstring."""
    there = np.isfinite(weights)
    levels = LEVELS if there.all() else LEVELS - 1
    largest = max(float(finite(weights).max(initial=0.0)), 1e-9)
    whole = np.where(there, np.rint(finite(weights) / largest * levels), LEVELS).astype("<u2")
    packed = base64.b64encode(zlib.compress(whole.tobytes(), 6)).decode()
    return {"packed": packed, "largest": largest, "levels": levels, "heads": len(weights)}
