"""An attention map: what a model answered to one input, and what every layer attended to on the way."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard.attention import record
from regard.errors import InputError
from regard.files import write_atomically
from regard.inspection.endings import PAGE, check_ending
from regard.inspection.relevance import CROSS, pad_keys
from regard.models import PoolingModel, QueryModel, Seq2Seq
from regard.tasks import SequenceTask, Task, links
from regard.text import EOS, Pairs, collate, read_source

REST = "rest"
"""Label of the learned step that a model trained over all lengths rests on."""


@dataclass(frozen=True, kw_only=True)
class LayerMap:
    """The weights of one attention layer for one input."""

    name: str
    """The layer's dotted name in the model."""
    title: str
    weights: np.ndarray
    """(H, Tq, Tk) float32; every row sums to 1."""
    query_labels: list[str]
    key_labels: list[str]
    relevant: np.ndarray | None = None
    """(Tq, Tk) bool, which keys each query's answer depends on; None where the task does not say."""


@dataclass(frozen=True, kw_only=True)
class AttentionMap:
    """One input, its prediction and truth, and the attention of every layer.

    `print(it)` shows it as text; in a notebook it shows itself as a picture.
    """

    task: str
    input: str
    prediction: list[int] | str
    """The number of each output step, or a text."""
    truth: list[int] | str | None
    """The same of the task's oracle; None where it does not know."""
    layers: dict[str, LayerMap]
    """By the layer's name: `encoder.0.self_attention`, ..., `cross`, `self_attention`; empty for a model without
    attention."""
    position_norms: list[float] | None = None
    """L2 norm of each learned position; None without positions."""

    @property
    def cross(self) -> LayerMap:
        """The (first) layer in which the outputs attend to the inputs; raises `InputError` without one."""
        for name, layer in self.layers.items():
            if name.split(".")[-1] == CROSS:
                return layer
        raise InputError(f"the run on {self.task} has no attention to show: train it with attention")

    def words(self) -> "AttentionMap":
        """Return the map between words instead of their pieces: see `merge_words`."""
        from regard.inspection.words import merge_words

        return dataclasses.replace(self, layers={name: merge_words(each) for name, each in self.layers.items()})

    def __str__(self) -> str:
        from regard.inspection.terminal import describe

        return describe(self)

    def _repr_png_(self) -> bytes:
        from regard.inspection.picture import draw

        return draw(self, "png")

    def save(self, path: str | Path) -> Path:
        """Write the map to a file by its ending: .png, .svg or .pdf (a picture), .html (a page of its own).

        Raises `InputError` for another ending, a path that cannot be written, or a map without attention.
        """
        path = Path(path)
        check_ending(path)
        _ = self.cross
        if path.suffix.lower() == PAGE:
            from regard.inspection.page import page

            content = page([self]).encode()
        else:
            from regard.inspection.picture import draw

            content = draw(self, path.suffix.lower()[1:])
        write_atomically(path, content)
        return path


@torch.inference_mode()
def attend(model: QueryModel | PoolingModel, task: Task, inputs: torch.Tensor) -> AttentionMap:
    """Run `model` on one input (1, T) and keep what it attended to."""
    model.eval()
    with record(model) as records:
        logits = model(inputs)
    letters = [_visible(letter) for letter in task.render(inputs[0])]
    outputs = task.output_labels(inputs[0])
    layers = {}
    for name, each in records.items():
        weights = each.weights[0].float().numpy()
        keys = letters + [REST] * (weights.shape[-1] - len(letters))
        if name == CROSS:
            relevant = pad_keys(task.relevance(inputs), len(keys))[0].numpy()
            title, labels, relevant = "Encoder-decoder attention", (outputs, keys), relevant
        elif name.startswith("encoder."):
            layer = int(name.split(".")[1])
            title, labels, relevant = f"Self-attention of the input, layer {layer}", (letters, letters), None
        else:
            title, labels, relevant = "Self-attention of the outputs", (outputs, outputs), None
        layers[name] = LayerMap(
            name=name,
            title=title,
            weights=weights,
            query_labels=labels[0],
            key_labels=labels[1],
            relevant=relevant,
        )
    return AttentionMap(
        task=task.name,
        input=task.render(inputs[0]),
        prediction=logits[0].argmax(-1).tolist(),
        truth=task.answer(inputs)[0].tolist(),
        layers=layers,
        position_norms=None if model.positions is None else model.positions.weight.norm(dim=-1).tolist(),
    )


@torch.inference_mode()
def attend_pair(model: Seq2Seq, task: SequenceTask, source: str, tokens: list[int]) -> AttentionMap:
    """Keep what a model attends to while it answers `source` with `tokens`, the end of sequence not among them.

    The tokens are fed back to the decoder all at once, which attends as it did when it wrote them one by one.
    """
    model.eval()
    batch = Pairs(read_source([source], task.source_vocabulary), collate([tokens]))
    with record(model) as records:
        model(batch.source, batch.source_mask, batch.target_in)
    # What the model does not know is shown as what it is.
    sources = [*task.source_vocabulary.pieces(source), *task.source_vocabulary.labels([EOS])]
    targets = task.target_vocabulary.labels([*tokens, EOS])
    known = task.known(source)
    prediction = task.target_vocabulary.decode(tokens)
    relevant = None
    if known is not None and known.target == prediction:
        relevant = links([known], len(sources), len(targets))[0].numpy()
    return AttentionMap(
        task=task.name,
        input=source,
        prediction=prediction,
        truth=None if known is None else known.target,
        layers={
            name: LayerMap(
                name=name,
                title="Encoder-decoder attention" + (f", layer {place}" if len(model.cross_layers) > 1 else ""),
                weights=records[name].weights[0].float().numpy(),
                query_labels=[_visible(label) for label in targets],
                key_labels=[_visible(label) for label in sources],
                relevant=relevant,
            )
            for place, name in enumerate(model.cross_layers)
        },
    )


def _visible(label: str) -> str:
    return NULL_LABEL if label.isspace() else label


NULL_LABEL = "␣"
"""How the null character, and any other blank, is shown on an axis."""
