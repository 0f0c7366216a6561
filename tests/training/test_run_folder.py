"""Run folders: missing, truncated and foreign files, and atomic writes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.io import add_digest, write_inside
from regard.training import checkpoint
from regard.training.checkpoint import Checkpoint
from regard.training.config import make_config
from regard.training.run_folder import RunFolder, create_run, missing_steps


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
def test_damaged_files_are_refused_in_one_line(run: RunFolder, name: str, content: bytes | None, message: str) -> None:
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
    with pytest.raises(InputError, match="is damaged: model.safetensors: the (end of the file is missing|file holds)"):
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
    import regard.io

    written = regard.io.write_file
    for failing in range(2):
        calls = iter(range(10))

        def write(path: Path, content: bytes, calls=calls, failing=failing) -> None:
            if next(calls) == failing:
                raise regard.MachineError("disk full")
            written(path, content)

        monkeypatch.setattr(regard.io, "write_file", write)
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


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 25 steps, with snapshots."""
    root = tmp_path_factory.mktemp("metrics")
    regard.train("counting", hidden=4, batchsize=2, steps=25, snapshots=2, savepath=root, progress=False)
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "models"))


def lines(*kept: int) -> Callable[[str], str]:
    """Return a change that retains some lines."""
    return lambda text: "".join(text.splitlines(keepends=True)[place] for place in kept)


def put(line: str, place: int = 1) -> Callable[[str], str]:
    """Return a change that inserts a line."""

    def change(text: str) -> str:
        found = text.splitlines(keepends=True)
        return "".join([*found[:place], f"{line}\n", *found[place:]])

    return change


LOST: dict[str, tuple[Callable[[str], str] | None, str]] = {
    "deleted": (None, "3 steps, 10 to 25"),
    "empty": (lambda text: "", "3 steps, 10 to 25"),
    "a last line alone, cut": (lambda text: '{"step": 10, "lo', "3 steps, 10 to 25"),
    "cut in its last line": (lambda text: text[:-9], "1 step, 25 to 25"),
    "without its first line": (lines(1, 2), "1 step, 10 to 10"),
    "without a line in the middle": (lines(0, 2), "1 step, 20 to 20"),
}
DAMAGED: dict[str, tuple[Callable[[str], str], str]] = {
    "no JSON": (put("x"), "line 2: it is not valid JSON"),
    "a blank line": (put(""), "line 2: it is not valid JSON"),
    "foreign": (put('{"epoch": 3}'), "line 2: 'step' is missing"),
    "a text": (put('{"step": 12, "loss": "low", "exact_match": 0.0}'), "is a text, not a"),
    "no step": (put('{"loss": 1.0, "exact_match": 0.0}'), "line 2: 'step' is missing"),
    "NaN": (
        put('{"step": 12, "loss": NaN, "exact_match": 0.0}'),
        "line 2: it contains NaN, which is not a finite number",
    ),
    "infinity": (
        put('{"step": 12, "loss": 1e999, "exact_match": 0.0}'),
        "line 2: it contains 1e999, which is not a finite",
    ),
    "step 0": (put('{"step": 0, "loss": 1.0, "exact_match": 0.0}', 0), "line 1: 'step' has an invalid value"),
    "a step twice": (put('{"step": 10, "loss": 1.0, "exact_match": 0.0}'), "line 2: step 10 does not come after"),
    "another order": (lines(1, 0, 2), "line 2: step 10 does not come after step 20"),
    "bytes": (lambda text: text.replace("loss", "l\udcff", 1), "line 1: it is not UTF-8"),
    "depth": (put("[" * 5000), "line 2: its JSON is nested too deeply"),
}


def damage(root: Path, change: Callable[[str], str] | None) -> None:
    file = root / "counting" / "metrics.jsonl"
    if change is None:
        file.unlink()
    else:
        file.write_bytes(change(file.read_text()).encode(errors="surrogateescape"))


@pytest.mark.parametrize("name", LOST)
def test_lost_metrics_are_reported_on_resume(root: Path, command: Command, name: str) -> None:
    change, message = LOST[name]
    damage(root, change)
    status, out, err = command("train", "counting", "--resume", "--savepath", root)
    assert status == 0 and "Nothing to train: counting was complete already after " in out
    [line] = [line for line in err.splitlines() if line.startswith("regard: ")]
    assert f"metrics.jsonl' lacks the lines of {message}: training continues" in line
    run = regard.load(root / "counting")
    assert isinstance(run, regard.AnswerRun) and run.playback().steps
    assert command("test", "counting", "--samples", "5", "--savepath", root)[0] == 0


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_metrics_are_refused(root: Path, command: Command, name: str) -> None:
    change, message = DAMAGED[name]
    damage(root, change)
    before = (root / "counting" / "metrics.jsonl").read_bytes()
    status, _, err = command("train", "counting", "--resume", "--savepath", root)
    assert status == 2 and err.count("\n") == 1 and message in err and "restore a copy, or delete that line" in err
    assert (root / "counting" / "metrics.jsonl").read_bytes() == before
    with pytest.raises(InputError, match="metrics.jsonl' is damaged"):
        regard.load(root / "counting").playback()


def test_unfinished_training_needs_no_last_line() -> None:
    written = [{"step": 10}, {"step": 20}]
    assert missing_steps(written, 23, 50, 10) == [] == missing_steps([], 9, 50, 10)
    assert missing_steps(written, 23, 23, 10) == [23] and missing_steps(written, 30, 50, 10) == [30]


def test_comparison_names_the_run_with_lost_metrics(in_this_process: None, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"hidden": 4, "batchsize": 2, "steps": 10}
    found = regard.compare("counting", {"heads": [1, 2]}, seeds=1, savepath=tmp_path, **asked)
    [file, *_] = sorted(tmp_path.rglob("metrics.jsonl"))
    file.write_text("")
    with pytest.raises(
        InputError, match="has lost its metrics.jsonl: restore a copy of the file, or delete the folder"
    ):
        found.save()
    next(file.parent.parent.glob("measured.json")).unlink()
    with pytest.raises(InputError, match="has lost its metrics.jsonl"):
        regard.compare("counting", {"heads": [1, 2]}, seeds=1, savepath=tmp_path, **asked)
    assert RunFolder(file.parent).read_metrics() == []
