"""Custom code is checked before training."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import InputError

SCORES = """
import torch
from regard.attention.scores import Score

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
PARTS = """
import torch
from torch import nn
from regard.attention.multihead import MultiHeadAttention
from regard.attention.positions import Positions

class Ramp(Positions):
    def __init__(self, width, length):
        super().__init__(width, length)
        self.slope = nn.Parameter(torch.zeros(width))

    def vectors(self, first, count, device=None):
        return torch.arange(first, first + count, device=device).unsqueeze(1) / self.length * self.slope

class Short(Positions):
    def forward(self, states, offset=0):
        return states[:, 1:]

class Bare(Positions):
    def __init__(self, width): super().__init__(width)

class Unmoved(Positions):
    def forward(self, states): return states

class Plain:
    pass

class Gated(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.attention = MultiHeadAttention(width, heads)
        self.gate = nn.Linear(width, width)

    def forward(self, states, mask=None):
        return states + self.gate(states).sigmoid() * self.attention(states, states, states, mask)

class Single(nn.Module):
    def __init__(self, width): super().__init__()

class Inner(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.inner = nn.Linear(width, inner)

    def forward(self, states, mask=None):
        return self.inner(states)

class Maskless(Inner):
    def forward(self, states):
        return states
"""
MODELS = """
import torch
from torch import nn
from regard.models.base import AnswerModel

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
from regard.tasks.base import Task

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
    (tmp_path / "parts_of_mine.py").write_text(PARTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("scores_of_mine", "models_of_mine", "parts_of_mine"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("Turned", r"gives scores of shape \(2, 3, 7, 5\): expected \(2, 3, 5, 7\)"),
        ("Listed", r"gives scores of type list: expected a tensor \(2, 3, 5, 7\)"),
        ("Raises", "fails on queries .*: RuntimeError: the moon is full"),
        ("Narrow", "cannot be built for widths .*: TypeError: .*; its constructor must accept the widths"),
        ("Picky", "cannot be built for widths .*: ValueError: not today"),
    ],
)
@pytest.mark.parametrize("task", ["counting", "copy"])
def test_broken_score_is_refused(score: str, message: str, task: str) -> None:
    with pytest.raises(InputError, match=f"^score 'scores_of_mine:{score}' {message}") as raised:
        regard.train(task, score=f"scores_of_mine:{score}", progress=False)
    assert "\n" not in str(raised.value) and not Path("models").exists()


@pytest.mark.parametrize(
    ("flag", "name", "message"),
    [
        ("positions", "Short", r"gives states of shape \(2, 4, 8\): expected \(2, 5, 8\)"),
        (
            "positions",
            "Bare",
            "cannot be built for width 8 and 7 steps: TypeError: .*; its constructor must accept a width",
        ),
        ("positions", "Unmoved", r"fails when it is called with states \(2, 5, 8\) and offset 2: TypeError: "),
        ("positions", "Plain", "is not a class derived from regard.attention.positions.Positions"),
        (
            "layer",
            "Single",
            "cannot be built for width 8, 2 heads, inner width 11: TypeError: .*; its constructor must accept "
            "these",
        ),
        ("layer", "Inner", r"gives states of shape \(2, 5, 11\): expected \(2, 5, 8\)"),
        (
            "layer",
            "Maskless",
            r"fails when .* with states \(2, 5, 8\) and mask \(2, 1, 5\): TypeError: .*; fix it",
        ),
        ("layer", "Plain", "is not a class derived from torch.nn.Module"),
    ],
)
@pytest.mark.parametrize(("task", "more"), [("signal", {"pos_enc": True}), ("copy", {"model": "transformer"})])
def test_broken_part_is_refused(flag: str, name: str, message: str, task: str, more: dict[str, Any]) -> None:
    train: Any = regard.train
    with pytest.raises(InputError, match=f"^{flag} 'parts_of_mine:{name}' {message}") as raised:
        train(task, **more, **{flag: f"parts_of_mine:{name}"}, progress=False)
    assert "\n" not in str(raised.value) and not Path("models").exists()


@pytest.mark.parametrize(
    ("task", "more"),
    [("signal", {"pos_enc": True, "hidden": 8}), ("copy", {"model": "transformer", "hidden": 8})],
)
def test_custom_parts_train_load_and_are_recorded(task: str, more: dict[str, Any]) -> None:
    parts = {"positions": "parts_of_mine:Ramp", "layer": "parts_of_mine:Gated"}
    train: Any = regard.train
    run: Any = train(task, **more, **parts, enc_layers=1, steps=2, progress=False)
    loaded: Any = regard.load(task)
    assert loaded.config == run.config and loaded.config.model.layer == parts["layer"]
    shown = loaded.attend(loaded.draw(seed=1))
    assert any("encoder" in name and "attention" in name for name in shown.layers), list(shown.layers)
    moved = [value for name, value in loaded.model.named_parameters() if "slope" in name]
    assert moved and all(value.abs().sum() > 0 for value in moved)


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
def test_broken_model_is_refused(model: str, message: str) -> None:
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
            "gives answers that are not classes: expected int64 from 0 to 10",
        ),
        ("inputs[:, :1]", "None", "gives relevance of type NoneType: expected a tensor"),
        ("1 / 0", "None", "fails on a batch of 2: ZeroDivisionError"),
    ],
)
def test_broken_task_is_refused(own: Path, answer: str, relevance: str, message: str) -> None:
    (own / "odd.py").write_text(TASK.format(answer=answer, relevance=relevance))
    with pytest.raises(InputError, match=f"^task file '.*odd.py' {message}"):
        regard.train("odd.py", progress=False)
    assert not Path("models").exists()


def test_custom_model_trains_and_its_missing_module_is_named(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
