"""Missing metrics are reported, and damaged metrics are refused with a one-line error."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import InputError
from regard.training.run_folder import RunFolder, missing_steps

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
    assert (
        status == 2 and err.count("\n") == 1 and message in err and "restore a copy, or delete that line" in err
    )
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
