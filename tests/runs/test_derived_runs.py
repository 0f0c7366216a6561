"""Kept models of a training run, and their mean."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.io import list_steps
from regard.training.checkpoint import Checkpoint
from regard.training.config import TrainingConfig
from tests.conftest import TINY, Command
from tests.german import write

FLAGS: dict[str, Any] = {**TINY, "hidden": 16, "inner": 16, "validate_every": 3, "progress": False}


def kept(run: regard.AnyRun) -> list[int]:
    return [int(path.stem.removeprefix("step-")) for path in list_steps(run.folder / "kept")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> regard.AnyRun:
    folder = tmp_path_factory.mktemp("kept")
    flags = {**FLAGS, "keep": 2, "criterion": "loss", "lr": 0.05, "schedule": "constant"}
    return regard.train("translation", **write(folder), **flags, steps=18, savepath=folder)


def test_the_best_models_by_the_criterion_are_kept(run: regard.AnyRun) -> None:
    losses = {line["step"]: line["valid_loss"] for line in run.metrics if "valid_loss" in line}
    assert kept(run) == sorted(sorted(losses, key=lambda step: (losses[step], -step))[:2])
    assert run.step == min(losses, key=lambda step: (losses[step], -step))


def test_the_mean_is_the_mean(run: regard.AnyRun, tmp_path: Path) -> None:
    averaged = regard.average(run, tmp_path / "mean")
    models = [Checkpoint.load_weights(run.files, path).weights for path in list_steps(run.folder / "kept")]
    for name, value in averaged.model.state_dict().items():
        one, two = (weights[name] for weights in models if weights is not None)
        assert torch.allclose(value, (one + two) / 2, atol=1e-7), name
    assert averaged.config.averaged == kept(run) and averaged.step == kept(run)[-1]
    assert f"mean of the models after {kept(run)[0]}, {kept(run)[1]} steps" in str(averaged)
    assert averaged.about()["history"] in str(averaged)
    assert isinstance(averaged, regard.TranslationRun) and averaged.translate(["Heute singt der Hahn."])
    assert json.loads((averaged.folder / "config.json").read_text())["averaged"] == kept(run)


def test_command_averages(run: regard.AnyRun, tmp_path: Path, command: Command) -> None:
    status, out, _ = command("average", run.folder, "--output", tmp_path / "mean")
    assert status == 0 and out.startswith(f"Averaged the models after {kept(run)[0]}, {kept(run)[1]} steps.")
    status, _, err = command("average", run.folder, "--output", tmp_path / "mean")
    assert status == 2 and err.count("\n") == 1
    assert "already contains a run: replace it with --overwrite, or choose another --output" in err
    status, _, err = command("average", tmp_path / "mean")
    assert status == 2 and "keeps 0 models, and a mean needs 2 or more: train with --keep" in err


def test_damaged_model_is_refused(run: regard.AnyRun, tmp_path: Path) -> None:
    path = list_steps(run.folder / "kept")[0]
    content = path.read_bytes()
    try:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(InputError, match=f"{path.name}: the file has changed since it was written"):
            regard.average(run, tmp_path / "mean")
    finally:
        path.write_bytes(content)
    assert not (tmp_path / "mean").exists()


def test_without_validation_the_last_models_are_kept(tmp_path: Path) -> None:
    text = write(tmp_path)["train"]
    run = regard.train("translation", train=text, **{**FLAGS, "keep": 3}, steps=14, savepath=tmp_path)
    assert kept(run) == [9, 12, 14]


@pytest.mark.parametrize("flag", ["keep", "watch"])
def test_keep_and_watch_are_refused_for_sharded_parameters(flag: str) -> None:
    advice = f"{flag} needs the whole model in one process: leave out --{flag} or --sharded"
    with pytest.raises(InputError, match=advice):
        TrainingConfig(keep=2 * (flag == "keep"), watch=2 * (flag == "watch"), sharded=True)
