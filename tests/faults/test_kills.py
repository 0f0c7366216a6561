"""A sample of kills, full disks and simultaneous commands; the campaigns detect faults planted in the code."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from regard.io import writing
from regard.training import tensor_file
from regard.training.checkpoint import Checkpoint, TrainingState
from regard.training.run_folder import RunFolder
from tests.faults import damage, files, kills, together
from tests.faults.scenes import scenes

pytestmark = pytest.mark.skipif(os.name != "posix", reason="commands are tried in forked children")


def scene_of(name: str) -> Any:
    """Restrict the campaign to a single scene, and to kills."""
    one = [each for each in scenes() if each.name == name]
    return mock.patch.multiple(kills, scenes=lambda: one, WAYS=("die",))


FEW = ("train counting", "resume translation", "overwrite", "test, to files")
"""Scenes of `make test`, because preparing all scenes takes 12 seconds."""


def test_a_sample_of_kills_and_full_disks() -> None:
    few = [scene for scene in scenes() if scene.name in FEW]
    assert len(few) == len(FEW)
    with mock.patch.object(kills, "scenes", lambda: few):
        report = kills.main(5, seed=0)
    assert not report.faults, report.told()
    assert sum(report.counts.values()) == 5


@pytest.mark.slow
def test_a_sample_of_signals() -> None:
    report = kills.main_signals(20, seed=0)
    assert not report.faults, report.told()


@pytest.mark.slow
def test_a_sample_of_two_commands_at_once() -> None:
    report = together.main(20, seed=0)
    assert not report.faults, report.told()
    assert len(report.counts) == 2


@pytest.mark.slow
def test_wrong_order_of_a_checkpoint_is_detected() -> None:
    """The training state is written before its model."""

    def save(state: TrainingState, folder: RunFolder, *_: object, use: bool = True) -> None:
        Checkpoint(step=state.step, training=state.tensors()).save(folder)
        if use:
            Checkpoint(step=state.step, weights=state.weights()).save(folder)

    with scene_of("train counting"), mock.patch.object(TrainingState, "save", save):
        report = kills.main(None, seed=0)
    assert any("model.safetensors" in trial_fault for trial_fault in _faults(report)), report.told()


@pytest.mark.slow
def test_files_written_in_place_are_detected() -> None:
    def replace(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content)

    with scene_of("test, to files"), mock.patch.object(writing, "_replace", replace):
        report = kills.main(None, seed=0)
    assert any("neither the old one nor the new one" in fault for fault in report.faults), report.told()


@pytest.mark.slow
def test_missing_lock_is_detected() -> None:
    @contextlib.contextmanager
    def free(_: Path) -> Iterator[None]:
        yield

    with (
        mock.patch("regard.training.distributed.hold_lock", free),
        mock.patch("regard.runs.pruning.hold_lock", free),
    ):
        report = together.main(40, seed=0)
    assert report.faults, report.told()


@pytest.mark.slow
def test_missing_checksum_is_detected() -> None:
    flips = mock.patch.object(files, "WAYS", [damage.flip])
    read = tensor_file._read_values
    with flips, mock.patch.object(tensor_file, "_read_values", lambda *args: (read(*args)[0], True)):
        report = files.main(100, seed=0)
    assert any("other losses" in fault for fault in report.faults), report.told()


def _faults(report: Any) -> list[str]:
    return [fault for trial in report.trials for fault in trial.faults]
