"""Inputs reach the corners that a stub names, and notes and named mistakes are true for the code."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard_course import time_limit
from regard_course.arrays import convert_argument, equal_arrays
from regard_course.exercises.course import EXERCISES, find_exercise
from regard_course.inputs import MESSAGES
from regard_course.mistakes.known import LARGE_HIDDEN
from regard_course.sandbox import Assignment, run_object
from regard_course.worker import explain_error
from tests.course.checking import check_source, mistake_names

MAXIMUM = """
import numpy as np
def masked_softmax(scores, mask):
    powers = np.exp(scores - scores.max(-1, keepdims=True)) * mask
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)
"""
ATTENTION = """
import torch
def attention(query, key, value, mask=None):
    scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
    {hide}
    weights = scores.softmax(-1)
    weights = weights if mask is None else weights * mask
    return weights @ value, weights
"""
HIDE = "scores = scores if mask is None else scores - {penalty} * (~mask).float()"


@pytest.mark.parametrize(
    ("exercise", "source"),
    [("masked_softmax", MAXIMUM), ("attention", ATTENTION.format(hide=HIDE.format(penalty="1e3")))],
    ids=["maximum", "penalty"],
)
def test_large_scores_of_hidden_keys_do_not_count(exercise: str, source: str) -> None:
    for seed in (0, 3):
        report = check_source(source, exercise, seed)
        assert report.state == "wrong" and ["large hidden scores count"] in mistake_names(report)
        assert LARGE_HIDDEN in [case.name for case in report.cases if case.verdict == "wrong"]


def test_the_usual_constant_hides_large_scores() -> None:
    assert check_source(ATTENTION.format(hide=HIDE.format(penalty="1e9")), "attention").state == "right"


@pytest.mark.parametrize(
    ("exercise", "source", "case"),
    [
        (
            "masked_softmax",
            "import torch\ndef masked_softmax(scores, mask):\n    scores = scores * mask\n"
            "    return scores.masked_fill(scores == 0, -1e9).softmax(-1) * mask\n",
            "equal scores",
        ),
        (
            "label_smoothed_loss",
            "import torch\ndef label_smoothed_loss(logits, target, smoothing, padding=0):\n"
            "    logs = logits.softmax(-1).log()\n    right = torch.full_like(logs, smoothing / logs.shape[-1])\n"
            "    right[torch.arange(len(target)), target] += 1 - smoothing\n"
            "    return -(right * logs).sum(-1)[target != padding].mean()\n",
            "large logits",
        ),
        (
            "rms_norm",
            "def rms_norm(states, gain):\n    return states / ((states**2).mean(-1)[..., None] + 1e-8) ** 0.5 * gain\n",
            "small states",
        ),
        (
            "score",
            "import torch\ndef score(query, key):\n    key.view(len(key), -1)\n"
            "    return query @ key.transpose(1, 2) / query.shape[-1] ** 0.5\n",
            "not contiguous",
        ),
    ],
    ids=["zero is hidden", "log of a softmax", "epsilon", "view"],
)
def test_only_the_corner_shows_an_error(exercise: str, source: str, case: str) -> None:
    report = check_source(source, exercise)
    assert [item.name for item in report.cases if item.verdict in ("wrong", "failed")] == [case]


def test_inputs_have_the_corners() -> None:
    for exercise in EXERCISES:
        cases = {case.name: case for case in exercise.cases(0)}
        masks = [name for name in ("mask", "memory_mask") if any(name in case.arguments for case in cases.values())]
        assert (LARGE_HIDDEN in cases) == bool(masks), exercise.name
        if LARGE_HIDDEN in cases:
            case = cases[LARGE_HIDDEN]
            mask = case.arguments[masks[0]]
            assert mask.any(-1).all() and not mask.all()
        matrices = [value for value in cases[next(iter(cases))].arguments.values() if getattr(value, "ndim", 0) > 1]
        if matrices and exercise.name not in ("train_copy", "apply_merges"):
            arguments = cases["not contiguous"].arguments
            strided = {name: value for name, value in arguments.items() if getattr(value, "ndim", 0) > 1}
            assert strided and all(
                not convert_argument(value, "numpy").flags.c_contiguous or 1 in value.shape
                for value in strided.values()
            )
            assert not all(convert_argument(value, "torch").is_contiguous() for value in strided.values())


def test_infinities_have_signs() -> None:
    assert equal_arrays(np.array([np.inf, np.nan]), np.array([np.inf, np.nan]))
    assert not equal_arrays(np.array([np.inf]), np.array([-np.inf]))
    assert not equal_arrays(np.array([np.inf]), np.array([np.nan]))


def test_only_valid_steps_are_compared() -> None:
    right, valid = np.arange(12.0).reshape(2, 3, 2), np.array([[True, True, False], [True, True, True]])
    at_padding, at_a_step = right.copy(), right.copy()
    at_padding[0, 2] = at_a_step[1, 2] = 99.0
    assert equal_arrays(at_padding, right, valid) and not equal_arrays(at_padding, right)
    assert not equal_arrays(at_a_step, right, valid)


ROUNDED = """
import torch
CALLS = []
def score(query, key):
    CALLS.append(1)
    return query @ key.transpose(1, 2) / query.shape[-1] ** 0.5 {change}
"""


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ("* (1 + 4e-5 * (len(CALLS) % 2))", "right", ""),
        ("+ 1e-5 * torch.randn(1)", "right", ""),
        ("* torch.bernoulli(torch.tensor(0.5))", "wrong", "is dropout always active?"),
        ("+ len(CALLS)", "wrong", "the code keeps something from the first call"),
    ],
    ids=["rounding", "noise", "random", "state"],
)
def test_repeated_calls_are_compared_with_the_tolerance_of_grading(change: str, state: str, words: str) -> None:
    report = check_source(ROUNDED.format(change=change), "score")
    assert report.state == state and (not words or any(words in note for note in report.notes)), report
    assert (MESSAGES["random"] in report.notes) == ("dropout" in words)


TRAIN = """
import torch
import torch.nn.functional as F

def train_copy(model, batches):
    {before}
    for source, target in batches{some}:
        {inside}
        optimizer.zero_grad()
        F.cross_entropy(model(source, target[:, :-1]).mT, target[:, 1:], ignore_index=0).backward()
        optimizer.step()
"""


def train(optimizer: str, *, inside: bool = False, some: str = "") -> regard.ExerciseReport:
    line = f"optimizer = torch.optim.{optimizer}"
    before, within = ("", line) if inside else (line, "")
    return check_source(TRAIN.format(before=before, inside=within, some=some), "train_copy")


@pytest.mark.parametrize(
    ("optimizer", "inside", "some", "mistakes", "notes"),
    [
        ("SGD(model.parameters(), lr=0.001)", True, "", [], ["with SGD, and by 0.1 with Adam"]),
        ("SGD(model.parameters(), lr=0.001)", False, "", [], ["is the learning rate too small?"]),
        ("SGD(model.parameters(), lr=0.1, momentum=0.5)", True, "", [["new optimizer"]], []),
        ("Adam(model.parameters(), lr=0.01)", True, "", [["new optimizer"]], []),
        ("SGD(model.parameters(), lr=0.0)", False, "", [["never steps"]], []),
        ("Adam(model.parameters(), lr=0.01)", False, "[:2]", [], ["2 optimizer steps for 400 batches"]),
        ("Adam(model.parameters(), lr=0.01)", False, "[:1]", [["first batch only"]], []),
    ],
    ids=["new SGD", "slow SGD", "momentum", "new Adam", "rate 0", "two batches", "one batch"],
)
def test_advice_on_training_is_true(
    optimizer: str, inside: bool, some: str, mistakes: list[list[str]], notes: list[str]
) -> None:
    report = train(optimizer, inside=inside, some=some)
    assert report.state == "wrong" and mistake_names(report) == mistakes, report
    assert all(any(words in note for note in report.notes) for words in notes), report.notes
    assert "running means" not in str(report.notes)


def test_the_number_of_words_with_memory_is_no_lack_of_memory() -> None:
    assert "memory" not in explain_error(NameError("name 'memory' is not defined")).replace("'memory'", "")
    assert explain_error(MemoryError()).startswith("needs more than")


def slow_score(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    end = time.process_time() + 0.07
    while time.process_time() < end:
        pass
    scores: torch.Tensor = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
    return scores


def run(monkeypatch: pytest.MonkeyPatch, function: object, *, slowness: float, total: float) -> str:
    """Return the reason why a function is stopped, with a limit of a quarter of a second for each input."""
    monkeypatch.setattr(time_limit, "measure_slowness", lambda: slowness)
    monkeypatch.setattr(time_limit, "TOTAL", total)
    exercise = find_exercise("score")
    result = run_object(function, Path.cwd(), Assignment(exercises=(exercise,), chosen=True), seconds=0.25)
    return result.failures.get("score", ("", []))[0]


def test_the_limit_depends_on_progress_and_on_the_speed_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    late = run(monkeypatch, slow_score, slowness=1.0, total=3)
    assert late.startswith("did not end within 0.75 seconds: its steps go on")
    assert run(monkeypatch, slow_score, slowness=3.0, total=100) == ""

    def loop(query: torch.Tensor, key: torch.Tensor) -> None:
        while True:
            pass

    stopped = run(monkeypatch, loop, slowness=2.0, total=100)
    assert stopped.startswith("did not end within 0.25 seconds (times 2.0 on this slow machine): is there an endless")
