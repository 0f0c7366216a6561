"""Exercises: a label-smoothed loss, and a training loop that must learn Copy."""

import math
from typing import Any

import numpy as np

from regard.course.exercises.exercise import Array, Case, Exercise, varied
from regard.course.exercises.spelling import PADDING, SIZE, words
from regard.course.loops import stepping

COPIED = "share of unseen words that the trained model copies"


def train_copy(target: Array | None = None, table: Array | None = None, lessons: int = 0) -> tuple[Any, ...]:
    """Return what a right training does, in plain loops: see `pupil.watched` and `pupil.taught`."""
    if target is None or table is None:
        return (np.array(1.0),)
    gradient = np.zeros((len(target), target.shape[1] - 1, SIZE))
    for row in range(len(target)):
        for step in range(target.shape[1] - 1):
            right = target[row, step + 1]
            if right == PADDING:
                continue
            whole = sum(math.exp(number) for number in table[row, step])
            for token in range(SIZE):
                gradient[row, step, token] = math.exp(table[row, step, token]) / whole - (token == right)
    length = math.sqrt(sum(float(number) ** 2 for number in gradient.reshape(-1)))
    return target[:, :-1], gradient / length, np.array(1.0), np.array(1.0), np.array(1.0)


def _watch(function: Any, case: Case) -> tuple[Any, ...]:
    """Teach by the learner's loop: a pupil that only notes down, or one that learns."""
    from regard.course.pupil import taught, watched

    if case.arguments.get("lessons"):
        return (np.array(taught(function, case.arguments["lessons"])),)
    return watched(function, case.arguments["target"], case.arguments["table"])


def _training(seed: int) -> list[Case]:
    _, target = words(seed, 5)
    table = np.random.default_rng(seed).normal(size=(5, target.shape[1] + 1, SIZE)) * 2
    return [
        Case(name="one batch", arguments={"target": target, "table": table}),
        Case(name="learns Copy", arguments={"lessons": 400}, report_metrics=False, outputs=(COPIED,)),
    ]


def _loss(seed: int) -> list[Case]:
    def case(name: str, n: int, size: int, smoothing: float, padded: bool = True, **more: Any) -> Case:
        n, size = varied(seed, n, size)
        generator = np.random.default_rng(seed + n)
        target = generator.integers(1, size, n)
        if padded:
            target[n // 2 :: 3] = PADDING
        arguments = {"logits": 2 * generator.normal(size=(n, size)), "target": target, "smoothing": smoothing}
        return Case(name=name, arguments=arguments, **more)

    small = {"logits": np.array([[0.0, 2.0, 0.0]]), "target": np.array([1]), "smoothing": 0.3}
    return [
        case("prime sizes", 7, 11, 0.1),
        case("no padding", 5, 7, 0.1, padded=False),
        case("no smoothing", 11, 5, 0.0),
        case("one step", 1, 7, 0.2, padded=False),
        case("gradients", 5, 7, 0.1, slopes=("logits",)),
        Case(name="by hand", arguments=small),
    ]


def _small_loss() -> list[Case]:
    logits = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    return [
        Case(name="by hand", arguments={"logits": logits, "target": np.array([1, PADDING]), "smoothing": 0.3})
    ]


LOSS = '''"""Exercise: cross-entropy with smoothed labels (Szegedy et al. 2016, section 7).

Write it with NumPy or with PyTorch, then: regard check THIS_FILE.py
"""


def label_smoothed_loss(logits, target, smoothing, padding=0):
    """Return the mean over all steps that are no padding of -Σ_k q'(k) log p(k).

    q'(k) = (1 - smoothing) δ(k, target) + smoothing / V, and p is the softmax of the logits.
    logits (N, V); target (N,), numbers of tokens; returns one number, in nats.
    """
    raise NotImplementedError
'''
TRAINING = '''"""Exercise: a training loop with teacher forcing, in PyTorch.

Write it, then: regard check THIS_FILE.py
"""


def train_copy(model, batches):
    """Teach the model to copy: one step of the optimizer for every batch.

    model: a module; model(source, target) returns logits (B, T, V), of the token after each of the target's T.
    batches: a list of (source, target), tensors of numbers of tokens: source (B, Ts); target (B, Tt), which is
    start (1), the letters, end (2) and padding (0) up to the length of the longest. Padding has no part in the
    loss. Adam with a rate of 0.01 will do. Nothing comes back: it is the model that has changed.
    """
    raise NotImplementedError
'''

EXERCISES = (
    Exercise(
        name="label_smoothed_loss",
        title="the label-smoothed loss",
        stub=LOSS,
        reference=stepping.label_smoothed_loss,
        cases=_loss,
        small=_small_loss,
        outputs=("loss",),
        names=("label_smoothing", "smoothed_loss", "label_smoothing_loss", "loss"),
    ),
    Exercise(
        name="train_copy",
        title="a training loop that learns Copy",
        stub=TRAINING,
        reference=train_copy,
        cases=_training,
        outputs=(
            "what enters the decoder",
            "gradient",
            "gradients begin anew with each batch (1: yes)",
            "parameters moved (1: yes)",
            "all batches used (1: yes)",
        ),
        names=("train", "training_loop", "train_loop"),
        watch=_watch,
    ),
)
