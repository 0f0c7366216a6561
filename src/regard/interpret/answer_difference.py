"""Two inputs with different answers, and the difference between the logits of the answers, for patching.

    effect = (difference patched - difference corrupted) / (difference clean - difference corrupted)

`difference` is the logit of the answer to the clean input minus that of the answer to the corrupted input, at
one output step. The effect is 0 if a patch restores nothing, and 1 if it restores the whole difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import InputError, check_range
from regard.result import Result
from regard.viz.subject import Subject

MIN_DIFFERENCE = 1e-6
"""Smallest logit difference between the clean and the corrupted run, in nats, for which effects are
computed."""
Metric = Callable[[Tensor], Tensor]
"""Maps the logits (T, C) of one input to a number."""
SAME = (
    "both inputs have the same answer, so there is no difference to restore: give inputs with different answers"
)
SAME_PREDICTED = ", or name two answers to compare, answers=(..., ...)"


@dataclass(frozen=True)
class AnswerDifference:
    """The measured difference between a clean and a corrupted run."""

    measure: Metric
    answers: tuple[str, str]
    """The answers for the clean and the corrupted input."""
    step: int
    """Output step at which the logits are compared."""
    clean: float
    """Difference in the clean run."""
    corrupted: float
    """Difference in the corrupted run."""

    def restored(self, logits: Tensor) -> float:
        """Return the effect of a patch into the corrupted run with logits (T, C)."""
        return (float(self.measure(logits)) - self.corrupted) / (self.clean - self.corrupted)

    def lost(self, logits: Tensor) -> float:
        """Return the effect of a patch into the clean run: 1 if the whole difference is lost."""
        return (self.clean - float(self.measure(logits))) / (self.clean - self.corrupted)


@dataclass(frozen=True, kw_only=True, repr=False)
class DifferenceEffects(Result):
    """Base of results: effects as fractions of the logit difference between two inputs."""

    clean: str
    corrupted: str
    answers: tuple[str, str]
    """The answer tokens for the clean and the corrupted input."""
    difference_clean: float
    """Logit of the first answer minus the logit of the second answer, for the clean input."""
    difference_corrupted: float
    step: int
    """Output step at which the logits are compared."""


class InputPair(NamedTuple):
    """A clean and a corrupted input in the form of `Subject.prepare`."""

    clean: Any
    corrupted: Any
    causal: bool
    """Whether each output depends on the inputs up to its own position only."""
    step: int | None = None
    """The output step that answers the clean input, such as its first mask; None: not known."""


def prepare_inputs(subject: Subject[Any], clean: Any, corrupted: Any) -> InputPair:
    """Return both inputs in the form of `Subject.prepare`.

    A model that generates its answers reads the answer to the clean input in both runs, unless the corrupted
    input is a pair of source and target. Raises `InputError` for different numbers of tokens.
    """
    prepare = subject.patchable.prepare
    first = prepare(clean)
    second = prepare(corrupted, first)
    try:
        probes = [subject.trial(prepared) for prepared in (first, second)]
    except InputError:  # a metric of states needs no embedding
        return InputPair(first, second, causal=False)
    check_lengths([None if probe.tokens is None else len(probe.tokens) for probe in probes])
    steps = None if probes[0].causal else probes[0].steps
    return InputPair(first, second, probes[0].causal, None if steps is None else steps[0])


def check_lengths(lengths: Sequence[int | None]) -> None:
    """Raise `InputError` for two inputs with different numbers of tokens."""
    if lengths[0] != lengths[1]:
        raise InputError(
            f"inputs have {lengths[0]} and {lengths[1]} tokens: pass two inputs with the same number of tokens"
        )


def compare_answers(
    subject: Subject[Any],
    inputs: InputPair,
    logits: Sequence[Tensor],
    *,
    answers: tuple[str, str] | None = None,
    metric: Metric | None = None,
    step: int | None = None,
) -> AnswerDifference:
    """Return the difference between the clean and the corrupted run, with logits (T, C) each.

    `answers`: two texts (None: the likeliest answers). Of a model with one output number, the number itself is
    compared. `step`: output step, negative from the end. None: the first mask of a masked model, otherwise the
    last step; without `answers`, a model that is not causal is compared at the first step at which its
    predictions differ if they are equal at the last step. Raises `InputError` if the difference is the same in
    both runs.
    """
    is_fixed = inputs.causal or answers is not None or metric is not None
    place = _find_step(logits, inputs.step if step is None else step, is_fixed=is_fixed)
    if answers is None:
        classes = [int(values[place].argmax()) for values in logits]
    else:
        classes = [subject.patchable.answer_class(text, logits[0].shape[-1]) for text in answers]
    measure = metric or (lambda values: values[place, classes[0]] - values[place, classes[1]])
    is_number = metric is None and logits[0].shape[-1] == 1  # such as a loss
    if is_number:
        measure = lambda values: values[place, 0]  # noqa: E731
    with torch.no_grad():
        measured = [measure(values) for values in logits]
    try:
        differences = list(map(float, measured))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"metric returned {type(measured[0]).__name__}: return one number for logits") from None
    if abs(differences[0] - differences[1]) < MIN_DIFFERENCE:
        raise InputError(SAME + SAME_PREDICTED * (not is_number and answers is None and metric is None))
    first, second = ("value", "0") if is_number else subject.called(classes)
    return AnswerDifference(measure, (first, second), place, *differences)


def _find_step(logits: Sequence[Tensor], step: int | None, *, is_fixed: bool) -> int:
    count = min(map(len, logits))
    if step is not None:
        check_range("step", step, -count, count - 1)
        return step % count
    clean, corrupted = (values[:count].argmax(-1) for values in logits)
    differing: list[int] = (clean != corrupted).nonzero().flatten().tolist() if not is_fixed else []
    return differing[0] if differing and count - 1 not in differing else count - 1
