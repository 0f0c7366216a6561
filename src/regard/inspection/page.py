"""Attention maps as one HTML page: data, drawing code and style in a file that opens offline."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from regard.inspection.maps import AttentionMap

DECIMALS = 5
"""Digits of the weights in a page: what is drawn differs by less than 0.00001 from what was computed."""


def page(maps: Sequence[AttentionMap]) -> str:
    """Return a page that shows `maps`, with a choice of input, layer and head."""
    view = files("regard.inspection") / "view"
    # "<" cannot be followed into a tag, so no text of an input can end the script element.
    data = json.dumps([as_json(each) for each in maps], ensure_ascii=False).replace("<", "\\u003c")
    code = (view / "attention-view.js").read_text(encoding="utf-8")
    template = (view / "page.html").read_text(encoding="utf-8")
    return template.replace("/*VIEW*/", code).replace("/*MAPS*/", data)


def as_json(attention: AttentionMap) -> dict[str, Any]:
    """Return a map as the plain values that `attention-view.js` reads."""
    return {
        "task": attention.task,
        "input": attention.input,
        "prediction": attention.prediction,
        "truth": attention.truth,
        "layers": [
            {
                "name": layer.name,
                "title": layer.title,
                "queries": layer.query_labels,
                "keys": layer.key_labels,
                "weights": layer.weights.astype(float).round(DECIMALS).tolist(),
                "relevant": None if layer.relevant is None else layer.relevant.tolist(),
            }
            for layer in attention.layers.values()
        ],
    }
