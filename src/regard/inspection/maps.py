"""An attention map: what a model answered to one input, and what every layer attended to on the way."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from regard.attention import record, short_name
from regard.errors import InputError
from regard.files import write_atomically
from regard.inspection.endings import PAGE, PICTURES, check_ending
from regard.inspection.relevance import CROSS, pad_keys
from regard.models import PoolingModel, QueryModel, Seq2Seq
from regard.tasks import SequenceTask, Task, links
from regard.text import BOS, EOS, Pairs, collate, read_source

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.inspection.widget import AttentionWidget

Kind = Literal["encoder", "decoder", "cross"]
"""Who attends to whom: inputs to inputs, outputs to outputs, or outputs to inputs."""
TITLES: dict[Kind, str] = {
    "encoder": "Self-attention of the input",
    "decoder": "Self-attention of the outputs",
    "cross": "Encoder-decoder attention",
}
REST = "rest"
"""Label of the learned step that a model trained over all lengths rests on."""


@dataclass(frozen=True, kw_only=True)
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
    """(Tq, Tk) bool, which keys each query's answer depends on; None where the task does not say."""

    @property
    def kind(self) -> Kind:
        """Who attends to whom."""
        return kind_of(self.name)


@dataclass(frozen=True, kw_only=True)
class AttentionMap:
    """One input, its prediction and truth, and the attention of every layer.

    `print(it)` shows it as text; in a notebook it shows itself as a picture.
    """

    task: str
    input: str
    prediction: list[int] | str | None
    """The number of each output step, or a text; None where it was not kept."""
    truth: list[int] | str | None
    """The same of the task's oracle; None where it does not know."""
    layers: dict[str, LayerMap]
    """By the layer's name, in the order in which a model runs them; empty for a model without attention."""
    outputs: list[str]
    """Name of each output step: what it answers, or the symbol that it writes."""
    probabilities: list[float]
    """Probability (0 to 1) that the model gives to its prediction, at each output step."""
    position_norms: list[float] | None = None
    """L2 norm of each learned position; None without positions."""

    @property
    def cross(self) -> LayerMap:
        """The (first) layer in which the outputs attend to the inputs; raises `InputError` without one."""
        for layer in self.layers.values():
            if layer.kind == CROSS:
                return layer
        raise InputError(f"the run on {self.task} has no attention to show: train it with attention")

    @property
    def drawn(self) -> list[LayerMap]:
        """The layers of a static picture: all, or of a model that writes symbols those that read the input."""
        written = isinstance(self.prediction, str)
        return [layer for layer in self.layers.values() if layer.kind == CROSS or not written]

    def words(self) -> "AttentionMap":
        """Return the map between words instead of their pieces: see `merge_words`."""
        from regard.inspection.words import merge_words

        return dataclasses.replace(self, layers={name: merge_words(each) for name, each in self.layers.items()})

    def view(self) -> "AttentionWidget":
        """Return a widget for a notebook; raises `InputError` where anywidget is not installed."""
        from regard.inspection.widget import view

        return view([self])

    def __str__(self) -> str:
        from regard.inspection.terminal import describe

        return describe(self)

    def __rich__(self) -> "RenderableType":
        from regard.inspection.terminal import heatmap

        return heatmap(self)

    def _repr_png_(self) -> bytes:
        from regard.inspection.picture import draw

        return draw(self, "png")

    def save(self, path: str | Path) -> Path:
        """Write the map to a file by its ending: .png, .svg or .pdf (a picture), .html (a page of its own).

        Raises `InputError` for another ending, a path that cannot be written, or a map without attention.
        """
        path = Path(path)
        check_ending(path)
        if not self.layers:
            _ = self.cross
        if path.suffix.lower() == PAGE:
            return self.to_html(path)
        return self.plot(path)

    def to_html(self, path: str | Path) -> Path:
        """Write a page of its own, which opens offline; raises `MachineError` where that cannot be."""
        from regard.inspection.page import write_page

        return write_page(path, [self])

    def plot(self, path: str | Path) -> Path:
        """Draw a picture, .png, .svg or .pdf; raises `InputError` for another ending."""
        from regard.inspection.picture import draw

        path = Path(path)
        check_ending(path, PICTURES)
        write_atomically(path, draw(self, path.suffix.lower()[1:]))
        return path


@torch.inference_mode()
def attend(model: QueryModel | PoolingModel, task: Task, inputs: torch.Tensor) -> AttentionMap:
    """Run `model` on one input (1, T) and keep what it attended to."""
    if model.training:
        model.eval()
    with record(model) as records:
        logits = model(inputs)
    probabilities, prediction = logits[0].softmax(-1).max(-1)
    letters = [_visible(letter) for letter in task.render(inputs[0])]
    outputs = task.output_labels(inputs[0])
    labels = {"encoder": (letters, letters), "decoder": (outputs, outputs)}
    layers = {}
    for name, each in records.items():
        weights = each.weights[0].float().numpy()
        keys = letters + [REST] * (weights.shape[-1] - len(letters))
        relevant = pad_keys(task.relevance(inputs), len(keys))[0].numpy() if name == CROSS else None
        layers[name] = _layer(name, weights, {**labels, CROSS: (outputs, keys)}, relevant)
    return AttentionMap(
        task=task.name,
        input=task.render(inputs[0]),
        prediction=prediction.tolist(),
        truth=task.answer(inputs)[0].tolist(),
        layers=layers,
        outputs=outputs,
        probabilities=probabilities.tolist(),
        position_norms=None if model.positions is None else model.positions.weight.norm(dim=-1).tolist(),
    )


@torch.inference_mode()
def attend_pair(
    model: Seq2Seq, task: SequenceTask, source: str, tokens: list[int], *, forced: bool = False
) -> AttentionMap:
    """Keep what a model attends to while it answers `source` with `tokens`, the end of sequence not among them.

    The tokens are fed back to the decoder all at once, which attends as it did when it wrote them one by one.
    `forced`: the tokens are not the model's own; its prediction is what it would write at each step after them.
    """
    model.eval()
    batch = Pairs(read_source([source], task.source_vocabulary), collate([tokens]))
    batch = batch.to(next(model.parameters()).device)
    with record(model) as records:
        logits = model(batch.source, batch.source_mask, batch.target_in)
    written = torch.tensor([*tokens, EOS])
    likely = logits[0].float().softmax(-1).cpu()
    if forced:
        written = likely.argmax(-1)
    probabilities = likely[range(len(written)), written]
    # What the model does not know is shown as what it is.
    sources = [*task.source_vocabulary.pieces(source), *task.source_vocabulary.labels([EOS])]
    targets = task.target_vocabulary.labels([*tokens, EOS])
    known = task.known(source)
    prediction = task.target_vocabulary.decode(written.tolist() if forced else tokens)
    relevant = None
    if known is not None and known.target == task.target_vocabulary.decode(tokens):
        relevant = links([known], len(sources), len(targets))[0].numpy()
    outputs, inputs = [_visible(label) for label in targets], [_visible(label) for label in sources]
    fed = [*task.target_vocabulary.labels([BOS]), *outputs[:-1]]
    labels = {"cross": (outputs, inputs), "encoder": (inputs, inputs), "decoder": (outputs, fed)}
    layers = {}
    for full, each in records.items():
        name = short_name(full)
        layers[name] = _layer(name, each.weights[0].float().cpu().numpy(), labels, relevant)
    return AttentionMap(
        task=task.name,
        input=source,
        prediction=prediction,
        truth=None if known is None else known.target,
        layers=layers,
        outputs=outputs,
        probabilities=probabilities.tolist(),
    )


def _layer(
    name: str, weights: np.ndarray, labels: dict[str, tuple[list[str], list[str]]], relevant: np.ndarray | None
) -> LayerMap:
    """Return the map of a layer, named by its kind and number; `labels` of queries and keys by kind."""
    kind = kind_of(name)
    queries, keys = labels[kind]
    parts = name.split(".")
    return LayerMap(
        name=name,
        title=TITLES[kind] + (f", layer {parts[1]}" if len(parts) > 2 else ""),
        weights=weights,
        query_labels=queries,
        key_labels=keys,
        relevant=relevant if kind == CROSS else None,
    )


def kind_of(name: str) -> Kind:
    """Say of a layer, by its name, who attends to whom."""
    parts = name.split(".")
    return "cross" if parts[-1] == CROSS else "encoder" if parts[0] == "encoder" else "decoder"


def _visible(label: str) -> str:
    return NULL_LABEL if label.isspace() else label


NULL_LABEL = "␣"
"""How the null character, and any other blank, is shown on an axis."""
