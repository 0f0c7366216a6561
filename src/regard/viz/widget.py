"""Attention maps as a widget in Jupyter, VS Code, Colab and marimo notebooks (the extra `notebook`).

Front ends without widgets show a figure. Weights are rounded as in a page, and the exact weights of a selected
row are requested from the kernel. The widget of a run also explains each weight while its kernel runs.
"""

from collections.abc import Callable, Sequence
from typing import Any

from regard.errors import InputError
from regard.libraries import library_errors
from regard.viz.heatmaps import draw_map
from regard.viz.maps import Map
from regard.viz.page import built_script, view_json

with library_errors("anywidget", "a widget cannot be made", "pip install 'regard[notebook]', or use to_html or plot"):
    import anywidget
    import traitlets

Explain = Callable[..., dict[str, Any]]
"""A function that returns the explanation of a weight as JSON, for a layer, head, output, key and temperature."""


class AttentionWidget(anywidget.AnyWidget):
    """The interactive view in a notebook."""

    _esm = built_script("view")
    data = traitlets.Unicode().tag(sync=True)
    explains = traitlets.Bool(False).tag(sync=True)

    def __init__(self, maps: Sequence[Map], *, explain: Explain | None = None, **options: Any) -> None:
        super().__init__(data=view_json(maps, packed=True, **options), explains=explain is not None)
        self.maps = list(maps)
        self.explain = explain
        self.on_msg(self._answer)

    def _answer(self, widget: Any, request: dict[str, Any], buffers: Any) -> None:
        """Send the exact weights of one row, or the explanation of one weight."""
        answer: dict[str, Any]
        try:
            if self.explain is not None and "explain" in request:
                answer = {"found": self.explain(**request["explain"])}
            else:
                layer = self.maps[request["map"]].layers[request["layer"]]
                answer = {"found": layer.weights[request["head"], request["query"]].tolist()}
        except InputError as error:
            answer = {"error": str(error)}
        except (KeyError, IndexError, TypeError):
            return  # a message that this widget did not send
        self.send({"id": request.get("id"), **answer})

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle_and_metadata = super()._repr_mimebundle_(**kwargs)
        if bundle_and_metadata is None:
            return None
        formats, metadata = bundle_and_metadata
        return {**formats, "image/png": draw_map(self.maps[0], "png")}, metadata


def view(maps: Sequence[Map], *, explain: Explain | None = None, **options: Any) -> AttentionWidget:
    """Return a widget that shows `maps`.

    `explain` returns the explanation of a weight. `options` as in `regard.viz.page.view_json`. Raises
    `InputError` for maps without attention.
    """
    if not maps or not any(attention.layers for attention in maps):
        raise InputError("there is no attention to show: train with attention, or record a model with attention")
    return AttentionWidget(maps, explain=explain, **options)
