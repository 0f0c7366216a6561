"""The objects of a learner's file count as answers, imports or helpers."""

from pathlib import Path
from typing import Any

import pytest

import regard
from regard.attention.multihead import MultiHeadAttention
from regard_course.candidates import COURSE, REGARD, find_candidates
from regard_course.exercises.course import EXERCISES, find_exercise
from regard_course.mistakes.solution import Solution
from tests.course.checking import SCORE, Command, execute, write

SOFTMAX = """
def softmax(x, {more}):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
"""
ATTENTION = """
def attention(query, key, value, mask=None):
    scores = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1])
    weights = softmax(scores, None) if mask is None else softmax(np.where(mask, scores, -1e30), None) * mask
    return weights @ value, weights
"""
RIGHT = "import numpy as np\n" + SOFTMAX.format(more="axis=-1") + ATTENTION


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("from regard.attention.multihead import MultiHeadAttention", "regard.attention"),
        ("from torch.nn import MultiheadAttention", "torch.nn"),
        ("from torch.nn import MultiheadAttention as MHA", "torch.nn"),
        ("from regard.attention.multihead import *", "regard.attention"),
        ("import torch\nmulti_head_attention = torch.nn.MultiheadAttention", "torch.nn.modules.activation"),
        ("import torch\nclass MHA(torch.nn.MultiheadAttention):\n    pass", "torch.nn.modules.activation"),
        ("import functools, torch\nMHA = functools.partial(torch.nn.MultiheadAttention, 8)", "torch.nn"),
    ],
)
def test_an_import_is_not_an_answer(text: str, origin: str) -> None:
    candidates = find_candidates(execute(text), EXERCISES)
    assert candidates.exercises == {}
    assert candidates.imported["multi_head_attention"][1].startswith(origin)


@pytest.mark.parametrize(
    "text",
    [
        "attention = lambda q, k, v, mask=None: q",
        "import functools\ndef work(q, k, v, mask=None): ...\nattention = functools.partial(work)",
        "import functools\n@functools.cache\ndef attention(q, k, v, mask=None): ...",
        "import torch\n@torch.no_grad()\ndef attention(q, k, v, mask=None): ...",
        "import torch\n@torch.compile(backend='eager')\ndef attention(q, k, v, mask=None): ...",
        "class Base:\n    def __call__(self, q, k, v): ...\nattention = Base()",
        "attention = type('Attention', (), {'__call__': lambda self, q, k, v: q})",
        "import dataclasses\n@dataclasses.dataclass\nclass Attention:\n    def forward(self, q, k, v): ...",
        "exec('def attention(q, k, v, mask=None): ...')",
    ],
)
def test_wrapped_code_of_the_file_is_an_answer(text: str) -> None:
    candidates = find_candidates(execute(text), EXERCISES)
    assert list(candidates.exercises) == ["attention"] and candidates.imported == {}


def test_the_name_of_an_exercise_has_priority_over_aliases() -> None:
    text = "def softmax(scores, mask): ...\ndef masked_softmax(scores, mask): ...\n"
    candidates = find_candidates(execute(text), EXERCISES)
    assert candidates.exercises == {"masked_softmax": "masked_softmax"}
    assert candidates.passed_over == {"masked_softmax": ["softmax"]}


def test_the_function_that_uses_the_others_is_the_answer() -> None:
    candidates = find_candidates(
        execute("def helper(x): ...\ndef mine(q, k): return helper(q)\n"), [find_exercise("score")], chosen=True
    )
    assert candidates.exercises == {"score": "mine"} and candidates.calls == {"score": ["helper"]}


def test_a_method_of_the_same_name_is_not_a_call() -> None:
    text = "def softmax(scores, mask): ...\ndef attention(q, k, v, mask=None):\n    return q.softmax(-1)\n"
    assert find_candidates(execute(text), EXERCISES).calls["attention"] == []


HEADS = """
import torch
from torch import nn

class Attention(nn.Module):
    def forward(self, q, k, v, mask):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -1e30)
        weights = scores.softmax(-1)
        return (weights if mask is None else weights * mask[:, None]) @ v

class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.attention = heads, Attention()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        parts = self.q(query), self.k(key), self.v(value)
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in parts)
        return self.o(self.attention(q, k, v, mask).transpose(1, 2).flatten(2))
"""


@pytest.mark.parametrize(
    ("text", "states"),
    [
        (RIGHT, {"attention": "right"}),
        (RIGHT.replace("axis=-1", "mask"), {"masked_softmax": "helper", "attention": "right"}),
        (
            RIGHT.replace("axis=-1", "mask").replace("softmax(np", "globals()['softmax'](np").replace("softmax(scores, None)", "globals()['softmax'](scores, None)"),  # noqa: E501
            {"masked_softmax": "helper", "attention": "right"},
        ),
        (
            RIGHT.replace("axis=-1", "mask").replace(" / np.sqrt(query.shape[-1])", ""),
            {"masked_softmax": "wrong", "attention": "wrong"},
        ),
        (RIGHT.replace("axis=-1", "mask").partition("def attention")[0], {"masked_softmax": "wrong"}),
        (HEADS, {"attention": "helper", "multi_head_attention": "right"}),
        ("from torch.nn import MultiheadAttention\n" + SCORE, {"score": "right", "multi_head_attention": "imported"}),
        ("from torch.nn.functional import softmax\n" + SCORE, {"score": "right"}),
    ],
    ids=["option", "helper", "at run time", "both wrong", "alone", "class", "import", "softmax"],
)  # fmt: skip
def test_helpers_and_imports_do_not_affect_the_result(text: str, states: dict[str, str], tmp_path: Path) -> None:
    report = regard.check(write(tmp_path, text))
    assert {exercise.exercise: exercise.state for exercise in report.exercises} == states
    assert report.right == ("wrong" not in states.values())
    assert all("\n" not in exercise.trouble for exercise in report.exercises)


def test_a_file_that_only_imports_is_not_right(tmp_path: Path, command: Command) -> None:
    status, out, _ = command("check", write(tmp_path, "from regard.attention.multihead import MultiHeadAttention\n"))
    assert status == 1
    assert "MultiHeadAttention is imported from regard.attention.multihead: write your own" in " ".join(out.split())


SOLUTION = "regard_course.mistakes.solution.Solution.attention"


def test_library_work_is_noted(tmp_path: Path) -> None:
    text = "import torch.nn.functional as F\ndef attention(q, k, v, mask=None):\n"
    text += "    return F.scaled_dot_product_attention(q, k, v, mask), mask\n"
    (report,) = regard.check(write(tmp_path, text)).exercises
    assert "scaled_dot_product_attention does the work of attention, not your own code" in report.notes


def test_the_solution_in_an_object_is_noted() -> None:
    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return Solution().attention(q, k, v, mask)

    (report,) = regard.check(attention).exercises
    assert f"{SOLUTION} does the work of attention, not your own code" in report.notes


@pytest.mark.slow
def test_softmax_and_matmul_of_a_library_are_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, "import torch\n" + HEADS)
    assert all(not exercise.notes for exercise in regard.check(path).exercises)


def test_a_library_object_is_not_an_answer() -> None:
    report = regard.check(MultiHeadAttention)
    assert not report.right and report.exercises[0].state == "imported"


@pytest.mark.parametrize(
    ("code", "noted"),
    [
        ("return np.einsum('bqd,bkd,->bqk', q, k, np.array(q.shape[-1] ** -0.5), optimize='greedy')", ""),
        ("import attention_tools\n    return q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5", ""),
        (
            "import torch\n    from regard.attention.masks import causal_mask\n    causal_mask(2, 2)\n    return q",
            "regard.attention",
        ),
    ],
    ids=["a library's own call", "an import", "a call of the learner"],
)
def test_only_what_the_learner_calls_is_noted(tmp_path: Path, code: str, noted: str) -> None:
    (tmp_path / "attention_tools.py").write_text("class BeamSearch:\n    pass\n", encoding="utf-8")
    (report,) = regard.check(write(tmp_path, f"import numpy as np\ndef score(q, k):\n    {code}\n")).exercises
    assert [note.startswith(noted) for note in report.notes] == ([True] if noted else []), report


def test_packages_beside_regard_are_not_regards_code() -> None:
    """Regard and NumPy are in one folder if both are installed."""
    assert str(COURSE / "check.py").startswith(REGARD) and str(COURSE.with_name("regard") / "a.py").startswith(REGARD)
    assert not str(COURSE.with_name("numpy") / "a.py").startswith(REGARD)
    assert not str(COURSE.with_name("regard_notes") / "a.py").startswith(REGARD)
