"""Resumed training on text: the text is identified by its content, and its files may have moved."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import regard
from regard.errors import InputError
from regard.training.checkpoint import TrainingState

Command = Callable[..., tuple[int, str, str]]
PAIRS = [(f"w{i % 7} w{i % 5} w{i % 3}", f"v{i % 7} v{i % 5} v{i % 3}") for i in range(60)]
FLAGS: dict[str, Any] = {
    "tokenizer": "words",
    "hidden": 8,
    "heads": 2,
    "inner": 8,
    "enc_layers": 1,
    "dec_layers": 2,
    "tokens": 60,
    "steps": 6,
    "validate_every": 3,
    "progress": False,
}


class StoppedError(Exception):
    """Interrupts a training run."""


def write(folder: Path) -> dict[str, Any]:
    """Write texts and links, and return the flags that name them."""
    folder.mkdir()
    for name, lines in (
        ("train.a", [source for source, _ in PAIRS]),
        ("train.b", [target for _, target in PAIRS]),
        ("valid.a", [source for source, _ in PAIRS[:9]]),
        ("valid.b", [target for _, target in PAIRS[:9]]),
        ("links", ["0-0 1-1 2-2"] * len(PAIRS)),
    ):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return places(folder)


def places(folder: Path) -> dict[str, Any]:
    return {
        "train": (folder / "train.a", folder / "train.b"),
        "valid": (folder / "valid.a", folder / "valid.b"),
        "guide": str(folder / "links"),
    }


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interrupted training run and a complete training run."""
    root, save = tmp_path_factory.mktemp("begun"), TrainingState.save
    text = write(root / "text")
    regard.train("translation", **text, **FLAGS, savepath=root / "whole")

    def stop(state: TrainingState, *args: Any, **others: Any) -> None:
        save(state, *args, **others)
        if state.step == 3:
            raise StoppedError

    with mock.patch.object(TrainingState, "save", stop), pytest.raises(StoppedError):
        regard.train("translation", **text, **FLAGS, savepath=root / "runs")
    return root


@pytest.fixture
def root(begun: Path, tmp_path: Path) -> Path:
    """A copy of the runs and of their text in another folder."""
    return Path(shutil.copytree(begun, tmp_path / "moved"))


def resume(root: Path, **flags: Any) -> regard.AnyRun:
    return regard.train("translation", savepath=root / "runs", resume=True, progress=False, **flags)


def squeeze(path: Path, level: int) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), level))
    path.unlink()
    return packed


def touch(root: Path) -> dict[str, Any]:
    for path in (root / "text").iterdir():
        os.utime(path, (1e9, 1e9))
    return places(root / "text")


def rename(root: Path) -> dict[str, Any]:
    shutil.move(root / "text/train.a", root / "source")
    return {**places(root / "text"), "train": (root / "source", root / "text/train.b")}


def compress(root: Path) -> dict[str, Any]:
    train = tuple(squeeze(root / "text" / name, level) for name, level in (("train.a", 1), ("train.b", 9)))
    return {**places(root / "text"), "train": train, "guide": str(squeeze(root / "text/links", 5))}


@pytest.mark.parametrize("move", [touch, rename, compress])
def test_moved_touched_or_compressed_text_is_the_same(
    begun: Path, root: Path, move: Callable[[Path], dict[str, Any]]
) -> None:
    flags = move(root)

    def prepared() -> dict[Path, int]:
        files = (path for path in (root / "runs/prepared").rglob("*") if path.is_file())
        return {path: path.stat().st_mtime_ns for path in files if not path.name.startswith("text-")}

    before = prepared()
    run = resume(root, **flags)
    assert run.task.config.train == tuple(map(str, places(begun / "text")["train"]))
    for name in ("model.safetensors", "trainer/step-6.safetensors"):
        mine, whole = ((each / "translation" / name).read_bytes() for each in (root / "runs", begun / "whole"))
        assert mine == whole
    assert prepared() == before  # found again, nothing is prepared


def append(root: Path) -> None:
    with (root / "text/train.b").open("a") as file:
        file.write("v1\n")


def change(name: str) -> Callable[[Path], None]:
    """Return an edit of a line in the middle of a file that preserves the file's size and time."""

    def edit(root: Path) -> None:
        path = root / "text" / name
        stamp, lines = path.stat(), path.read_text().splitlines(keepends=True)
        middle = len(lines) // 2
        lines[middle] = lines[middle].translate(str.maketrans("01234", "12340"))
        path.write_text("".join(lines))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (append, r"train '.*train\.b' has changed: it has 61 lines, and had 60; a resumed run needs its original text"),
        (change("train.a"), r"train '.*train\.a' has changed: it has 60 lines as before, but different content"),
        (change("valid.b"), r"valid '.*valid\.b' has changed: it has 9 lines as before, but different content"),
        (change("links"), r"guide '.*links' has changed: it has 60 lines as before, but different content"),
    ],
)
def test_changed_text_is_refused(root: Path, edit: Callable[[Path], None], message: str) -> None:
    edit(root)
    before = {path: path.read_bytes() for path in (root / "runs").rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=message) as raised:
        resume(root, **places(root / "text"))
    assert "\n" not in str(raised.value)
    after = {path: path.read_bytes() for path in (root / "runs").rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before


def test_other_files_are_refused(root: Path) -> None:
    text = places(root / "text")
    one, other = text["train"]
    with pytest.raises(InputError, match="the files of train are in a different order: '.*train.b', '.*train.a'"):
        resume(root, **{**text, "train": (other, one)})
    with pytest.raises(InputError, match="train has 1 file, and had 2"):
        resume(root, **{**text, "train": (one,)})
    with pytest.raises(InputError, match="valid has 0 files, and had 2"):
        resume(root, **{**text, "valid": ()})
    with pytest.raises(InputError, match="hidden 16 differs from the run's 8: a resumed run keeps its flags"):
        resume(root, **text, hidden=16)


def test_missing_text_is_refused_with_a_remedy(begun: Path, root: Path, command: Command) -> None:
    config = json.loads((root / "runs/translation/config.json").read_text())
    assert [each["lines"] for each in config["text"]["train"]] == [60, 60] and config["text"]["guide"]
    (begun / "text").rename(begun / "away")
    try:
        status, _, err = command("train", "translation", "--resume", "--savepath", root / "runs")
    finally:
        (begun / "away").rename(begun / "text")
    assert (status, err.count("\n")) == (2, 1)
    assert "train.a' does not exist" in err and "give its new path: --resume --train ..." in err
    train = [str(path) for path in places(root / "text")["train"]]
    valid = [str(path) for path in places(root / "text")["valid"]]
    argv = ("--train", *train, "--valid", *valid, "--guide", root / "text/links", "--savepath", root / "runs")
    status, out, _ = command("train", "translation", "--resume", *argv)
    assert status == 0 and "for 6 steps" in out
