"""Attention maps as a widget: in Jupyter, VS Code, Colab and marimo (the extra notebook).

Where widgets do not run, a picture stands in its place. Weights travel as in the page, rounded a little; those
of a row that is chosen are asked for, and come as they are.
"""

from collections.abc import Sequence
from typing import Any

from regard.errors import InputError
from regard.inspection.bundle import bundle
from regard.inspection.maps import Map
from regard.inspection.page import as_data
from regard.inspection.picture import draw

try:
    import anywidget
    import traitlets
except ImportError:
    raise InputError(
        "a widget needs anywidget: pip install 'regard[notebook]'; a page (to_html) and a picture (plot) do not"
    ) from None


class AttentionWidget(anywidget.AnyWidget):
    """The view in a notebook."""

    _esm = bundle()
    data = traitlets.Unicode().tag(sync=True)

    def __init__(self, maps: Sequence[Map], **more: Any) -> None:
        super().__init__(data=as_data(maps, packed=True, **more))
        self.maps = list(maps)
        self.on_msg(self._send_exact)

    def _send_exact(self, widget: Any, asked: dict[str, Any], buffers: Any) -> None:
        """Answer with the weights of one row as they were computed."""
        del widget, buffers
        try:
            row = self.maps[asked["map"]].layers[asked["layer"]].weights[asked["head"], asked["query"]]
        except (KeyError, IndexError, TypeError):
            return  # another page's message
        self.send({"id": asked.get("id"), "weights": row.tolist()})

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        found = super()._repr_mimebundle_(**kwargs)
        if found is None:
            return None
        bundle, metadata = found
        return {**bundle, "image/png": draw(self.maps[0], "png")}, metadata


def view(maps: Sequence[Map], **more: Any) -> AttentionWidget:
    """Return a widget that shows `maps`; `more`: what else the view shows, as in
    `regard.inspection.page.as_data`.

    Raises `InputError` where there is nothing to show.
    """
    if not maps or not any(each.layers for each in maps):
        raise InputError("there is no attention to show: train with attention, or record a model that has some")
    return AttentionWidget(maps, **more)
