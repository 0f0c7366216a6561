"""A training on another machine: begun with files and code, asked for news, stopped."""

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
    """Where the other machine keeps what is temporary."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / "tmp"


def begun(asked: Job, code: Code | None = None, files: Any = None) -> Trainer:
    trainer = Trainer()
    trainer.begin(__version__, asked.stored, files or {}, code or collect_code(asked), 1)
    return trainer


def test_another_version_is_refused(tmp_path: Path, there: Path) -> None:
    with pytest.raises(InputError, match=f"{socket.gethostname()} has Regard {__version__}, and 0.0.1 asks"):
        Trainer().begin("0.0.1", job(tmp_path).stored, {}, Code([], None), 1)
    assert list(there.iterdir()) == []


@pytest.mark.slow
def test_it_trains_with_code_that_its_machine_has_not(tmp_path: Path, there: Path) -> None:
    own = tmp_path / "doubles.py"
    own.write_text((Path(__file__).parents[2] / "examples" / "doubles.py").read_text())
    asked, whole = job(tmp_path / "here", str(own), steps=10), job(tmp_path / "whole", str(own), steps=10)
    expected, code = measure(whole), collect_code(asked)
    own.rename(tmp_path / "gone")
    trainer = begun(asked, code)
    news = trainer.news(0.0)
    while not (news.measured or news.error):
        own.with_name("gone").rename(own)
        unpack(news.files, asked)
        own.rename(tmp_path / "gone")
        news = trainer.news(1.0)
    assert news.error is None and news.measured is not None
    assert (news.measured.loss, news.measured.exact_match) == (expected.loss, expected.exact_match)
    assert list(there.iterdir()) == []


@pytest.mark.slow
def test_it_saves_when_it_is_stopped_and_goes_on(tmp_path: Path, there: Path) -> None:
    asked = job(tmp_path / "here", steps=1_000_000)
    trainer = begun(asked)
    news = TrainingUpdate()
    while not any("step-500." in name or "step-1000." in name for name in news.files):
        news = trainer.news(0.2)
        unpack(news.files, asked)
    news = trainer.stop()
    assert news.ended and news.measured is None
    unpack(news.files, asked)
    step = read_last_step(asked.run)
    assert step > 500 and list(there.iterdir()) == []
    assert trainer.stop() == TrainingUpdate()  # it has been told already
    again = begun(asked, files=pack(asked.folder, {})[0])
    again.news(5.0)
    unpack(again.stop().files, asked)
    assert read_last_step(asked.run) > step


@pytest.mark.slow
def test_an_error_says_which_machine_it_is_from(tmp_path: Path, there: Path) -> None:
    asked = job(tmp_path / "here")
    stored = {**asked.stored, "on": str(tmp_path / "nowhere.py")}
    trainer = begun(Job(stored, asked.folder), Code([], None))
    news = trainer.news(60.0)
    assert isinstance(news.error, InputError)
    assert str(news.error).startswith(f"on {socket.gethostname()}: task file") and list(there.iterdir()) == []
