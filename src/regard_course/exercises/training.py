"""Exercises: the label-smoothed loss, and a training loop that must learn the task Copy."""

from typing import Any

import numpy as np

from regard_course.exercises.draws import Draw, draw_cases, fixed, row
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import COPY_VOCABULARY, PADDING, Array, Case, copy_words
from regard_course.mistakes.solution import Solution


def train_copy(model: Any, batches: Any) -> None:
    """Train the model to copy, with one optimizer step for every batch.

    model: a module; model(source, target) returns logits (B, T, V) for the token after each of the T target
    tokens. batches: a list of (source, target), tensors of token numbers: source (B, Ts); target (B, Tt), which
    is start (1), the letters, end (2) and padding (0) up to the length of the longest target. The loss ignores
    padding. Adam with a learning rate of 0.01 works. Return None: the loop changes the model in place.
    """
    raise NotImplementedError


def _expected_training(solution: Solution, batches: int = 0, **recorded: Array) -> tuple[Array, ...]:
    """Return the result of a correct training loop; see `probe_models`."""
    return (np.array(1.0),) if batches else solution.train_copy(**recorded)


def _training(seed: int) -> list[Case]:
    _, target = copy_words(seed, 5)
    table = np.random.default_rng(seed).normal(size=(5, target.shape[1] + 1, COPY_VOCABULARY)) * 2
    share = ("fraction of unseen words that the trained model copies",)
    return [
        Case(name="one batch", arguments={"target": target, "table": table}),
        Case(name="learns Copy", arguments={"batches": 400}, diagnose=False, outputs=share),
    ]


def _target(draw: Draw) -> Array:
    """Return token numbers, among them padding."""
    target = draw.generator.integers(1, draw.size("v"), draw.size("n"))
    target[len(target) // 2 :: 3] = PADDING
    return np.asarray(target)


def _target_without_padding(draw: Draw) -> Array:
    return draw.generator.integers(1, draw.size("v"), draw.size("n"))


EXERCISES = (
    Exercise(
        title="the label-smoothed loss",
        source="Szegedy et al. 2016, section 7",
        solution=Solution.label_smoothed_loss,
        cases=draw_cases(
            "n v",
            {"logits": lambda draw: 2 * draw("n v"), "target": _target, "smoothing": 0.1},
            row("prime sizes", 7, 11),
            row("no padding", 5, 7, target=_target_without_padding),
            row("no smoothing", 11, 5, smoothing=0.0),
            row("one step", 1, 7, smoothing=0.2, target=_target_without_padding),
            row("large logits", 7, 5, logits=lambda draw: 1_000 * draw("n v")),
            row("gradients", 5, 7, gradients=("logits",)),
            fixed("by hand", logits=[[0.0, 2.0, 0.0]], target=[1], smoothing=0.3),
        ),
        small_cases=lambda: [
            fixed("by hand", logits=[[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]], target=[1, PADDING], smoothing=0.3)
        ],
        outputs=("loss",),
        aliases=("label_smoothing", "smoothed_loss", "label_smoothing_loss", "loss"),
    ),
    Exercise(
        title="a training loop that learns Copy",
        solution=_expected_training,
        template=train_copy,
        instruction="Write it with PyTorch",
        cases=_training,
        outputs=(
            "decoder input",
            "gradient",
            "gradients are reset before each batch (1: yes)",
            "parameters changed (1: yes)",
            "fraction of the batches that are used",
            "the optimizer keeps its state (1: yes)",
        ),
        aliases=("train", "training_loop", "train_loop"),
        call="run_training",
    ),
)
