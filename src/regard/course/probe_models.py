"""What a learner's training loop is tried on: a pupil that notes down what is done to it, and one that learns
Copy.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.course.exercises.exercise import Array
from regard.course.exercises.spelling import END, PADDING, SIZE, START, words

Training = Callable[[Any, list[tuple[Tensor, Tensor]]], Any]
WIDTH = 32
ENOUGH = 0.9
"""Share of unseen words that are to be copied."""
BATCHES = 3
"""Batches that the first pupil is shown."""


class Notebook(nn.Module):
    """Answers from a table (B, T, V), and notes down what it is asked and what gradient comes back."""

    def __init__(self, table: Array) -> None:
        super().__init__()
        self.table = torch.as_tensor(table, dtype=torch.float32)
        self.bias = nn.Parameter(torch.zeros(table.shape[-1]))
        self.asked: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.fresh: list[bool] = []

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits for each step of the target."""
        self.asked.append(target.detach().clone())
        answer: Tensor = self.table[: len(target), : target.shape[1]] + self.bias
        if answer.requires_grad:
            answer.register_hook(self._note)
        return answer

    def _note(self, gradient: Tensor) -> None:
        self.gradients.append(gradient.detach().clone())
        self.fresh.append(self.bias.grad is None or not bool(self.bias.grad.any()))


def watched(training: Training, target: Array, table: Array) -> tuple[Array, ...]:
    """Return what entered the decoder first, the direction of the first gradient, and 1 or 0 each for: gradients
    were fresh, parameters moved, all batches were used."""
    pupil = Notebook(table)
    known = torch.as_tensor(target)
    batches = [(known[:, 1:-1].clone(), known.clone()) for _ in range(BATCHES)]
    training(pupil, batches)
    if not pupil.asked:
        raise ValueError("the model was never called: call model(source, target) for every batch")
    entering = pupil.asked[0].numpy()
    shape = (*entering.shape, table.shape[-1])
    gradient = pupil.gradients[0].double().numpy() if pupil.gradients else np.zeros(shape)
    length = float(np.sqrt((gradient**2).sum()))
    marks = (
        not pupil.gradients or all(pupil.fresh),
        bool(pupil.bias.detach().any()),
        len(pupil.asked) >= BATCHES,
    )
    return entering, gradient / length if length else gradient, *(np.array(float(each)) for each in marks)


class Copyist(nn.Module):
    """One attention from target to source, with learned positions: just enough for Copy."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(SIZE, WIDTH)
        self.places = nn.Embedding(8, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.answer = nn.Sequential(nn.Linear(2 * WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, SIZE))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits (B, T, V)."""
        query = self.letters(target) + self.places.weight[: target.shape[1]]
        memory = self.letters(source) + self.places.weight[: source.shape[1]]
        weights = (query @ self.key(memory).transpose(1, 2) * WIDTH**-0.5).softmax(-1)
        found: Tensor = self.answer(torch.cat([weights @ memory, query], -1))
        return found


def taught(training: Training, lessons: int) -> float:
    """Return the share of unseen words that a model copies after it was taught, or 1 where that is enough."""
    torch.manual_seed(0)
    pupil = Copyist()
    batches = [tuple(map(torch.as_tensor, words(seed, 32))) for seed in range(lessons)]
    training(pupil, batches)  # type: ignore[arg-type]
    share = copied(pupil, *map(torch.as_tensor, words(lessons, 200)))
    return 1.0 if share >= ENOUGH else share


@torch.no_grad()
def copied(pupil: nn.Module, source: Tensor, target: Tensor) -> float:
    """Return the share of words that the model writes as they are, greedily."""
    pupil.eval()
    written = torch.full((len(source), 1), START)
    for _ in range(target.shape[1] - 1):
        following = pupil(source, written)[:, -1].argmax(-1)
        ended = (written == END).any(1)
        written = torch.cat([written, following.masked_fill(ended, PADDING)[:, None]], 1)
    return float((written == target).all(1).double().mean())
