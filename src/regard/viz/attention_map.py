"""Attention maps, which can be displayed as text, a figure, a page or a notebook widget.

    print(attention)                 text
    attention.save("attention.html") a self-contained page; .png, .svg and .pdf are figures
    attention.view()                 a widget for a notebook

`AttentionMap` holds one input, `Maps` several inputs, and `Playback` one input at several steps of training.
`make_maps` builds maps from records, `view_weights` from weights that were computed elsewhere, and
`attach_original` adds the map without interventions.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from torch import nn

from regard.arguments import public
from regard.attention.descriptions import describe_model
from regard.attention.interventions import active_interventions, suspend_interventions
from regard.attention.names import known_name
from regard.attention.records import Record, describe_remarks
from regard.errors import InputError, check_range
from regard.io import write_file
from regard.result import Result, plain_table, to_plain
from regard.viz.maps import WORD_START, LayerKind, LayerMap, Map, merge_words

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.viz.widget import AttentionWidget

PICTURES = (".png", ".svg", ".pdf")
PAGE = ".html"


def check_extension(path: Path, extensions: Sequence[str] = (*PICTURES, PAGE)) -> None:
    """Raise `InputError` unless the extension of `path` is one of `extensions`, in upper or lower case."""
    if path.suffix.lower() not in extensions:
        raise InputError(f"plot {str(path)!r} has no known extension: choose one of {', '.join(extensions)}")


class Viewable(Result):
    """Base class of results that consist of attention maps."""

    def _view(self) -> tuple[Sequence["AttentionMap"], dict[str, Any]]:
        """Return the maps, and the options of `view_json`."""
        raise NotImplementedError

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook; raises `InputError` if anywidget is not installed."""
        from regard.viz.widget import view

        maps, options = self._view()
        return view(maps, **options)

    def to_html(self, path: str | Path) -> Path:
        """Write a self-contained page that opens offline; raises `MachineError` if the file cannot be written."""
        from regard.viz.page import write_page

        maps, options = self._view()
        return write_page(path, maps, **options)

    def __rich__(self) -> "RenderableType":
        return self.table()


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class AttentionMap(Map, Viewable):
    """One input, its prediction and truth, and the attention of every layer.

    `print` shows it as text. A notebook shows the map as a figure.
    """

    def words(self) -> Self:
        """Return the map with words instead of word pieces; see `merge_words`."""
        layers = {name: merge_words(layer) for name, layer in self.layers.items()}
        return dataclasses.replace(self, layers=layers, sums=None)

    def select(self, *, layers: Sequence[str] | None = None, heads: Sequence[int] | None = None) -> Self:
        """Return a map with only some layers and heads; raises `InputError` for an unknown layer or head."""
        names = list(self.layers) if layers is None else [known_name(name, self.layers) for name in layers]
        selection = {name: self.layers[name] for name in names}
        if heads is not None:
            for name, layer in selection.items():
                for head in heads:
                    check_range(f"head of {name}", head, 0, len(layer.weights) - 1)
                title = f"{layer.title}, heads {', '.join(map(str, heads))}"
                selection[name] = dataclasses.replace(
                    layer, weights=layer.weights[list(heads)], head_numbers=tuple(heads), title=title
                )
        return dataclasses.replace(
            self,
            layers=selection,
            layers_selected=self.layers_selected or layers is not None,
            sums=self.sums if heads is None else None,
        )

    def table(self) -> "RenderableType":
        from regard.viz.terminal import heatmap

        return heatmap(self)

    def json(self) -> dict[str, Any]:
        """Return the map as plain values, with weights as lists (H, Tq, Tk)."""
        from regard.viz.page import map_data

        data: dict[str, Any] = to_plain(map_data(self))
        return data

    def summary(self) -> str:
        return f"{self.task} {self.input!r}, prediction {self.prediction!r}, {len(self.layers)} layers"

    def __str__(self) -> str:
        from regard.viz.terminal import describe_answer, describe_weights

        return f"{describe_answer(self)}\n\n{describe_weights(self)}".rstrip()

    def _repr_png_(self) -> bytes:
        from regard.viz.heatmaps import draw_map

        return draw_map(self, "png")

    def _view(self) -> tuple[Sequence["AttentionMap"], dict[str, Any]]:
        return [self], {}

    def save(self, path: str | Path) -> Path:
        """Write the map to a file: a figure for .png, .svg or .pdf, a self-contained page for .html.

        Raises `InputError` for another extension, a path that cannot be written, or a map without attention.
        """
        path = Path(path)
        check_extension(path)
        if not self.layers:
            _ = self.cross  # raises an error with advice
        if path.suffix.lower() == PAGE:
            return self.to_html(path)
        return self.plot(path)

    def plot(self, path: str | Path) -> Path:
        """Write a figure to a file: .png, .svg or .pdf; raises `InputError` for another extension."""
        from regard.viz.heatmaps import draw_map

        path = Path(path)
        check_extension(path, PICTURES)
        write_file(path, draw_map(self, path.suffix.lower()[1:]))
        return path


@public
class Maps(Sequence[AttentionMap], Viewable):
    """Attention maps of several inputs, displayed together."""

    def __init__(self, maps: Sequence[AttentionMap]) -> None:
        self._maps = list(maps)

    @overload
    def __getitem__(self, index: int) -> AttentionMap: ...
    @overload
    def __getitem__(self, index: slice) -> "Maps": ...
    def __getitem__(self, index: int | slice) -> "AttentionMap | Maps":
        return Maps(self._maps[index]) if isinstance(index, slice) else self._maps[index]

    def __len__(self) -> int:
        return len(self._maps)

    def table(self) -> "RenderableType":
        """Return a heatmap of the first input, for `rich.print` in a terminal."""
        return self._maps[0].table()

    def json(self) -> dict[str, Any]:
        return {"maps": [attention.json() for attention in self._maps]}

    def summary(self) -> str:
        return f"{len(self)} inputs, layers {', '.join(self._maps[0].layers)}"

    def _view(self) -> tuple[Sequence[AttentionMap], dict[str, Any]]:
        return self._maps, {}

    def plot(self, path: str | Path, *, input: int = 0) -> Path:
        """Write a figure of one input of the batch to a file: .png, .svg or .pdf."""
        return self._maps[input].save(path)


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Playback(Viewable):
    """Attention maps of one input at several training steps. A widget and a page have a slider over the steps."""

    steps: list[int]
    """Training step of each snapshot."""
    frames: list[AttentionMap]
    """The map of each snapshot."""
    losses: list[tuple[int, float]]
    """Pairs of a training step and the loss of the training batch at this step."""

    def table(self) -> "RenderableType":
        rows = []
        for step, frame in zip(self.steps, self.frames, strict=True):
            largest = (f"{layer.name} {layer.weights.max():.3f}" for layer in frame.layers.values())
            rows.append((f"{step:,}", str(frame.prediction), ", ".join(largest)))
        return plain_table(("step", "prediction", "largest weights"), rows)

    def summary(self) -> str:
        return f"{len(self.frames)} frames, steps {self.steps[0]:,} to {self.steps[-1]:,}"

    def _view(self) -> tuple[Sequence[AttentionMap], dict[str, Any]]:
        return self.frames[-1:], {"playback": vars(self)}


@public
def make_maps(records: Mapping[str, Record]) -> Maps:
    """Build an attention map for each input of the recorded batch.

        with regard.record(model, query_labels=words, key_labels=words) as records:
            model(inputs)
        regard.make_maps(records).to_html("attention.html")

    Queries and keys without labels are labeled with their index. Raises `InputError` if the records are empty.
    """
    if not records:
        raise InputError("nothing is recorded yet: run the model inside the block")
    inputs = max(len(record.weights) for record in records.values())
    interventions = tuple(dict.fromkeys(text for record in records.values() for text in record.interventions))
    note = describe_remarks({name: record.remark for name, record in records.items()})
    return Maps(
        [
            _bare_map(
                make_layer_maps(records, index),
                input=f"input {index}" if inputs > 1 else "",
                interventions=interventions,
                note=note,
            )
            for index in range(inputs)
        ]
    )


def _bare_map(layers: dict[str, LayerMap], *, input: str = "", **options: Any) -> AttentionMap:
    """Return a map without a task, a prediction and outputs."""
    empty: dict[str, Any] = {"task": "", "prediction": None, "truth": None, "outputs": [], "probabilities": []}
    return AttentionMap(input=input, layers=layers, **empty, **options)


def make_layer_maps(records: Mapping[str, Record], index: int) -> dict[str, LayerMap]:
    """Return the layers of one input of a recorded batch; labels of the wrong number become indices."""
    layers = {}
    for name, record in records.items():
        if index >= len(record.weights):
            continue
        weights = record.weights[index].float().cpu().numpy()
        queries, keys = (
            list(labels) if labels is not None and len(labels) == count else _indices(count)
            for labels, count in zip(record.labels_of(index), weights.shape[1:], strict=True)
        )
        layers[name] = LayerMap(
            name=name,
            title=name,
            weights=weights,
            query_labels=queries,
            key_labels=keys,
            written=record.written,
            kind_override=record.kind,
        )
    return layers


def _indices(count: int) -> list[str]:
    return [str(step) for step in range(count)]


_original_wanted = ContextVar("_original_wanted", default=True)


@contextmanager
def skip_original() -> Iterator[None]:
    """Skip the map without interventions inside the block, for code that observes the model's forward pass."""
    token = _original_wanted.set(False)
    try:
        yield
    finally:
        _original_wanted.reset(token)


def attach_original(
    model: nn.Module, where: str, attend: Callable[[], AttentionMap], *, wanted: bool = True
) -> AttentionMap:
    """Return the map that `attend` computes, with the active interventions and the map without them.

    The note says what distinguishes the weights from those of a softmax.

    `where`: path or name of the model. With an active intervention `attend` runs twice, except inside
    `skip_original` or if the original is not `wanted`.

        with regard.intervene(model, "cross", heads=[1]):
            attention = attach_original(model, "models/counting", attend)
        attention.interventions          # ("cross: head 1 off",)
        attention.original.prediction
    """
    interventions = active_interventions(model)
    attention = attend()
    note = "; ".join(filter(None, (attention.note, describe_model(model))))
    attention = dataclasses.replace(attention, model=where, interventions=interventions, note=note)
    if not interventions or not wanted or not _original_wanted.get():
        return attention
    with suspend_interventions():
        return dataclasses.replace(attention, original=dataclasses.replace(attend(), model=where))


TOLERANCE = 0.01  # for sums of rows; a softmax in bfloat16 is more exact


@public
def view_weights(
    attentions: Any = None,
    tokens: Sequence[str] | None = None,
    *,
    encoder: Any = None,
    decoder: Any = None,
    cross: Any = None,
    target_tokens: Sequence[str] | None = None,
    input: int | None = None,
) -> AttentionMap:
    """Return a map of weights that were computed elsewhere, with `.view()` and `.save(path)`.

    Weights are PyTorch tensors, NumPy arrays or lists: one layer (H, Tq, Tk) or (B, H, Tq, Tk), or a list of
    layers. Pass `attentions` and `tokens` for a model with one sequence, or `encoder`, `decoder` and `cross` for
    an encoder-decoder, with `tokens` of the source and `target_tokens`. `input` selects one input of a batch. The
    map can merge word pieces if tokens mark them by `▁`, `Ġ` or `##`.

    Raises `InputError` if shapes and tokens do not match, for a negative weight, and for a row that neither
    sums to 1 (within 0.01) nor is all zeros.

    >>> print(view_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"]).layers["layer.0"])
    <LayerMap: layer.0, 1 heads, 2 queries, 2 keys>
    """
    parts = {"": attentions, "encoder": encoder, "decoder": decoder, "cross": cross}
    kinds: dict[str, LayerKind] = {"": "encoder", "encoder": "encoder", "decoder": "decoder", "cross": "cross"}
    source, target = (None if labels is None else _labels(labels) for labels in (tokens, target_tokens))
    layers: dict[str, LayerMap] = {}
    for part, weights in parts.items():
        queries = target if part in ("decoder", "cross") else source
        keys = target if part == "decoder" else source
        for number, layer_weights in enumerate(_layers(weights, input)):
            name = f"{part or 'layer'}.{number}"
            _check(name, layer_weights)
            labels = []
            for side, given, count in zip(("queries", "keys"), (queries, keys), layer_weights.shape[1:], strict=True):
                if given is not None and len(given) != count:
                    raise InputError(
                        f"{name} has {count} {side} but {len(given)} tokens are given: give one token for each"
                    )
                labels.append(given or _indices(count))
            layers[name] = LayerMap(
                name=name,
                title=name,
                weights=layer_weights,
                query_labels=labels[0],
                key_labels=labels[1],
                # Without a part, a lower triangle of weights is that of a decoder.
                kind_override=kinds[part] if part or np.triu(layer_weights, 1).any() else "decoder",
            )
    if not layers:
        raise InputError("no weights are given: pass attentions, or encoder, decoder or cross")
    return _bare_map(layers)


def _layers(weights: Any, input: int | None) -> list[np.ndarray]:
    """Return the weights (H, Tq, Tk) of each layer for one input."""
    if weights is None:
        return []
    if not isinstance(weights, list | tuple):
        array = _array(weights)
        weights = list(array) if array.ndim == 5 else [array]
    elif weights and _dimensions(weights[0]) == 2:
        weights = [np.stack([_array(head) for head in weights])]  # the heads of one layer
    layers = []
    for layer_weights in weights:
        array = _array(layer_weights)
        if array.ndim == 4:
            if input is None and len(array) > 1:
                raise InputError(f"weights have a batch of {len(array)} inputs: give input=0 to {len(array) - 1}")
            check_range("input", input or 0, 0, len(array) - 1)
            array = array[input or 0]
        if array.ndim != 3:
            raise InputError(f"weights have {array.ndim} dimensions: give (H, Tq, Tk) or (B, H, Tq, Tk) of each layer")
        layers.append(array)
    return layers


def _dimensions(weights: Any) -> int:
    if isinstance(weights, list | tuple):
        return 1 + _dimensions(weights[0]) if weights else 1
    return int(np.ndim(weights)) if not hasattr(weights, "dim") else int(weights.dim())


def _array(weights: Any) -> np.ndarray:
    if hasattr(weights, "detach"):
        weights = weights.detach().float().cpu()
    return np.asarray(weights, dtype=np.float32)


def _check(name: str, weights: np.ndarray) -> None:
    """Raise `InputError` for weights that cannot be the result of a softmax."""
    broken = np.argwhere(~np.isfinite(weights))
    if len(broken):
        head, row, column = broken[0]
        value = weights[head, row, column]
        raise InputError(
            f"{name} has {value} in head {head}, row {row}, column {column}: give finite weights, after softmax"
        )
    sums = weights.sum(-1)
    wrong = np.argwhere(((abs(sums - 1) > TOLERANCE) & (sums != 0)) | (weights < 0).any(-1))
    if len(wrong):
        head, row = wrong[0]
        problem = f"sums to {sums[head, row]:.4g}" if weights[head, row].min() >= 0 else "has weights below 0"
        raise InputError(
            f"row {row} of {name}, head {head}, {problem}: give weights after the softmax, whose rows sum to 1,"
            " or pass the model to regard.look if an attention sink receives the rest"
        )


def _labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens with `▁` at the start of each word, instead of tokens with `Ġ` or `##`."""
    labels = list(map(str, tokens))
    if not any(label.startswith("##") for label in labels):
        return [WORD_START + label[1:] if label.startswith("Ġ") and len(label) > 1 else label for label in labels]
    # WordPiece marks the pieces that continue a word; special symbols such as [CLS] are no words.
    starts = [WORD_START * (label[:1] + label[-1:] not in ("[]", "<>")) for label in labels]
    return [label[2:] if label.startswith("##") else start + label for start, label in zip(starts, labels, strict=True)]
