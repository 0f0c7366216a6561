"""Symbolic links in a run's folder, and runs that are removed during training."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import InputError, MachineError
from regard.training.checkpoint import Checkpoint, TrainingState
from regard.training.run_folder import RunFolder
from tests.conftest import Command

TINY: dict[str, Any] = {"hidden": 4, "batchsize": 2, "progress": False}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with a run that was stopped halfway."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.training.trainer.CHECKPOINT_EVERY", 2)
        real = TrainingState.save

        def stop(state: TrainingState, *values: Any, **others: Any) -> None:
            real(state, *values, **others)
            if state.step == 2:
                raise KeyboardInterrupt

        patch.setattr(TrainingState, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            regard.train("signal2", **TINY, heads=2, steps=4, snapshots=2, savepath=tmp_path / "models")
    return tmp_path / "models"


def replaced(place: Path, victim: Path) -> None:
    """Move a file to `victim` or write a text to `victim`, and replace the file by a link."""
    if place.exists():
        shutil.move(place, victim)
    else:
        victim.write_text("precious")
    place.symlink_to(victim)


def state_of(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {str(each): each.read_bytes() for each in files}


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "metrics.jsonl", "trainer", "snapshots", "tokenizer", "tensorboard", "", "../.signal2.lock"],
)
def test_resumed_training_writes_through_no_link(models: Path, tmp_path: Path, name: str) -> None:
    place, victim = models / "signal2" / name, tmp_path / "victim"
    if name == "../.signal2.lock":
        place = models / ".signal2.lock"
    replaced(place, victim)
    before = state_of(victim)
    try:
        regard.train("signal2", resume=True, progress=False, savepath=models)
    except InputError as error:
        assert "is a link, and Regard does not follow links here" in str(error)
        assert name not in ("model.safetensors", "metrics.jsonl")
    else:
        assert not place.is_symlink() and name in ("model.safetensors", "metrics.jsonl")
    assert state_of(victim) == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("attention.png", ["test", "signal2", "--samples=2", "--input=BCCCBAABACCCA", "--plot"]),
        ("examined.json", ["examine", "signal2", "--samples=2"]),
    ],
)
@pytest.mark.parametrize("target", ["victim", "nowhere", "pipe"])
def test_output_of_commands_replaces_links(
    models: Path, tmp_path: Path, name: str, words: list[str], target: str, command: Command
) -> None:
    (tmp_path / "victim").write_text("precious")
    os.mkfifo(tmp_path / "pipe")
    (models / "signal2" / name).symlink_to(tmp_path / target)
    status, _, err = command(*words, f"--savepath={models}")
    assert status == 0, err
    assert (tmp_path / "victim").read_text() == "precious" and not (tmp_path / "nowhere").exists()
    assert not (models / "signal2" / name).is_symlink()


def test_new_run_replaces_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "counting").symlink_to(outside)
    run = regard.train("counting", **TINY, steps=1, savepath=tmp_path / "models")
    assert not any(outside.iterdir()) and not run.folder.is_symlink()
    moved = tmp_path / "moved"
    run.folder.rename(moved)
    (tmp_path / "models" / "counting").symlink_to(moved)
    before = state_of(moved)
    regard.train("counting", **TINY, steps=2, overwrite=True, savepath=tmp_path / "models")
    assert state_of(moved) == before and not (tmp_path / "models" / "counting").is_symlink()


def test_comparison_writes_through_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "compared" / "counting").mkdir(parents=True)
    (tmp_path / "compared" / "counting" / "hidden=4").symlink_to(outside)
    with pytest.raises(InputError, match="hidden=4' is a link"):
        regard.compare("counting", {"hidden": [4]}, seeds=1, steps=1, savepath=tmp_path / "compared", progress=False)
    assert not any(outside.iterdir())


@pytest.mark.parametrize("how", ["moved", "removed", "replaced by a file"])
@pytest.mark.parametrize(
    "writer",
    [(RunFolder, "append_metrics"), (Checkpoint, "save"), (Checkpoint, "save_weights")],
    ids=lambda writer: writer[1],
)
def test_removed_run_is_a_machine_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, writer: tuple[type, str]
) -> None:
    owner, name = writer
    real = getattr(owner, name)

    def after_it_went(*values: Any) -> None:
        folder = next(value for value in values if isinstance(value, RunFolder))
        if folder.path == tmp_path / "counting" and folder.path.is_dir():
            folder.path.rename(tmp_path / "elsewhere")
            if how == "removed":
                shutil.rmtree(tmp_path / "elsewhere")
            elif how == "replaced by a file":
                folder.path.touch()
        real(*values)

    monkeypatch.setattr(owner, name, after_it_went)
    with pytest.raises(MachineError, match="was moved or removed during a write: restore the folder and continue with"):
        regard.train("counting", **TINY, steps=2, snapshots=2, savepath=tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        {"moved": ["elsewhere"], "removed": [], "replaced by a file": ["elsewhere", "counting"]}[how]
    )
