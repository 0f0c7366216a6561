"""Attention maps as a widget: in Jupyter, VS Code, Colab and marimo (the extra notebook).

Where widgets do not run, a picture stands in its place. Weights travel as in the page, rounded a little; those
of a row that is chosen are asked for, and come as they are. A widget of a run also tells how each weight comes
about, for as long as its kernel runs.
"""

from collections.abc import Callable, Sequence
from typing import Any

from regard.errors import InputError
from regard.libraries import library_errors
from regard.viz.bundle import bundle
from regard.viz.maps import Map
from regard.viz.page import as_data
from regard.viz.picture import draw

with library_errors(
    "anywidget", "a widget cannot be made", "pip install 'regard[notebook]', or use to_html or plot"
):
    import anywidget
    import traitlets

Explains = Callable[..., dict[str, Any]]
"""What returns how a weight comes about, as JSON, of a layer, head, output, key and temperature."""


class AttentionWidget(anywidget.AnyWidget):
    """The view in a notebook."""

    _esm = bundle()
    data = traitlets.Unicode().tag(sync=True)
    explains = traitlets.Bool(False).tag(sync=True)

    def __init__(self, maps: Sequence[Map], *, explain: Explains | None = None, **more: Any) -> None:
        super().__init__(data=as_data(maps, packed=True, **more), explains=explain is not None)
        self.maps = list(maps)
        self.explain = explain
        self.on_msg(self._answer)

    def _answer(self, widget: Any, asked: dict[str, Any], buffers: Any) -> None:
        """Answer with the weights of one row as they were computed, or with how one of them comes about."""
        del widget, buffers
        answer: dict[str, Any]
        try:
            if self.explain is not None and "explain" in asked:
                answer = {"found": self.explain(**asked["explain"])}
            else:
                row = self.maps[asked["map"]].layers[asked["layer"]].weights[asked["head"], asked["query"]]
                answer = {"found": row.tolist()}
        except InputError as error:
            answer = {"error": str(error)}
        except (KeyError, IndexError, TypeError):
            return  # another page's message
        self.send({"id": asked.get("id"), **answer})

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        found = super()._repr_mimebundle_(**kwargs)
        if found is None:
            return None
        bundle, metadata = found
        return {**bundle, "image/png": draw(self.maps[0], "png")}, metadata


def view(maps: Sequence[Map], *, explain: Explains | None = None, **more: Any) -> AttentionWidget:
    """Return a widget that shows `maps`; `explain`: what tells how a weight of theirs comes about; `more`: what
    else the view shows, as in `regard.viz.page.as_data`.

    Raises `InputError` where there is nothing to show.
    """
    if not maps or not any(each.layers for each in maps):
        raise InputError("there is no attention to show: train with attention, or record a model that has some")
    return AttentionWidget(maps, explain=explain, **more)
