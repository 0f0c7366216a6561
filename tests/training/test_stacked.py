"""Stacked training runs equal separate training runs up to rounding."""

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.runs.training import train_seeds
from regard.training import Checkpoint, Interrupted, stacked, trainer

FLAGS: dict[str, dict[str, Any]] = {
    "counting": {"hidden": 8},
    "difference": {"hidden": 8, "self_att": True, "vary_len": True},
    "signal2": {"hidden": 8, "heads": 2, "score": "general"},
}


@pytest.mark.parametrize("task", FLAGS)
def test_each_stacked_seed_equals_one_trained_alone(task: str, tmp_path: Path) -> None:
    flags = {**FLAGS[task], "steps": 25, "batchsize": 10}
    folders = [tmp_path / str(seed) for seed in (0, 3, 5)]
    found = train_seeds(task, folders, seeds=[0, 3, 5], **flags)
    for seed, run in zip((0, 3, 5), found, strict=True):
        alone = regard.train(
            task, seed=seed, savepath=tmp_path / "alone", overwrite=True, progress=False, **flags
        )
        assert isinstance(alone, regard.AnswerRun)
        assert run.config == alone.config and run.step == 25
        for (name, one), other in zip(
            alone.model.state_dict().items(), run.model.state_dict().values(), strict=True
        ):
            assert torch.allclose(other, one, atol=2e-4, rtol=1e-3), name
        for line, expected in zip(run.metrics, alone.metrics, strict=True):
            assert line["step"] == expected["step"] and line["lr"] == expected["lr"]
            assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)


def test_stacked_runs_resume_alone_or_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {**FLAGS["counting"], "steps": 20, "batchsize": 10}
    whole = train_seeds("counting", [tmp_path / "a", tmp_path / "b"], seeds=[0, 1], **flags)
    monkeypatch.setattr(trainer, "CHECKPOINT_EVERY", 10)
    folders = [tmp_path / "c", tmp_path / "d"]
    steps = 0

    def dying(*args: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 15:
            raise Interrupted
        return original(*args)

    original = stacked.exact
    monkeypatch.setattr(stacked, "exact", dying)
    with pytest.raises(Interrupted):
        train_seeds("counting", folders, seeds=[0, 1], **flags)
    monkeypatch.undo()
    assert Checkpoint.load(folders[0] / "counting", training={}).step == 10
    alone = regard.train("counting", savepath=folders[0], resume=True, progress=False)
    assert [each["step"] for each in alone.metrics] == [10, 20]
    assert alone.metrics[-1]["loss"] == pytest.approx(whole[0].metrics[-1]["loss"], rel=1e-3)
    with pytest.raises(regard.InputError, match="are at different training steps"):
        train_seeds("counting", folders, seeds=[0, 1], **flags)
    again = train_seeds("counting", folders[1:], seeds=[1], **flags)
    assert again[0].metrics[-1]["loss"] == pytest.approx(whole[1].metrics[-1]["loss"], rel=1e-3)


def test_nan_loss_of_a_seed_stops_training(tmp_path: Path) -> None:
    with pytest.raises(regard.InputError, match="lower --lr"):
        train_seeds("counting", [tmp_path / "a"], seeds=[0], hidden=4, steps=50, lr=1e30, recipe="seed")
