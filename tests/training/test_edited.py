"""Edited or mixed runs are refused by every reader, but accepted with `trust_edited`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import regard
from regard.errors import InputError
from regard.io import add_digest
from regard.training.tensor_file import pack_tensors, read_tensors

FLAGS: dict[str, Any] = {"hidden": 8, "steps": 6, "batchsize": 4, "snapshots": 3, "progress": False}
Edit = Callable[[Path], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with equal shapes but a different seed, number of heads, or task."""
    root = tmp_path_factory.mktemp("whole")
    changes: dict[str, Any] = {"one": {"heads": 2}, "seed": {"heads": 2, "seed": 1}, "heads": {"heads": 4}}
    for name, flags in changes.items():
        regard.train("signal2", **FLAGS, **flags, savepath=root / name)
    return root


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole / "one" / "signal2", tmp_path / "signal2"))


def config(change: dict[str, Any], part: str | None = None, *, seal: bool = False) -> Edit:
    """Return an edit of values in config.json; None removes a value."""

    def edit(run: Path) -> None:
        stored = json.loads((run / "config.json").read_text())
        (stored if part is None else stored[part]).update(change)
        stored = {name: value for name, value in stored.items() if value is not None or name not in change}
        if seal:
            stored = add_digest({name: value for name, value in stored.items() if name != "digest"})
        (run / "config.json").write_text(json.dumps(stored))

    return edit


def header(file: str, change: Callable[[dict[str, Any]], None]) -> Edit:
    """Return a function that edits the header of a tensor file."""

    def edit(run: Path) -> None:
        content = (run / file).read_bytes()
        begin = 8 + int.from_bytes(content[:8], "little")
        found = json.loads(content[8:begin])
        change(found)
        text = json.dumps(found).encode()
        (run / file).write_bytes(len(text).to_bytes(8, "little") + text + content[begin:])

    return edit


def exchange(found: dict[str, Any]) -> None:
    """Exchange the names of two tensors with the same shape and dtype."""
    names = [name for name in found if name != "__metadata__"]
    one, other = next(
        (one, other)
        for one in names
        for other in names
        if one < other and all(found[one][each] == found[other][each] for each in ("shape", "dtype"))
    )
    found[one], found[other] = found[other], found[one]


def about(**values: str | None) -> Callable[[dict[str, Any]], None]:
    """Return an edit of the metadata; None removes a value."""

    def change(found: dict[str, Any]) -> None:
        metadata = {**found["__metadata__"], **values}
        found["__metadata__"] = {name: value for name, value in metadata.items() if value is not None}

    return change


def flip(file: str) -> Edit:
    def edit(run: Path) -> None:
        content = bytearray((run / file).read_bytes())
        content[-1] ^= 1
        (run / file).write_bytes(content)

    return edit


def take(file: str, other: str) -> Edit:
    """Return an edit that replaces a file by the file of another run."""

    def edit(run: Path) -> None:
        shutil.copy(run / ".." / "whole" / other / "signal2" / file, run / file)

    return edit


def without_digests(run: Path) -> None:
    """Rewrite the model without its digest."""
    found = read_tensors(run / "model.safetensors")
    content = safetensors.torch.save(found.tensors, {"step": str(found.step)})
    (run / "model.safetensors").write_bytes(content)


MODEL, TRAINER, SNAPSHOT = "model.safetensors", "trainer/step-6.safetensors", "snapshots/step-6.safetensors"
EDITS: dict[str, tuple[Edit, str]] = {
    "heads": (config({"heads": 4}, "options"), "config.json: heads is 4 in config.json, 2 in model.safetensors"),
    "a value of the training": (config({"seed": 9}, "options"), "config.json: seed is 9 in config.json, 0 in "),
    "config with a new digest": (
        config({"heads": 4}, "options", seal=True),
        "model.safetensors: heads is 4 in config.json, 2 in model.safetensors",
    ),
    "config without digest": (config({"digest": None}), "config.json: its digest is missing"),
    "names": (header(MODEL, exchange), "model.safetensors: the file has changed since it was written"),
    "step": (header(MODEL, about(step="7")), "model.safetensors: the file has changed since it was written"),
    "config inside": (header(MODEL, about(config="{}")), "model.safetensors: the file has changed since it was wr"),
    "no digest": (header(MODEL, about(sha256=None)), "model.safetensors: its digest is missing"),
    "an old file": (without_digests, "model.safetensors: its digest is missing"),
    "a value": (flip(MODEL), "model.safetensors: the file has changed since it was written"),
    "model of another seed": (take(MODEL, "seed"), "model.safetensors: seed is 0 in config.json, 1 in model"),
    "model with other heads": (take(MODEL, "heads"), "model.safetensors: heads is 2 in config.json, 4 in mod"),
    "config of another run": (take("config.json", "heads"), "model.safetensors: heads is 4 in config.json, 2 in"),
}


def give(run: Path, whole: Path, edit: Edit) -> None:
    if not (run / ".." / "whole").exists():
        (run / ".." / "whole").symlink_to(whole)
    edit(run)


@pytest.mark.parametrize("name", EDITS)
def test_edited_run_is_refused_unless_trusted(
    run: Path, whole: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    edit, message = EDITS[name]
    give(run, whole, edit)
    with pytest.raises(InputError) as raised:
        regard.load(run)
    said = str(raised.value)
    assert message in said and "\n" not in said and "restore a copy of the run" in said and "--trust-edited" in said
    with pytest.raises(InputError, match="was edited or mixed with another run"):
        regard.train("signal2", savepath=run.parent, resume=True, progress=False)
    capsys.readouterr()
    assert regard.load(run, trust_edited=True).step in (6, 7)
    [line] = capsys.readouterr().err.splitlines()
    assert message in line and line.endswith("the file is used unchanged (--trust-edited)")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (take(TRAINER, "seed"), "step-6.safetensors: seed is 0 in config.json, 1 in step-6.safetensors"),
        (header(TRAINER, exchange), "step-6.safetensors: the file has changed since it was written"),
        (header(TRAINER, about(sha256=None)), "step-6.safetensors: its digest is missing"),
    ],
)
def test_edited_training_state_is_refused(run: Path, whole: Path, edit: Edit, message: str) -> None:
    give(run, whole, edit)
    with pytest.raises(InputError, match=message):
        regard.train("signal2", savepath=run.parent, resume=True, progress=False)
    resumed = regard.train("signal2", savepath=run.parent, resume=True, progress=False, trust_edited=True)
    assert resumed.step == 6


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (take(SNAPSHOT, "seed"), "step-6.safetensors: seed is 0 in config.json, 1 in step-6.safetensors"),
        (header(SNAPSHOT, exchange), "step-6.safetensors: the file has changed since it was written"),
        (lambda run: shutil.copy(run / "snapshots/step-1.safetensors", run / SNAPSHOT), "it is of step 1"),
    ],
)
def test_edited_snapshot_is_refused(run: Path, whole: Path, edit: Edit, message: str) -> None:
    give(run, whole, edit)
    with pytest.raises(InputError, match=message):
        regard.load(run).playback()
    if "step 1" not in message:
        assert regard.load(run, trust_edited=True).playback().steps == [0, 1, 6]


def test_whitespace_and_key_order_do_not_matter(run: Path) -> None:
    stored = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(dict(reversed(stored.items())), indent=7) + "\n\n")

    def turn(found: dict[str, Any]) -> None:
        items = list(found.items())
        found.clear()
        found.update(reversed(items))

    expected = regard.load(run).model.state_dict()
    header(MODEL, turn)(run)
    found = regard.load(run).model.state_dict()
    assert list(found) == list(expected) and all(torch.equal(found[name], expected[name]) for name in found)


def test_file_of_another_origin_with_a_valid_digest_is_refused(run: Path) -> None:
    """A model file that contains no config is refused."""
    found = read_tensors(run / MODEL)
    (run / MODEL).write_bytes(pack_tensors(found.tensors, found.step, "{}"))
    with pytest.raises(InputError, match="model.safetensors: format is regard-run/8 in config.json, missing in"):
        regard.load(run)
    (run / MODEL).write_bytes(pack_tensors(found.tensors, found.step))
    with pytest.raises(InputError, match="model.safetensors: it names no config"):
        regard.load(run)
