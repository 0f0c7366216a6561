"""An attention map: what a model answered to one input, and what every layer attended to on the way."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard.attention import record
from regard.files import write_atomically
from regard.inspection.endings import PAGE, check_ending
from regard.inspection.relevance import CROSS, pad_keys
from regard.models import QueryModel
from regard.tasks import NULL, Task

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
    prediction: list[int]
    truth: list[int]
    layers: dict[str, LayerMap]
    """By the layer's name: `encoder.0.self_attention`, ..., `cross`, `self_attention`."""
    position_norms: list[float] | None
    """L2 norm of each learned position; None without positions."""

    @property
    def cross(self) -> LayerMap:
        """The layer in which the outputs attend to the inputs."""
        return self.layers[CROSS]

    def __str__(self) -> str:
        from regard.inspection.terminal import describe

        return describe(self)

    def _repr_png_(self) -> bytes:
        from regard.inspection.picture import draw

        return draw(self, "png")

    def save(self, path: str | Path) -> Path:
        """Write the map to a file by its ending: .png, .svg or .pdf (a picture), .html (a page of its own).

        Raises `InputError` for another ending, or a path that cannot be written.
        """
        path = Path(path)
        check_ending(path)
        if path.suffix.lower() == PAGE:
            from regard.inspection.page import page

            content = page([self]).encode()
        else:
            from regard.inspection.picture import draw

            content = draw(self, path.suffix.lower()[1:])
        write_atomically(path, content)
        return path


@torch.inference_mode()
def attend(model: QueryModel, task: Task, inputs: torch.Tensor) -> AttentionMap:
    """Run `model` on one input (1, T) and keep what it attended to."""
    model.eval()
    with record(model) as records:
        logits = model(inputs)
    letters = [NULL_LABEL if letter == NULL else letter for letter in task.render(inputs[0])]
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


NULL_LABEL = "␣"
"""How the null character is shown on an axis."""
