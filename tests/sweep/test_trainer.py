"""A training on another machine: start with files and code, updates, stop."""

import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from regard.errors import InputError
from regard.sweep.file_transfer import Code, collect_code, pack, read_last_step, unpack
from regard.sweep.job import Job, measure
from regard.sweep.trainer import Trainer, TrainingUpdate
from regard.version import __version__
from tests.sweep.cluster import job


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of temporary files of the other machine."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / "tmp"


def start_training(training: Job, code: Code | None = None, files: Any = None) -> Trainer:
    trainer = Trainer()
    trainer.begin(__version__, training.stored, files or {}, code or collect_code(training), 1)
    return trainer


def test_refuses_another_version(tmp_path: Path, there: Path) -> None:
    with pytest.raises(
        InputError, match=f"{socket.gethostname()} has Regard {__version__}, but 0.0.1 is required"
    ):
        Trainer().begin("0.0.1", job(tmp_path).stored, {}, Code([], None), 1)
    assert list(there.iterdir()) == []


@pytest.mark.slow
def test_trains_with_code_that_the_machine_lacks(tmp_path: Path, there: Path) -> None:
    own = tmp_path / "doubles.py"
    own.write_text((Path(__file__).parents[2] / "examples" / "doubles.py").read_text())
    training, whole = job(tmp_path / "here", str(own), steps=10), job(tmp_path / "whole", str(own), steps=10)
    expected, code = measure(whole), collect_code(training)
    own.rename(tmp_path / "gone")
    trainer = start_training(training, code)
    update = trainer.poll(0.0)
    while not (update.measured or update.error):
        own.with_name("gone").rename(own)
        unpack(update.files, training)
        own.rename(tmp_path / "gone")
        update = trainer.poll(1.0)
    assert update.error is None and update.measured is not None
    assert (update.measured.loss, update.measured.exact_match) == (expected.loss, expected.exact_match)
    assert list(there.iterdir()) == []


@pytest.mark.slow
def test_saves_when_stopped_and_resumes(tmp_path: Path, there: Path) -> None:
    training = job(tmp_path / "here", steps=1_000_000)
    trainer = start_training(training)
    update = TrainingUpdate()
    while not any("step-500." in name or "step-1000." in name for name in update.files):
        update = trainer.poll(0.2)
        unpack(update.files, training)
    update = trainer.stop()
    assert update.ended and update.measured is None
    unpack(update.files, training)
    step = read_last_step(training.run)
    assert step > 500 and list(there.iterdir()) == []
    assert trainer.stop() == TrainingUpdate()  # the last update was returned before
    again = start_training(training, files=pack(training.folder, {})[0])
    again.poll(5.0)
    unpack(again.stop().files, training)
    assert read_last_step(training.run) > step


@pytest.mark.slow
def test_errors_name_the_machine(tmp_path: Path, there: Path) -> None:
    training = job(tmp_path / "here")
    stored = {**training.stored, "on": str(tmp_path / "nowhere.py")}
    trainer = start_training(Job(stored, training.folder), Code([], None))
    update = trainer.poll(60.0)
    assert isinstance(update.error, InputError)
    assert str(update.error).startswith(f"on {socket.gethostname()}: task file") and list(there.iterdir()) == []
