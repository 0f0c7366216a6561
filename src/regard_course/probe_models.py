"""Models for the exercise on training loops: one records its calls, and one learns the task Copy."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from regard_course.inputs import COPY_VOCABULARY, END, MESSAGES, PADDING, START, Array, Case, copy_words
from regard_course.time_limit import report_progress
from regard_course.translated import say

TrainingLoop = Callable[[Any, list[tuple[Tensor, Tensor]]], Any]
WIDTH = 32
REQUIRED_SHARE = 0.9
"""Fraction of unseen words that the trained model must copy."""
RECORDED_BATCHES = 3
LEAST_MOVE, MOST_MOVE = 0.03, 1.0
"""Mean changes of a parameter. Below and above, a failed training is attributed to the learning rate: Adam
changes the parameters by 0.1 with a rate of 0.01, by 0.02 with 0.0001 and by 5 with 1."""


class RecordingModel(nn.Module):
    """Model that returns logits from a table (B, T, V), and records its inputs and the logits' gradients."""

    def __init__(self, table: Array) -> None:
        super().__init__()
        self.table = torch.as_tensor(table, dtype=torch.float32)
        self.bias = nn.Parameter(torch.zeros(table.shape[-1]))
        self.inputs: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.reset: list[bool] = []
        """Whether the parameters' gradient was zero before each backward pass."""

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits for each step of the target."""
        self.inputs.append(target.detach().clone())
        logits: Tensor = self.table[: len(target), : target.shape[1]] + self.bias
        if logits.requires_grad:
            logits.register_hook(self._record)
        return logits

    def _record(self, gradient: Tensor) -> None:
        self.gradients.append(gradient.detach().clone())
        self.reset.append(self.bias.grad is None or not bool(self.bias.grad.any()))


def run_training(loop: TrainingLoop, case: Case) -> tuple[tuple[Array, ...], list[str]]:
    """Run a learner's loop on a model that records its calls, or learns Copy. Return outputs and notes."""
    if case.arguments.get("batches"):
        share, notes = score_training(loop, case.arguments["batches"])
        return (np.array(share),), notes
    return record_training(loop, case.arguments["target"], case.arguments["table"]), []


def record_training(loop: TrainingLoop, target: Array, table: Array) -> tuple[Array, ...]:
    """Return the first decoder input, the normalized first gradient, and whether gradients were reset and parameters
    changed (1 or 0), the fraction of batches used, and whether optimizers keep their state. Raises `ValueError` if the
    loop never calls the model."""
    model = RecordingModel(table)
    tokens = torch.as_tensor(target)
    with _optimizer_steps() as optimizers:
        loop(model, [(tokens[:, 1:-1].clone(), tokens.clone()) for _ in range(RECORDED_BATCHES)])
    if not model.inputs:
        raise ValueError(say("the model is never called: call model(source, target) for every batch"))
    decoder_input = model.inputs[0].numpy()
    shape = (*decoder_input.shape, table.shape[-1])
    gradient = model.gradients[0].double().numpy() if model.gradients else np.zeros(shape)
    length = float(np.sqrt((gradient**2).sum()))
    # A new optimizer is a mistake only if it has a state to lose: SGD without momentum has none.
    states = (state for optimizer in optimizers for state in optimizer.state.values())
    kept = [value for state in states for value in state.values()]
    renewed = len(optimizers) >= RECORDED_BATCHES and len(set(map(id, optimizers))) == len(optimizers)
    numbers = (
        not model.gradients or all(model.reset),
        bool(model.bias.detach().any()),
        min(1, len(model.inputs) / RECORDED_BATCHES),
        not (renewed and any(map(torch.is_tensor, kept))),
    )
    normalized = gradient / length if length else gradient
    return decoder_input, normalized, *(np.array(float(number)) for number in numbers)


@contextlib.contextmanager
def _optimizer_steps() -> Iterator[list[torch.optim.Optimizer]]:
    """Yield a list that receives the optimizer of each step."""
    optimizers: list[torch.optim.Optimizer] = []
    handle = register_optimizer_step_post_hook(lambda optimizer, *_: optimizers.append(optimizer))
    try:
        yield optimizers
    finally:
        handle.remove()


class CopyModel(nn.Module):
    """One attention layer from target to source with learned positions: the smallest model that learns Copy."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches
        """Number of batches that are not trained yet. After them, calls are no progress."""
        self.letters = nn.Embedding(COPY_VOCABULARY, WIDTH)
        self.positions = nn.Embedding(8, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Sequential(nn.Linear(2 * WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, COPY_VOCABULARY))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits (B, T, V)."""
        self.batches -= 1
        if self.batches > 0:
            report_progress()
        query = self.letters(target) + self.positions.weight[: target.shape[1]]
        memory = self.letters(source) + self.positions.weight[: source.shape[1]]
        # Written out: PyTorch's fused attention changes the fractions in reports of incorrect loops, from 24 %
        # to 0 %.
        weights = (query @ self.key(memory).transpose(1, 2) * WIDTH**-0.5).softmax(-1)
        logits: Tensor = self.output(torch.cat([weights @ memory, query], -1))
        return logits


def score_training(loop: TrainingLoop, batches: int) -> tuple[float, list[str]]:
    """Train a model with the loop. Return the fraction of unseen words that the model copies, or 1 if the
    fraction is large enough, and a note if the parameters changed too little or too much."""
    torch.default_generator.manual_seed(0)
    model = CopyModel(batches)
    start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    words = [tuple(map(torch.as_tensor, copy_words(seed, 32))) for seed in range(batches)]
    with _optimizer_steps() as optimizers:
        loop(model, words)  # type: ignore[arg-type]
    share = copied_share(model, *map(torch.as_tensor, copy_words(batches, 200)))
    if share >= REQUIRED_SHARE:
        return 1.0, []
    if 0 < len(optimizers) < batches:
        return share, [say(MESSAGES["few_steps"], len(optimizers), batches)]
    moved = float((nn.utils.parameters_to_vector(model.parameters()).detach() - start).abs().mean())
    if not 0 < moved < LEAST_MOVE and moved <= MOST_MOVE:
        return share, []
    names = sorted({type(optimizer).__name__ for optimizer in optimizers})
    used = say(" with {0}", say(" and ").join(names)) if names else ""
    size = "small" if moved < LEAST_MOVE else "large"
    return share, [say(MESSAGES[f"rate_too_{size}"], f"{moved:.2g}", used)]


@torch.no_grad()
def copied_share(model: nn.Module, source: Tensor, target: Tensor) -> float:
    """Return the fraction of words that the model copies without an error by greedy search."""
    model.eval()
    tokens = torch.full((len(source), 1), START)
    for _ in range(target.shape[1] - 1):
        following = model(source, tokens)[:, -1].argmax(-1)
        ended = (tokens == END).any(1)
        tokens = torch.cat([tokens, following.masked_fill(ended, PADDING)[:, None]], 1)
    return float((tokens == target).all(1).double().mean())
