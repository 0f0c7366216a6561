"""Registry of models, and custom models."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import regard
from regard.errors import InputError
from regard.tasks.all_tasks import TASKS, find_task
from regard.training.config import MODELS, find_model, make_config, models_for

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


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with modules of custom models."""
    for name in ("bag.py", "lookback.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "echo.py").write_text(OWN_SEQUENCES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("bag", "lookback", "echo"):
        sys.modules.pop(name, None)


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


def test_example_of_a_custom_answer_model(own: Path, command: Callable[..., tuple[int, str, str]]) -> None:
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


def test_example_of_a_custom_sequence_model(own: Path, command: Callable[..., tuple[int, str, str]]) -> None:
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


def test_custom_sequence_model_trains(own: Path) -> None:
    run = regard.train("copy", model="echo:Echo", steps=2, batchsize=3, progress=False)
    assert isinstance(run, regard.PairRun) and run.config.flags()["hidden"] == 6
    assert isinstance(run.translate(["ABC"])[0], str)


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
