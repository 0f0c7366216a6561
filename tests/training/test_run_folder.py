"""Run folders: missing, truncated and foreign files, and atomic writes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.io.reading import add_digest
from regard.io.writing import write_inside
from regard.training import checkpoint
from regard.training.checkpoint import Checkpoint
from regard.training.config import make_config
from regard.training.run_folder import RunFolder, create_run


@pytest.fixture
def run(trained: regard.AnswerRun, tmp_path: Path) -> RunFolder:
    """A copy of a run, to be damaged."""
    return RunFolder(Path(shutil.copytree(trained.folder, tmp_path / "signal2")))


def test_files_of_a_run(run: RunFolder) -> None:
    assert {each.name for each in run.path.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "trainer",
    }
    assert [each.name for each in (run.path / "trainer").iterdir()] == ["step-12.safetensors"]
    assert [each["step"] for each in run.read_metrics()] == [10, 12]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "no run "),
        ("config.json", b"", "is damaged: config.json: it is not valid JSON at line 1, column 1"),
        ("config.json", b"\xff\xfe", "is damaged: config.json: it is not UTF-8 at byte 0"),
        ("config.json", b"[]", "config.json names no format, but this version of Regard reads regard-run/8"),
        (
            "config.json",
            b'{"format": "other"}',
            "config.json names format 'other', but this version of Regard reads regard-run/8",
        ),
        (
            "config.json",
            b'{"format": "regard-run/6"}',
            "config.json names format 'regard-run/6', but this version of Regard reads regard-run/8; train it",
        ),
        (
            "config.json",
            b'{"format": "regard-run/8"}',
            "was edited or mixed with another run: config.json: its digest is missing",
        ),
        (
            "config.json",
            json.dumps(add_digest({"format": "regard-run/8"})).encode(),
            "damaged: config.json: config needs exactly averaged, bleu_tokenizer, code, initial, kept_heads, "
            "kind, measured, on, options, origin, schedules, text, tokenizer",
        ),
        ("model.safetensors", None, "is incomplete: model.safetensors is missing"),
        ("model.safetensors", b"", "is damaged: model.safetensors: the end of the file is missing"),
        (
            "model.safetensors",
            b"\x80\x04cposix\nsystem\n",
            "is damaged: model.safetensors: the end of the file is missing, or the",
        ),
    ],
)
def test_damaged_files_are_refused_in_one_line(
    run: RunFolder, name: str, content: bytes | None, message: str
) -> None:
    file = run.path / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        regard.load(run.path)
    assert "\n" not in str(raised.value) and str(run.path) in str(raised.value)


@pytest.mark.parametrize("keep", [1, 100, 1000])
def test_truncated_model_is_refused(run: RunFolder, keep: int) -> None:
    run.model_file.write_bytes(run.model_file.read_bytes()[:keep])
    with pytest.raises(
        InputError, match="is damaged: model.safetensors: the (end of the file is missing|file holds)"
    ):
        regard.load(run.path)


def test_model_of_another_shape_is_refused(run: RunFolder) -> None:
    stored = json.loads(run.config_file.read_text())
    stored["options"]["hidden"] = 16
    del stored["digest"]
    run.config_file.write_text(json.dumps(add_digest(stored)))
    with pytest.raises(
        InputError, match="is damaged: model.safetensors: tensor '.*' is float32 \\(.*\\), not float32 \\("
    ) as raised:
        regard.load(run.path)
    assert "\n" not in str(raised.value)


def test_resuming_without_training_state_is_refused(run: RunFolder) -> None:
    shutil.rmtree(run.path / "trainer")
    with pytest.raises(InputError, match="is incomplete: its training state is missing"):
        regard.train("signal2", savepath=run.path.parent, resume=True, progress=False)


def test_checkpoint_is_usable_at_every_moment(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """If any write of a checkpoint fails, a complete model and a state for resuming remain."""
    from regard.io import writing

    written = writing.write_file
    for failing in range(2):
        calls = iter(range(10))

        def write(path: Path, content: bytes, calls=calls, failing=failing) -> None:
            if next(calls) == failing:
                raise regard.MachineError("disk full")
            written(path, content)

        monkeypatch.setattr(writing, "write_file", write)
        weights = Checkpoint.load(run).weights
        with pytest.raises(regard.MachineError):
            Checkpoint(step=13, weights=weights, training={"generator": torch.zeros(1)}).save(run)
        assert Checkpoint.load(run).step == 12 + failing  # complete, of either step
        assert Checkpoint.load(run, training={}).step == 12


def test_training_killed_in_its_last_checkpoint_has_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: dict[str, Any] = {"steps": 20, "batchsize": 4, "hidden": 8, "progress": False}
    whole = regard.train("counting", savepath=tmp_path / "whole", **flags)

    for name in ("step-20.safetensors", "model.safetensors"):

        def killed(folder: Path, path: Path, content: bytes, name: str = name) -> None:
            if path.name == name and (folder / "metrics.jsonl").exists():
                raise KeyboardInterrupt
            write_inside(folder, path, content)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(checkpoint, "write_inside", killed)
            regard.train("counting", savepath=tmp_path / name, **flags)
        found = regard.train("counting", savepath=tmp_path / name, resume=True, progress=False)
        for file in ("model.safetensors", "metrics.jsonl", "trainer/step-20.safetensors"):
            assert (found.folder / file).read_bytes() == (whole.folder / file).read_bytes()


def test_run_is_replaced_only_with_overwrite_and_by_a_complete_run(run: RunFolder) -> None:
    before = {each: each.read_bytes() for each in run.path.rglob("*") if each.is_file()}
    config = make_config("signal2")
    with pytest.raises(InputError, match="already contains a run: continue it with --resume, replace it with"):
        with create_run(run.path, config, overwrite=False):
            pass
    with pytest.raises(regard.MachineError), create_run(run.path, config, overwrite=True):
        raise regard.MachineError("disk full while the new run was being written")
    assert {each: each.read_bytes() for each in run.path.rglob("*") if each.is_file()} == before
    with create_run(run.path, config, overwrite=True):
        pass
    assert [each.name for each in run.path.iterdir()] == ["config.json"]
    assert list(run.path.parent.iterdir()) == [run.path]


def test_folder_that_is_not_a_run_is_not_replaced(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "one.jpg").touch()
    with pytest.raises(InputError, match="exists and is not a run: choose another --savepath"):
        with create_run(photos, make_config("counting"), overwrite=True):
            pass
    assert (photos / "one.jpg").exists()


def test_truncated_last_line_of_metrics_is_ignored(run: RunFolder) -> None:
    with run.metrics_file.open("a") as file:
        file.write('{"step": 20, "lo')
    assert [metrics["step"] for metrics in run.read_metrics()] == [10, 12]
    run.cut_metrics(10)
    assert [metrics["step"] for metrics in run.read_metrics()] == [10]
