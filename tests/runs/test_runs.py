"""The Python interface."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import regard


def test_exported_names_exist_once() -> None:
    assert len(set(vars(regard)["__all__"])) == len(vars(regard)["__all__"])
    assert {"train", "load", "record", "compare", "plot", "Run"} <= set(vars(regard)["__all__"])
    for name in vars(regard)["__all__"]:
        assert getattr(regard, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = regard.trian  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "heavy"), [("regard", "torch"), ("regard.runs", "matplotlib"), ("regard.runs", "torch._dynamo")]
)
def test_importing_is_light(module: str, heavy: str) -> None:
    code = f"import sys, {module}; sys.exit('{heavy}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_loaded_run_equals_the_returned_one(trained: regard.AnswerRun) -> None:
    loaded = regard.load(trained.folder)
    assert loaded.config == trained.config and loaded.step == trained.step
    inputs = trained.task.parse("ABCABC")
    assert torch.equal(loaded.model(inputs), trained.model(inputs))
    assert loaded.metrics == trained.metrics
    assert regard.load("signal2", savepath=trained.folder.parent).folder == trained.folder


def test_reports_are_reproducible_and_seeds_differ(trained: regard.AnswerRun) -> None:
    assert trained.test(samples=2500) == trained.test(samples=2500)
    assert trained.test(samples=2500) != trained.test(samples=2500, seed=1)
    assert trained.attend().input == trained.attend().input != trained.attend(seed=1).input


def test_input_excludes_options_of_a_drawn_one(trained: regard.AnswerRun) -> None:
    with pytest.raises(regard.InputError, match="leave out sample_len and signal"):
        trained.attend("ABCABC", sample_len=3)


def test_resuming_refuses_other_flags(trained: regard.AnswerRun) -> None:
    with pytest.raises(regard.InputError, match="batchsize 99 differs from the run's"):
        regard.train("signal2", savepath=trained.folder.parent, resume=True, batchsize=99)


def test_unknown_flags_are_refused(tmp_path: Path) -> None:
    with pytest.raises(regard.InputError, match="flag 'stps' is unknown: did you mean steps?"):
        regard.train("counting", stps=3, savepath=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_short_training_learns(tmp_path: Path) -> None:
    """Counting reaches 90 % exact match after a quarter of its steps, and then attends to the counted
    letters."""
    run = regard.train("counting", steps=500, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.AnswerRun)
    report = run.test(samples=2000)
    assert report.exact_match > 0.9 and report.relevance is not None
    assert report.relevance.heads[0] > report.relevance.uniform + 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "flags"),
    [("counting", {}), ("difference", {"self_att": True}), ("signal", {"pos_enc": True}), ("signal2", {})],
)
def test_the_defaults_reach_99_percent(tmp_path: Path, task: str, flags: dict[str, Any]) -> None:
    run = regard.train(task, savepath=tmp_path, progress=False, seed=100, **flags)
    assert isinstance(run, regard.AnswerRun) and run.test().exact_match >= 0.99


@pytest.mark.slow
def test_counting_over_all_lengths_reaches_99_percent_at_each(tmp_path: Path) -> None:
    run = regard.train("counting", vary_len=True, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.AnswerRun)
    for length in range(1, 11):
        assert run.test(sample_len=length).exact_match >= 0.99, length
