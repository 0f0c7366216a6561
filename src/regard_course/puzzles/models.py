"""A learner's program as a model, beside a model of the same layers that is trained on the same task. Each head of the
compiled model, a selector, matches the head with the most similar attention: the mean sum of min(a, b)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from regard.attention.interventions import record_own
from regard.attention.names import short_name
from regard.models.base import TaskModel
from regard.streams import make_generator
from regard.tasks.batch import IGNORE
from regard_course.program_tables import WrittenProgram
from regard_course.puzzles.puzzle import Puzzle
from regard_lab.bench.known_models import Texts, cross_entropy, draw_texts, run, same_layers, training_steps
from regard_lab.programs.compiler import Compiled, assemble
from regard_lab.programs.planner import Planner

STEPS, CHECK_EVERY = 2000, 100
"""Training ends at the first check at which the answers to all inputs are right."""
LEAST_SIMILARITY = 0.7
"""A head with less similar attention does not match a selector."""
Place = tuple[str, int]
"""Layer and head."""
Progress = Callable[[dict[str, float]], None]
"""Receives the training step, its loss, and the fraction of inputs with right answers."""


@dataclass(frozen=True)
class CompiledPuzzle:
    """A learner's program as a model."""

    puzzle: Puzzle
    compiled: Compiled
    heads: Mapping[Place, str]
    """Name of the selector of each head. A selector that is used twice has two heads."""
    inputs: Sequence[Texts]

    def count_right(self, model: TaskModel) -> int:
        return sum(int(_are_right(model, group).sum()) for group in self.inputs)

    def attention(self, model: TaskModel, text: str) -> dict[Place, Tensor]:
        """Return the attention (T, T + 1) of each head for a text. The first key is the additional step "^"."""
        task: Any = self.compiled.task
        return {place: maps[0] for place, maps in _attention(model, task.parse(text)).items()}


def compile_puzzle(puzzle: Puzzle, program: WrittenProgram, *, seed: int = 0) -> CompiledPuzzle:
    """Return the model of a program. Raises `InputError` for a program that needs too many dimensions."""
    planner = Planner(puzzle.program(program.answer))
    compiled = assemble(planner, seed=seed)
    names = {selector: name for name, selector in program.selectors.items()}
    selectors = {
        (layer, index): head.expression.selector
        for layer, planned in planner.heads.items()
        for index, head in enumerate(planned)
    }
    heads = {place: name for known, name in names.items() for place, selector in selectors.items() if selector is known}
    task: Any = compiled.task
    groups = groupby(puzzle.inputs, len)  # the inputs are sorted by length
    tokens = [torch.cat([task.parse(text) for text in texts]) for _, texts in groups]
    return CompiledPuzzle(puzzle, compiled, heads, [Texts((group,), task.answer(group)) for group in tokens])


@torch.inference_mode()
def _are_right(model: TaskModel, group: Texts) -> Tensor:
    chosen = run(model, group).argmax(-1)
    right: Tensor = ((chosen == group.answers) | (group.answers == IGNORE)).all(-1)
    return right


@torch.inference_mode()
def _attention(model: TaskModel, tokens: Tensor) -> dict[Place, Tensor]:
    """Return the attention (N, T - 1, T) of each head, of each step to "^" and each step, without the rows of "^"."""
    with record_own(model) as records:
        model(tokens)
    rows = {name: slice(0, tokens.shape[1] - 1) if name == "cross" else slice(1, None) for name in records}
    return {
        (short_name(name), head): record.weights[:, head, rows[name]]
        for name, record in records.items()
        for head in range(record.weights.shape[1])
    }


def train_beside(compiled: CompiledPuzzle, *, seed: int = 0, progress: Progress | None = None) -> TaskModel:
    """Train a model with the layers and heads of the compiled model on the answers of the puzzle. Takes about 10
    to 60 seconds on one core. The result depends only on the program and the seed."""
    stream = f"puzzle/{compiled.puzzle.name}"
    model, _ = same_layers(compiled.compiled, seed, stream)
    generator = make_generator(seed, f"{stream}/train")

    def loss(group: Texts) -> Tensor:
        batch = draw_texts(group, generator)
        return cross_entropy(run(model.train(), batch), batch.answers)

    for step, value in training_steps(model, compiled.inputs, STEPS, generator, loss):
        if step % CHECK_EVERY == 0:
            right = compiled.count_right(model.eval()) / len(compiled.puzzle.inputs)
            if progress is not None:
                progress({"step": step, "loss": value, "exact_match": right})
            if right == 1.0:
                break
    trained: TaskModel = model.eval()
    return trained


@dataclass(frozen=True, kw_only=True)
class HeadMatch:
    """The trained head whose attention is most similar to that of a selector."""

    selector: str
    head: Place
    """Head of the compiled model."""
    trained: Place
    similarity: float
    """From 0 to 1."""
    uniform: float
    """Similarity of a head that attends to all steps evenly."""

    @property
    def matches(self) -> bool:
        return self.similarity >= LEAST_SIMILARITY

    def __str__(self) -> str:
        place, figures = show_place(self.trained), f"similarity {self.similarity:.2f}"
        figures += f"; uniform attention {self.uniform:.2f}"
        if self.matches:
            return f"{self.selector}: {place} ({figures})"
        return f"{self.selector}: no head does this; the nearest is {place} ({figures})"


def show_place(place: Place) -> str:
    """Return the name of a head.

    >>> show_place(("decoder.0.self_attention", 1))
    'layer 0 head 1'
    """
    layer = place[0].split(".")
    return f"answer head {place[1]}" if layer == ["cross"] else f"layer {layer[1]} head {place[1]}"


def match_heads(compiled: CompiledPuzzle, trained: TaskModel) -> list[HeadMatch]:
    """Return the most similar trained head of each selector, over all inputs."""
    similar: dict[tuple[str, Place], float] = {}
    heads = dict[str, Place]()
    for place, name in compiled.heads.items():
        heads.setdefault(name, place)
    uniform = dict.fromkeys(heads, 0.0)
    total = len(compiled.puzzle.inputs)
    for group in compiled.inputs:
        own, other = (_attention(model, group.reads[0]) for model in (compiled.compiled.model, trained))
        share = len(group.answers) / total
        for name, place in heads.items():
            for candidate, weights in other.items():
                same = share * _similarity(own[place], weights)
                similar[name, candidate] = similar.get((name, candidate), 0.0) + same
            seen = torch.ones_like(own[place])
            seen = seen.tril(1) if compiled.puzzle.causal else seen
            uniform[name] += share * _similarity(own[place], seen / seen.sum(-1, keepdim=True))
    matches = []
    for name, place in heads.items():
        value, best = max((value, key[1]) for key, value in similar.items() if key[0] == name)
        matches.append(HeadMatch(selector=name, head=place, trained=best, similarity=value, uniform=uniform[name]))
    return matches


def _similarity(first: Tensor, second: Tensor) -> float:
    return float(torch.minimum(first, second).sum(-1).mean())
