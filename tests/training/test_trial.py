"""What is a user's own is tried before anything is trained."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard
from regard.errors import InputError

SCORES = """
import torch
from regard.attention import Score

class Good(Score):
    def forward(self, query, prepared):
        return -torch.cdist(query, prepared)

class Turned(Score):
    def forward(self, query, prepared):
        return prepared @ query.transpose(-2, -1)

class Listed(Score):
    def forward(self, query, prepared):
        return [1.0]

class Raises(Score):
    def forward(self, query, prepared):
        raise RuntimeError("the moon\\nis full")

class Narrow(Score):
    def __init__(self, width): super().__init__(width)
    def forward(self, query): return query

class Picky(Score):
    def __init__(self, width, key_width=None):
        raise ValueError("not today")
"""
MODELS = """
import torch
from torch import nn
from regard.models import AnswerModel

class Base(AnswerModel):
    def __init__(self, config, *, letters, input_len, outputs, classes, vary_len):
        super().__init__()
        self.outputs, self.classes = outputs, classes
        self.weight = nn.Parameter(torch.zeros(outputs, classes))

    def forward(self, inputs, mask=None):
        return self.weight.expand(len(inputs), -1, -1)

class Wide(Base):
    def forward(self, inputs, mask=None):
        return torch.cat([super().forward(inputs), super().forward(inputs)], -1)

class Deaf(Base):
    def forward(self, inputs, mask=None):
        return super().forward(inputs).detach()

class Fails(Base):
    def forward(self, inputs, mask=None):
        return inputs @ inputs

class Empty(Base):
    def __init__(self, config, **sizes):
        AnswerModel.__init__(self)

class Other(Base):
    def forward(self, inputs):
        return super().forward(inputs)
"""
TASK = """
import torch
from regard.tasks import Task

class Odd(Task):
    name = "odd"
    summary = "odd"
    outputs = 1
    def answer(self, inputs): return {answer}
    def relevance(self, inputs): return {relevance}
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "scores_of_mine.py").write_text(SCORES)
    (tmp_path / "models_of_mine.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("scores_of_mine", "models_of_mine"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("Turned", r"gives scores of shape \(2, 3, 7, 5\): expected \(2, 3, 5, 7\)"),
        ("Listed", r"gives scores of type list: expected a tensor \(2, 3, 5, 7\)"),
        ("Raises", "fails on queries .*: RuntimeError: the moon is full"),
        ("Narrow", "cannot be built for widths .*: TypeError: .*; it takes the widths"),
        ("Picky", "cannot be built for widths .*: ValueError: not today"),
    ],
)
@pytest.mark.parametrize("task", ["counting", "copy"])
def test_a_score_that_does_not_do_what_it_should(score: str, message: str, task: str) -> None:
    with pytest.raises(InputError, match=f"^score 'scores_of_mine:{score}' {message}") as raised:
        regard.train(task, score=f"scores_of_mine:{score}", progress=False)
    assert "\n" not in str(raised.value) and not Path("models").exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("Wide", r"gives logits of shape \(2, 3, 22\): expected \(2, 3, 11\)"),
        ("Deaf", "gives logits that depend on no parameter"),
        ("Fails", "fails on a batch of 2: RuntimeError: "),
        ("Empty", "has no parameters"),
        ("Other", "fails on a batch of 2: TypeError: "),
    ],
)
def test_a_model_that_does_not_do_what_it_should(model: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^model 'models_of_mine:{model}' {message}"):
        regard.train("counting", model=f"models_of_mine:{model}", progress=False)
    assert not Path("models").exists()


@pytest.mark.parametrize(
    ("answer", "relevance", "message"),
    [
        ("inputs.sum(1)", "None", r"gives answers of shape \(2,\): expected \(2, 1\)"),
        (
            "inputs.sum(1, keepdim=True) + 99",
            "None",
            "gives answers that are no classes: expected int64 from 0 to 10",
        ),
        ("inputs[:, :1]", "None", "gives relevance of type NoneType: expected a tensor"),
        ("1 / 0", "None", "fails on a batch of 2: ZeroDivisionError"),
    ],
)
def test_a_task_that_does_not_do_what_it_should(own: Path, answer: str, relevance: str, message: str) -> None:
    (own / "odd.py").write_text(TASK.format(answer=answer, relevance=relevance))
    with pytest.raises(InputError, match=f"^task file '.*odd.py' {message}"):
        regard.train("odd.py", progress=False)
    assert not Path("models").exists()


def test_what_works_trains_and_a_run_of_it_tells_where_its_module_is_missing(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = regard.train("copy", score="scores_of_mine:Good", steps=2, progress=False)
    again = regard.train("copy", score="scores_of_mine:Good", steps=2, progress=False, savepath="again")
    assert [line["loss"] for line in run.metrics] == [line["loss"] for line in again.metrics]
    folder = run.folder.resolve()
    sys.modules.pop("scores_of_mine")
    sys.path.remove(str(own))
    (own / "elsewhere").mkdir()
    monkeypatch.chdir(own / "elsewhere")
    with pytest.raises(
        InputError, match="cannot be loaded here: score 'scores_of_mine:Good' is not found: there is "
    ):
        regard.load(folder)
