"""The Python interface."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.training.config import TrainingConfig
from regard.training.run_folder import RunFolder
from tests.conftest import TINY
from tests.german import write


def test_exported_names_exist_once() -> None:
    assert len(set(vars(regard)["NAMES"])) == len(vars(regard)["NAMES"])
    assert {"train", "load", "record", "compare", "plot", "Run"} <= set(vars(regard)["NAMES"])
    for name in vars(regard)["NAMES"]:
        assert getattr(regard, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = regard.trian  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "heavy"), [("regard", "torch"), ("regard.runs", "matplotlib"), ("regard.runs", "torch._dynamo")]
)
def test_importing_is_light(module: str, heavy: str) -> None:
    code = f"import sys, {module}; sys.exit('{heavy}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_loaded_run_equals_the_returned_one(trained: regard.AnswerRun) -> None:
    loaded = regard.load(trained.folder)
    assert loaded.config == trained.config and loaded.step == trained.step
    inputs = trained.task.parse("ABCABC")
    assert torch.equal(loaded.model(inputs), trained.model(inputs))
    assert loaded.metrics == trained.metrics
    assert regard.load("signal2", savepath=trained.folder.parent).folder == trained.folder


def test_reports_are_reproducible_and_seeds_differ(trained: regard.AnswerRun) -> None:
    assert trained.test(samples=2500) == trained.test(samples=2500)
    assert trained.test(samples=2500) != trained.test(samples=2500, seed=1)
    assert trained.attend().input == trained.attend().input != trained.attend(seed=1).input


def test_input_excludes_options_of_a_drawn_one(trained: regard.AnswerRun) -> None:
    with pytest.raises(regard.InputError, match="leave out sample_len and signal"):
        trained.attend("ABCABC", sample_len=3)


def test_resuming_refuses_other_flags(trained: regard.AnswerRun) -> None:
    with pytest.raises(regard.InputError, match="batchsize 99 differs from the run's"):
        regard.train("signal2", savepath=trained.folder.parent, resume=True, batchsize=99)


def test_unknown_flags_are_refused(tmp_path: Path) -> None:
    with pytest.raises(regard.InputError, match="flag 'stps' is unknown: did you mean steps?"):
        regard.train("counting", stps=3, savepath=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_short_training_learns(tmp_path: Path) -> None:
    """Counting reaches 90 % exact match after a quarter of its steps, and then attends to the counted letters."""
    run = regard.train("counting", steps=500, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.AnswerRun)
    report = run.test(samples=2000)
    assert report.exact_match > 0.9 and report.relevance is not None
    assert report.relevance.heads[0] > report.relevance.uniform + 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "flags"),
    [("counting", {}), ("difference", {"self_att": True}), ("signal", {"pos_enc": True}), ("signal2", {})],
)
def test_the_defaults_reach_99_percent(tmp_path: Path, task: str, flags: dict[str, Any]) -> None:
    run = regard.train(task, savepath=tmp_path, progress=False, seed=100, **flags)
    assert isinstance(run, regard.AnswerRun) and run.test().exact_match >= 0.99


@pytest.mark.slow
def test_counting_over_all_lengths_reaches_99_percent_at_each(tmp_path: Path) -> None:
    run = regard.train("counting", vary_len=True, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.AnswerRun)
    for length in range(1, 11):
        assert run.test(sample_len=length).exact_match >= 0.99, length


@pytest.mark.parametrize(
    ("steps", "snapshots", "expected"),
    [(1000, 5, [0, 1, 10, 100, 1000]), (1000, 2, [0, 1000]), (3, 50, [0, 1, 2, 3]), (100, 0, [])],
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
