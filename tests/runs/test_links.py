"""Links in a run's folder, and a run that goes away while it is trained."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import InputError, MachineError
from regard.training import RunFolder, TrainingState

TINY: dict[str, Any] = {"hidden": 4, "batchsize": 2, "progress": False}
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with a run that was stopped half-way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.training.loop.CHECKPOINT_EVERY", 2)
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
    """Move what is at `place` to `victim`, or put a text there, and leave a link."""
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
    [
        "model.safetensors",
        "metrics.jsonl",
        "trainer",
        "snapshots",
        "tokenizer",
        "tensorboard",
        "",
        "../.signal2.lock",
    ],
)
def test_a_training_that_goes_on_writes_through_no_link(models: Path, tmp_path: Path, name: str) -> None:
    place, victim = models / "signal2" / name, tmp_path / "victim"
    if name == "../.signal2.lock":
        place = models / ".signal2.lock"
    replaced(place, victim)
    before = state_of(victim)
    try:
        regard.train("signal2", resume=True, progress=False, savepath=models)
    except InputError as error:
        assert "is a link, and nothing is written through links there" in str(error)
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
def test_what_a_command_leaves_in_a_run_replaces_a_link(
    models: Path, tmp_path: Path, name: str, words: list[str], target: str, command: Command
) -> None:
    (tmp_path / "victim").write_text("precious")
    os.mkfifo(tmp_path / "pipe")
    (models / "signal2" / name).symlink_to(tmp_path / target)
    status, _, err = command(*words, f"--savepath={models}")
    assert status == 0, err
    assert (tmp_path / "victim").read_text() == "precious" and not (tmp_path / "nowhere").exists()
    assert not (models / "signal2" / name).is_symlink()


def test_a_new_run_replaces_a_link(tmp_path: Path) -> None:
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


def test_a_comparison_writes_through_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "compared" / "counting").mkdir(parents=True)
    (tmp_path / "compared" / "counting" / "hidden=4").symlink_to(outside)
    with pytest.raises(InputError, match="hidden=4' is a link"):
        regard.compare(
            "counting", {"hidden": [4]}, seeds=1, steps=1, savepath=tmp_path / "compared", progress=False
        )
    assert not any(outside.iterdir())


@pytest.mark.parametrize("how", ["moved", "removed", "replaced by a file"])
@pytest.mark.parametrize("what", ["append_metrics", "write_model", "write_trainer", "write_snapshot"])
def test_a_run_that_goes_away_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, what: str
) -> None:
    real = getattr(RunFolder, what)

    def after_it_went(folder: RunFolder, *values: Any) -> None:
        if folder.path == tmp_path / "counting" and folder.path.is_dir():
            folder.path.rename(tmp_path / "elsewhere")
            if how == "removed":
                shutil.rmtree(tmp_path / "elsewhere")
            elif how == "replaced by a file":
                folder.path.touch()
        real(folder, *values)

    monkeypatch.setattr(RunFolder, what, after_it_went)
    with pytest.raises(
        MachineError, match="was moved or removed while it was written: put it back and continue with"
    ):
        regard.train("counting", **TINY, steps=2, snapshots=2, savepath=tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        {"moved": ["elsewhere"], "removed": [], "replaced by a file": ["elsewhere", "counting"]}[how]
    )
