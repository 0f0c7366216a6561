"""Custom code is checked before training."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.attention.names import short_name
from regard.errors import InputError
from regard.models.base import TaskModel
from regard.tasks.all_tasks import TASKS, find_task
from regard.training.building import build_model, freeze, parts_of, start
from regard.training.checkpoint import Checkpoint, trained_parameters
from regard.training.config import MODELS, find_model, make_config, models_for
from tests.conftest import Command
from tests.german import write

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
OWN_MODELS = """
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
EXAMPLES = Path(__file__).parents[2] / "examples"
OWN_SEQUENCES = """
from dataclasses import dataclass
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq

@dataclass(frozen=True, kw_only=True)
class EchoConfig(RecurrentConfig):
    hidden: int = 6

class Echo(RecurrentSeq2Seq):
    config_class = EchoConfig

class Alone: ...

class Short(RecurrentSeq2Seq):
    def __init__(self, config): ...
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "scores_of_mine.py").write_text(SCORES)
    (tmp_path / "models_of_mine.py").write_text(OWN_MODELS)
    (tmp_path / "parts_of_mine.py").write_text(PARTS)
    (tmp_path / "echo.py").write_text(OWN_SEQUENCES)
    for name in ("bag.py", "lookback.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("scores_of_mine", "models_of_mine", "parts_of_mine", "bag", "lookback", "echo"):
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
            "cannot be built for width 8, 2 heads, inner width 11: TypeError: .*; its constructor must accept these",
        ),
        ("layer", "Inner", r"gives states of shape \(2, 5, 11\): expected \(2, 5, 8\)"),
        ("layer", "Maskless", r"fails when .* with states \(2, 5, 8\) and mask \(2, 1, 5\): TypeError: .*; fix it"),
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
    ("task", "more"), [("signal", {"pos_enc": True, "hidden": 8}), ("copy", {"model": "transformer", "hidden": 8})]
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
        ("inputs.sum(1, keepdim=True) + 99", "None", "gives answers that are not classes: expected int64 from 0 to 10"),
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
    with pytest.raises(InputError, match="cannot be loaded here: score 'scores_of_mine:Good' is not found: there is "):
        regard.load(folder)


FEW: dict[str, Any] = {
    "vocab_size": 60,
    "hidden": 16,
    "heads": 2,
    "inner": 16,
    "enc_layers": 2,
    "dec_layers": 2,
    "tokens": 400,
    "steps": 6,
    "progress": False,
}


def model(task: str, **flags: object) -> TaskModel:
    config = make_config(task, flags)
    return build_model(config, find_task(task).restore(config.task, {}))


def test_parts_have_the_names_of_layers() -> None:
    small = model("reverse", model="transformer", enc_layers=2, dec_layers=1, positions="learned")
    assert parts_of(small) == [
        *("embedding", "positions"),
        *("encoder", "encoder.0", "encoder.1"),
        *("decoder", "decoder.0"),
    ]
    assert parts_of(model("signal2", enc_layers=1)) == [
        *("queries", "embedding", "positions", "encoder", "encoder.0", "cross", "cross_norm", "output")
    ]
    assert parts_of(model("reverse")) == ["embedding", "encoder", "decoder", "output"]


@pytest.mark.parametrize(
    ("parts", "frozen"),
    [
        (("embedding",), ("source_embedding.", "target_embedding.")),
        (("target_embedding",), ("target_embedding.",)),
        (("encoder.1",), ("encoder.1.",)),
        (("encoder.1", "decoder.0.cross"), ("encoder.1.", "decoder.0.cross.")),
        (("encoder.norm.weight",), ("encoder.norm.weight",)),
    ],
)
def test_part_contains_its_inner_parts(parts: tuple[str, ...], frozen: tuple[str, ...]) -> None:
    small = model("reverse", model="transformer", enc_layers=12, dec_layers=2)
    freeze(small, parts)
    for name, parameter in small.named_parameters():
        assert parameter.requires_grad is not short_name(name).startswith(frozen), name


@pytest.mark.parametrize("part", ["encode", "encoder.2", "encoder.", "", ".", "cross", "layers"])
def test_unknown_part_is_refused_with_the_known_ones(part: str) -> None:
    small = model("reverse", model="transformer", enc_layers=2, dec_layers=1)
    there = "embedding, encoder, encoder.0, encoder.1, decoder, decoder.0, or a part of these parts"
    with pytest.raises(InputError) as raised:
        freeze(small, [part])
    assert str(raised.value) == f"freeze {part!r}: the model has no part with this name; choose {there}"


@pytest.mark.parametrize(
    ("kind", "parts", "left"),
    [
        ("transformer", ("embedding", "encoder"), ("decoder.",)),
        ("transformer", ("encoder.0", "decoder"), ("target_embedding.", "encoder.1.", "encoder.norm.")),
        ("recurrent", ("embedding", "decoder.cross"), ("encoder.", "decoder.", "output.")),
    ],
)
@pytest.mark.parametrize("average", [0.0, 0.95])
def test_only_unfrozen_parameters_change(
    tmp_path: Path, kind: str, parts: tuple[str, ...], left: tuple[str, ...], average: float
) -> None:
    few = {name: value for name, value in FEW.items() if kind == "transformer" or name not in NOT_RECURRENT}
    flags: dict[str, Any] = {**few, **write(tmp_path), "model": kind, "average": average, "freeze": parts}
    run = regard.train("translation", **flags, savepath=tmp_path)
    before = dict(start(run.config, run.task).model.named_parameters())
    after, moments = dict(run.model.named_parameters()), Checkpoint.load(run.folder, training={}).training or {}
    trained = set(trained_parameters(start(run.config, run.task).model))
    assert {short_name(name).startswith(left) for name in trained} == {True} and 0 < len(trained) < len(after)
    for name, parameter in after.items():
        moved = not torch.equal(parameter.cpu(), before[name].cpu())
        assert moved == (name in trained), name
        assert (f"adam/{name}:mean" in moments) == (name in trained)
        assert (f"average/{name}" in moments) == (name in trained and average > 0)
        assert f"model/{name}" in moments


NOT_RECURRENT = ("heads", "inner", "dec_layers")


def test_freezing_the_whole_model_is_refused() -> None:
    small = model("reverse")
    with pytest.raises(InputError, match="freeze embedding encoder decoder output freezes the whole model"):
        freeze(small, ("embedding", "encoder", "decoder", "output"))


def test_freezing_works_for_every_model(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"steps": 3, "hidden": 8, "progress": False}
    run = regard.train("signal2", **flags, enc_layers=1, freeze=["embedding", "encoder"], savepath=tmp_path)
    before = start(run.config, run.task).model.state_dict()
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith(("embedding.", "encoder.")), name


# Registry of models, and custom models.


@pytest.mark.parametrize("task", TASKS)
def test_models_fit_the_tasks_of_their_answer_form(task: str) -> None:
    found = find_task(task)
    for name in MODELS:
        kind = find_model(name)
        assert (name in models_for(found)) == (kind.answers == found.answers)
        if kind.answers == found.answers:
            assert make_config(task, {"model": name}).kind == name
        else:
            with pytest.raises(InputError, match=f"model '{name}' does not fit task {task}"):
                make_config(task, {"model": name})


def test_example_of_a_custom_answer_model(own: Path, command: Command) -> None:
    status, out, err = command("train", "counting", "--model", "bag:Bag", "--steps", "600", "--lr=0.01")
    assert status == 0, err
    status, out, err = command("test", "counting", "--samples", "500")
    assert status == 0 and "Attention on relevant inputs (uniform" in out, err
    run = regard.load("counting")
    assert run.config.kind == "bag:Bag" and run.config.flags()["hidden"] == 32
    report = run.test(samples=1000)
    assert report.exact_match > 0.15 and report.relevance is not None
    assert report.relevance.heads[0] > report.relevance.uniform + 0.2
    assert run.examine(samples=4).heads[0].layer == "cross"
    status, out, err = command("train", "counting", "--model", "bag:Bag", "--help")
    assert status == 0 and "Width of letters, queries and the hidden layer" in out


def test_example_of_a_custom_sequence_model(own: Path, command: Command) -> None:
    flags = ("--max_len=5", "--vocab_size=4", "--steps=250", "--lr=0.01", "--hidden=32")
    status, _, err = command("train", "reverse", "--model", "lookback:LookBack", *flags)
    assert status == 0, err
    run = regard.load("reverse")
    assert isinstance(run, regard.PairRun)
    report = run.test(samples=100)
    assert report.alignments["cross"].error_rate < 0.5 and report.exact_match > 0.2
    assert run.translate(["AB"], beam=3) == run.translate(["AB"], beam=3)
    shown = run.attend("ABCD").cross
    assert shown.weights.shape == (4, len(shown.query_labels), 5)
    assert len(run.examine(samples=4).heads) == 4 and run.importance(samples=10).added["cross"]
    smaller = regard.prune(run, output="smaller").run
    assert len(smaller.config.kept_heads["cross"]) == 3 and smaller.attend("AB").cross.weights.shape[0] == 3


def test_stepwise_layer_without_step_is_refused(own: Path) -> None:
    text = (own / "lookback.py").read_text()
    (own / "lookback.py").write_text(text.replace(", step=state.time", ""))
    run = regard.train("reverse", model="lookback:LookBack", steps=2, batchsize=3, progress=False)
    assert isinstance(run, regard.PairRun)
    with pytest.raises(InputError, match="layer cross was recorded at .*: if it runs step by step, call it with step="):
        run.test(samples=5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Bag", "model 'nowhere:Bag' is not found: there is no module 'nowhere' in .*PYTHONPATH"),
        ("bag:Sack", "model 'bag:Sack' cannot be imported: AttributeError"),
        ("echo:Alone", "model 'echo:Alone' is not a class derived from AnswerModel, Seq2Seq or LanguageModel"),
        ("echo:Echo", "model 'echo:Echo' does not fit task counting"),
        ("qery", "model 'qery' is unknown: choose .* or module:Class; did you mean query?"),
    ],
)
def test_unknown_models_are_refused(own: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_config("counting", {"model": name})
    assert not (own / "models").exists()


def test_custom_constructor_with_other_arguments_is_refused(own: Path) -> None:
    assert find_model("echo:Short").__name__ == "Short"
    with pytest.raises(InputError, match="model 'echo:Short' cannot be built: .*unexpected keyword argument"):
        regard.train(make_config("copy", {"model": "echo:Short"}), progress=False)
    assert not (own / "models" / "copy").exists()
