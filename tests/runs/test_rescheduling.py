"""Resumed runs with more steps or another learning rate: a new schedule from the last checkpoint."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import regard
from regard.errors import InputError
from regard.training.checkpoint import TrainingState

Command = Callable[..., tuple[int, str, str]]
FLAGS: dict[str, Any] = {"steps": 6, "batchsize": 5, "hidden": 8, "snapshots": 2, "progress": False}


class StoppedError(Exception):
    """Interrupts a training run."""


def train(folder: Path, **flags: Any) -> regard.AnyRun:
    return regard.train("counting", savepath=folder, **{**FLAGS, **flags})


def resume(folder: Path, **flags: Any) -> regard.AnyRun:
    return regard.train("counting", savepath=folder, resume=True, progress=False, **flags)


def rates(run: regard.AnyRun) -> list[float]:
    return [line["lr"] for line in run.metrics]


def test_new_schedule_begins_at_the_last_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = train(tmp_path)
    run = resume(tmp_path, steps=26, lr=0.004)
    assert "New learning-rate schedule: steps 6 to 26 with learning rate 0.004" in capsys.readouterr().err
    assert [line["step"] for line in run.metrics] == [6, 10, 20, 26] and run.step == 26
    training, now = first.config.training, run.config.training
    assert rates(run)[0] == training.schedule_at(5)
    for step, rate in zip((10, 20, 26), rates(run)[1:], strict=True):
        assert rate == 0.004 * now.optimization.schedule(step - 1 - 6, 20)
    stored = json.loads((run.folder / "config.json").read_text())["schedules"]
    assert stored == [{"first": 0, "steps": 6, "lr": 0.05}, {"first": 6, "steps": 26, "lr": 0.004}]
    history = "steps 0 to 6 with learning rate 0.05; steps 6 to 26 with learning rate 0.004"
    assert history in str(run) and run.about()["history"] == history
    assert [path.stem for path in run.files.snapshots] == ["step-0", "step-6", "step-26"]
    assert run.playback(seed=0).steps == [0, 6, 26]
    assert regard.load(run.folder).config == run.config


def test_interrupted_extension_resumes_exactly(tmp_path: Path) -> None:
    for name in ("whole", "cut"):
        train(tmp_path / name)
    whole = resume(tmp_path / "whole", steps=12)
    save = TrainingState.save

    def stop(state: TrainingState, *args: Any, **options: Any) -> None:
        if state.step == 12:
            raise StoppedError
        save(state, *args, **options)

    with mock.patch.object(TrainingState, "save", stop), pytest.raises(StoppedError):
        resume(tmp_path / "cut", steps=12)
    cut = resume(tmp_path / "cut")  # with and without the flag: the new schedule is stored
    for name in ("config.json", "model.safetensors", "metrics.jsonl", "trainer/step-12.safetensors"):
        assert (whole.folder / name).read_bytes() == (cut.folder / name).read_bytes(), name
    before = (cut.folder / "model.safetensors").stat().st_mtime_ns
    assert resume(tmp_path / "cut", steps=12).config == cut.config
    assert (cut.folder / "model.safetensors").stat().st_mtime_ns == before


def test_steps_in_the_past_and_other_flags_are_refused(tmp_path: Path, command: Command) -> None:
    run = train(tmp_path)
    files = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    for flags, message in (
        ({"steps": 3}, "the run already has 6 steps: give more, such as --steps 12"),
        ({"lr": 0.01}, "the run already has 6 steps: give more, such as --steps 12"),
        ({"steps": 9, "seed": 1}, "seed 1 differs from the run's 0: a resumed run keeps its flags"),
        ({"steps": 9, "lr": -1.0}, "lr -1.0 is out of range"),
    ):
        with pytest.raises(InputError, match=message):
            resume(tmp_path, **flags)
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == files
    status, out, err = command("train", "counting", "--resume", "--steps", "9", "--savepath", tmp_path)
    assert status == 0 and "for 9 steps" in out and "steps 6 to 9 with learning rate 0.05" in err


def test_derived_results_are_named_when_they_are_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path)
    run.files.write_derived("examination.json", {"any": 1})
    resume(tmp_path, steps=7)
    assert "Removed results of the earlier model: examination.json" in capsys.readouterr().err
    assert not (run.folder / "examination.json").exists()


def test_run_that_starts_from_an_extended_run_has_one_schedule(tmp_path: Path) -> None:
    train(tmp_path)
    before = resume(tmp_path, steps=8)
    begun = regard.train("counting", start_from=before.folder, steps=5, savepath=tmp_path / "b", progress=False)
    assert begun.config.schedules == [] and begun.config.first_step == 0
