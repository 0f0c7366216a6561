"""The exercises of the course in their order. Their texts and most inputs are in `exercises.toml` and `inputs.toml`."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from regard.errors import unknown_choice
from regard_course.exercises.draws import draw_cases
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import COPY_VOCABULARY, PADDING, Array, Case, copy_words, read_table
from regard_course.mistakes.known import MISTAKES
from regard_course.mistakes.solution import SearchSolution, Solution

TEXTS, INPUTS = read_table("exercises/exercises.toml"), read_table("exercises/inputs.toml")


def _without_padding(cases: Callable[[int], list[Case]]) -> Callable[[int], list[Case]]:
    """Return the inputs of the Transformer, whose logits of padding are not compared."""
    return lambda seed: [
        dataclasses.replace(case, valid_steps=case.arguments["target"] != PADDING) for case in cases(seed)
    ]


def _with_all_mistakes(cases: Callable[[int], list[Case]]) -> Callable[[int], list[Case]]:
    """Return inputs of beam search on which every mistake changes an answer that changes one with seed 0."""

    def draw(seed: int) -> list[Case]:
        drawn = cases(seed)
        while seed and not _shown_mistakes(cases(0)) <= _shown_mistakes(drawn):
            seed += 1_000
            drawn = cases(seed)
        return drawn

    return draw


def _shown_mistakes(cases: list[Case]) -> set[str]:
    def answers(solution: type[Solution]) -> list[str]:
        with contextlib.suppress(ZeroDivisionError):  # an answer without tokens
            return [str(solution().beam_search(**case.arguments)) for case in cases]
        return []

    right, steps = answers(Solution), {name for name in vars(SearchSolution) if not name.startswith("__")}
    known = [mistake for mistake in MISTAKES if vars(mistake).keys() & steps]
    return {mistake.__name__ for mistake in known if answers(mistake) != right}


# The training loop that must learn the task Copy.


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


# Subwords.

FIRST = 10
"""Number of the first token that byte-pair encoding adds."""


def _texts(seed: int) -> list[Array]:
    generator = np.random.default_rng(seed)
    texts = [generator.integers(0, letters, length) for letters, length in ((3, 29), (4, 41), (2, 23), (5, 61))]
    return [*texts, np.array([2, 2, 2, 0, 2, 2, 2, 1, 0, 1, 2, 2, 2, 0, 0, 1])]


LEARNED = ("three letters", "four letters", "two letters", "five letters", "runs of a letter")


def _learned(seed: int) -> list[Case]:
    cases = [
        Case(name=name, arguments={"tokens": text, "count": 2 + number % 3, "first": FIRST})
        for number, (name, text) in enumerate(zip(LEARNED, _texts(seed), strict=True))
    ]
    small = {"tokens": np.array([0, 1, 0, 1, 2, 0, 1, 2]), "count": 2, "first": FIRST}
    return [*cases, Case(name="by hand", arguments=small)]


def _applied(seed: int) -> list[Case]:
    cases = []
    for name, text, other in zip(LEARNED, _texts(seed + 1), _texts(seed), strict=True):
        merges = Solution().learn_merges(other, 3, FIRST)[0]
        cases.append(Case(name=name, arguments={"tokens": text, "merges": merges, "first": FIRST}))
    tokens, merges = np.array([0, 1, 2, 0, 1, 1, 2]), np.array([[1, 2], [0, 1], [0, FIRST]])
    return [*cases, Case(name="by hand", arguments={"tokens": tokens, "merges": merges, "first": FIRST})]


DRAWN = {"train_copy": _training, "learn_merges": _learned, "apply_merges": _applied}
"""The inputs of the exercises without a table of inputs."""
CHANGED = {"transformer": _without_padding, "beam_search": _with_all_mistakes}
"""How drawn inputs are changed."""


def _make_exercise(name: str, needs: object, **texts: Any) -> Exercise:
    table: dict[str, Any] = INPUTS.get(name, {})
    cases = DRAWN[name] if name in DRAWN else CHANGED.get(name, lambda drawn: drawn)(draw_cases(table))
    small = draw_cases(table, "small")(0) if "small" in table else []
    training = name == "train_copy"
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in texts.items()}
    return Exercise(
        solution=_expected_training if training else getattr(Solution, name),
        cases=cases,
        small_cases=lambda: small,
        template=train_copy if training else None,
        call="run_training" if training else "",
        module_arguments=tuple(table.get("module_arguments", ())),
        constructor_sizes=tuple(table.get("constructor", ())),
        **plain,
    )


# In the order of the lessons: see `needs` and `introduces` in `lessons/runs.toml`.
EXERCISES: tuple[Exercise, ...] = tuple(_make_exercise(name, **texts) for name, texts in TEXTS.items())


def find_exercise(name: str, exercises: Sequence[Exercise] = EXERCISES) -> Exercise:
    """Return the exercise with this name or alias, in any spelling.

    Raises `InputError` for an unknown name.

    >>> find_exercise("MHA").name
    'multi_head_attention'
    """
    for exercise in exercises:
        if exercise.matches(name):
            return exercise
    raise unknown_choice("exercise", name, [exercise.name for exercise in exercises])
