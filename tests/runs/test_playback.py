"""Snapshots and playback."""

from pathlib import Path

import pytest

import regard
from regard.training.run_folder import RunFolder
from regard.training.settings import TrainingConfig
from tests.conftest import TINY
from tests.german import write


@pytest.mark.parametrize(
    ("steps", "snapshots", "expected"),
    [
        (1000, 5, [0, 1, 10, 100, 1000]),
        (1000, 2, [0, 1000]),
        (3, 50, [0, 1, 2, 3]),
        (100, 0, []),
    ],
)
def test_snapshot_steps_are_logarithmic(steps: int, snapshots: int, expected: list[int]) -> None:
    assert TrainingConfig(steps=steps, snapshots=snapshots).snapshot_steps == expected


def test_single_snapshot_is_refused() -> None:
    with pytest.raises(regard.InputError, match="snapshots 1 cannot show a change"):
        TrainingConfig(snapshots=1)


def test_frames_cover_the_whole_training(tmp_path: Path) -> None:
    run = regard.train("signal2", savepath=tmp_path, hidden=8, steps=40, snapshots=6, progress=False)
    assert isinstance(run, regard.AnswerRun)
    found = run.playback("BCCCBAABACCCA")
    assert found.steps == run.config.training.snapshot_steps
    last = run.attend("BCCCBAABACCCA")
    # Half precision: about three decimals.
    assert found.frames[-1].probabilities == pytest.approx(last.probabilities, abs=0.01)
    assert found.frames[0].probabilities != pytest.approx(last.probabilities, abs=0.01)
    size = sum(path.stat().st_size for path in RunFolder(run.folder).snapshots)
    whole = RunFolder(run.folder).model_file.stat().st_size
    assert size < 0.75 * whole * len(found.steps)


def test_snapshots_do_not_change_training_and_resume(tmp_path: Path) -> None:
    plain = regard.train("counting", hidden=8, steps=30, savepath=tmp_path / "a", progress=False)
    kept = regard.train("counting", hidden=8, steps=30, snapshots=5, savepath=tmp_path / "b", progress=False)
    assert plain.metrics == kept.metrics
    files = {path.name: path.read_bytes() for path in RunFolder(kept.folder).snapshots}
    again = regard.train("counting", savepath=tmp_path / "b", resume=True, progress=False)
    assert {path.name: path.read_bytes() for path in RunFolder(again.folder).snapshots} == files


def test_playback_without_snapshots_is_refused(trained: regard.AnswerRun, translator: regard.PairRun) -> None:
    assert not trained.has_snapshots
    for run, text in ((trained, "BCCCBAABACCCA"), (translator, "3. Mai 1979")):
        with pytest.raises(regard.InputError, match="has no snapshots: train it with --snapshots 50"):
            run.playback(text)


def test_playback_of_a_translation_uses_the_last_answer(tmp_path: Path) -> None:
    flags = {**TINY, "steps": 12, "snapshots": 4, "progress": False}
    run = regard.train("translation", **write(tmp_path), **flags, savepath=tmp_path)
    assert isinstance(run, regard.TranslationRun)
    found = run.playback("Heute läuft der alte Hund.")
    labels = [frame.cross.query_labels for frame in found.frames]
    assert len({tuple(label) for label in labels}) == 1 and found.steps == [0, 1, 3, 12]
    assert len({str(frame.prediction) for frame in found.frames}) > 1


def test_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    run = regard.train("counting", hidden=8, steps=5, snapshots=3, savepath=tmp_path, progress=False)
    RunFolder(run.folder).snapshots[1].write_bytes(b"no tensors")
    with pytest.raises(regard.InputError, match="step-1.safetensors: the end of the file is missing"):
        run.playback("ABBA_CABBA")
