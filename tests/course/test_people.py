"""Answers in the styles of people: every mistake is named by its own name, and no correct answer is blamed."""

import pytest

from tests.course.checking import check_source, mistake_names
from tests.course.people import arena, dive, einsum, loops, nanogpt, stackoverflow
from tests.course.people.submission import Submission

STYLES = {
    "stackoverflow": stackoverflow,
    "arena": arena,
    "dive": dive,
    "nanogpt": nanogpt,
    "einsum": einsum,
    "loops": loops,
}
RIGHT = {f"{style}/{name}": answer for style, module in STYLES.items() for name, answer in module.RIGHT.items()}
WRONG = {f"{style}/{name}": answer for style, module in STYLES.items() for name, answer in module.WRONG.items()}
LONG = ("transformer", "train_copy")
NAMES = {
    "stackoverflow/softmax without an axis": ["softmax over batch"],
    "stackoverflow/rows of NaN": ["all masked nan"],
    "stackoverflow/true means masked": ["mask inverted"],
    "stackoverflow/angle of each column": ["dimensions for pairs"],
    "stackoverflow/halves": ["sines then cosines"],
    "stackoverflow/smoothing over the other classes": ["spread over others"],
    "stackoverflow/padding in the mean": ["mean with padding"],
    "stackoverflow/shortest is best": ["chosen by sum"],
    "stackoverflow/end is left out": ["end dropped"],
    "stackoverflow/gradients add up": ["padding counted", "gradients not reset"],
    "arena/scaled by the model's width": ["scale by whole width"],
    "arena/heads inside out": ["heads reversed"],
    "arena/IGNORE buffer": ["all masked uniform"],
    "arena/pattern over queries": ["softmax over queries"],
    "arena/norm before the sublayer": ["norm before"],
    "arena/Bessel": ["sample deviation"],
    "arena/gelu": ["gelu"],
    "arena/future": ["past hidden", "memory padding seen"],
    "arena/residual from the start": ["cross residual from input"],
    "arena/no division": ["scale by width"],
    "dive/reshape without transpose": ["wrong view", "wrong join"],
    "dive/mask repeated in the wrong order": ["mask of another head"],
    "dive/no output projection": ["no output projection"],
    "dive/residual after the norm": ["norm before adding"],
    "dive/the first norm twice": ["one norm"],
    "dive/activation after the second layer": ["relu at the end"],
    "dive/no tanh": ["no tanh"],
    "dive/context first": ["context first"],
    "dive/positions from one": ["positions from one", "sine and cosine swapped"],
    "dive/teacher without a shift": ["not shifted"],
    "nanogpt/no transpose back": ["wrong join"],
    "nanogpt/always causal": ["always causal"],
    "nanogpt/one projection": ["one projection"],
    "nanogpt/gelu": ["gelu"],
    "nanogpt/residual in the mlp": ["residual inside"],
    "nanogpt/pre-norm": ["norm before"],
    "nanogpt/embeddings without their factor": ["embedding not scaled"],
    "nanogpt/padding is seen by the decoder": ["memory padding seen"],
    "nanogpt/start and end of the answer": ["start included", "one too few"],
    "nanogpt/gradient is never cleared": ["gradients not reset"],
    "einsum/scores for weights": ["scores returned"],
    "einsum/bkq": ["no scale", "divided by column sums"],
    "einsum/width of the values": ["scale by value width"],
    "einsum/heads last": ["heads interleaved"],
    "einsum/softmax over heads": ["softmax over heads"],
    "einsum/keys as values": ["scale by whole width", "values from keys"],
    "einsum/scores for weights of the step": ["scores returned"],
    "einsum/old state": ["old state as query"],
    "einsum/state before context": ["state first"],
    "einsum/half a norm": ["no shift"],
    "loops/number of keys": ["scale by keys"],
    "loops/multiplied": ["scale multiplied"],
    "loops/overflow": ["overflow"],
    "loops/sum of all keys": ["mask after softmax"],
    "loops/exponent": ["half exponent"],
    "loops/waves in front": ["waves first"],
    "loops/no biases": ["absolute value", "no biases"],
    "loops/log to the base two": ["bits"],
    "loops/stops at the first end": ["first end stops"],
    "loops/length with the start": ["start counted"],
}
"""The names of the mistakes, which a person assigned to the faults of each answer."""


def _cases(answers: dict[str, Submission]) -> list[object]:
    marks = {True: [pytest.mark.slow], False: []}
    return [pytest.param(name, id=name, marks=marks[answer.exercise in LONG]) for name, answer in answers.items()]


@pytest.mark.parametrize("name", _cases(RIGHT))
def test_a_right_answer_is_right(name: str) -> None:
    report = check_source(RIGHT[name].source, RIGHT[name].exercise)
    assert report.state == "right" and not report.notes, report


@pytest.mark.parametrize("name", _cases(WRONG))
def test_the_mistakes_of_an_answer_are_named(name: str) -> None:
    report = check_source(WRONG[name].source, WRONG[name].exercise)
    assert report.state == "wrong"
    assert NAMES[name] in mistake_names(report), report


def test_every_wrong_answer_has_faults_and_names() -> None:
    assert len(WRONG) == 60 and len(RIGHT) == 30 and set(NAMES) == set(WRONG)
    assert all(answer.faults for answer in WRONG.values()) and not any(answer.faults for answer in RIGHT.values())
