"""A sample of the campaign of command lines; the campaign detects planted faults."""

import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import regard
from regard.cli import COMMANDS
from tests.faults import commands
from tests.faults.children import Ended, Streams
from tests.faults.commands import faults_of, main
from tests.faults.flags import forms
from tests.faults.ground import at_home, make_ground, warm_up
from tests.faults.lines import Line

pytestmark = pytest.mark.skipif(os.name != "posix", reason="commands are tried in forked children")


@pytest.fixture(scope="module")
def ground() -> Iterator[Path]:
    """Yield the site, which both campaigns copy. Its runs name their texts, so an unprivileged user must be able
    to read the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        warm_up()
        with mock.patch.dict(os.environ), mock.patch.object(tempfile, "tempdir", None):
            with at_home(Path(scratch).resolve()):
                site = make_ground(Path(scratch).resolve())
        yield site


def test_a_sample_of_command_lines(ground: Path) -> None:
    report = main(60, seed=0, ground=ground)
    assert not report.faults, report.told()
    assert report.counts["done (status 0)"] > 5 and report.counts["refused (status 2)"] > 25


def test_every_command_is_tried_with_all_its_flags(trained: regard.AnswerRun) -> None:
    every = forms([str(trained.folder)])
    assert {each.command for each in every} == set(COMMANDS)
    trainings = [each for each in every if each.command == "train"]
    assert all(form.flag("steps") and form.flag("savepath") for form in trainings)


LINE = Line(("test", "copy", "--samples", "x"), ("samples", "x"), Streams())
REFUSED: dict[str, Any] = {
    "status": 2,
    "out": "",
    "err": "regard: samples 'x' is no number\n",
    "told": (),
    "stopped": False,
    "hung": False,
    "left_alive": False,
    "seconds": 0.1,
}


@pytest.mark.parametrize(
    ("change", "changed", "left", "fault"),
    [
        ({}, set(), set(), None),
        (
            {"err": "Traceback (most recent):\nValueError: x\n"},
            set(),
            set(),
            "traceback: ValueError: x",
        ),
        ({"err": ""}, set(), set(), "0 lines for a refusal"),
        ({"err": "regard: a\nregard: b\n"}, set(), set(), "2 lines for a refusal"),
        (
            {"err": "Warning: glyph\nregard: samples 'x' is none\n"},
            set(),
            set(),
            "somebody else's words",
        ),
        ({"err": "regard: something is wrong\n"}, set(), set(), "names nothing that was given"),
        ({"status": 139}, set(), set(), "status 139"),
        ({"hung": True}, set(), set(), "hangs"),
        ({"left_alive": True}, set(), set(), "leaves a process"),
        ({"told": ("unpickles: pickle.loads",)}, set(), set(), "unpickles"),
        ({}, {"models/copy/config.json"}, set(), "was refused, and changed"),
        ({}, set(), {"torch_1"}, "leaves a temporary file"),
        ({"status": 0, "err": ""}, {"models/.copy.lock"}, set(), "leaves models/.copy.lock"),
    ],
)
def test_faults_are_recognized(
    change: dict[str, Any], changed: set[str], left: set[str], fault: str | None
) -> None:
    found = faults_of(LINE, Ended(**{**REFUSED, **change}), changed, left)
    assert not found if fault is None else any(each.startswith(fault) for each in found), found


def test_unpickling_is_detected(ground: Path) -> None:
    """Unpickling while reading a run is detected."""
    from regard.training.run_folder import RunFolder

    content, read = pickle.dumps([1]), RunFolder.read_config

    def unpickling(folder: RunFolder, **others: Any) -> Any:
        pickle.loads(content)
        return read(folder, **others)

    # Commands that train for longer, such as `bench`, are stopped after a second.
    with mock.patch.object(RunFolder, "read_config", unpickling), mock.patch.object(commands, "PATIENCE", 1.0):
        report = main(10, seed=0, ground=ground)
    assert any("unpickles" in fault for fault in report.faults), report.told()
