"""Errors name the content of a folder and both values of a conflicting flag. Help texts fit the terminal."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli import COMMANDS

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """Create a folder that looks like a Hugging Face model."""
    folder = tmp_path / "peer"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    return folder


def _refused(command: Command, *argv: str | Path) -> str:
    status, _, err = command(*argv)
    assert status == 2 and err.count("\n") == 1
    return err


@pytest.mark.parametrize("name", ["show", "examine", "explain", "prune"])
def test_wrong_training_flags_are_reported_with_both_values(
    command: Command, trained: regard.AnswerRun, name: str
) -> None:
    assert "was trained with hidden 8, not 12: train another" in _refused(
        command, name, trained.folder, "--hidden", "12"
    )
    assert "was trained with multihead True, not False" in _refused(command, name, trained.folder, "--no_multihead")
    assert "--hidden 8 is fixed by the run: leave it out" in _refused(command, name, trained.folder, "--hidden", "8")
    assert "Unrecognized options: --foo, 3" in _refused(command, name, trained.folder, "--foo", "3")


@pytest.mark.parametrize("without", [False, True])
def test_look_explains_a_wrong_name(
    command: Command, trained: regard.AnswerRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: bool
) -> None:
    """The folder is recognized even if transformers is not installed."""
    if without:
        monkeypatch.setitem(sys.modules, "transformers", None)
    else:
        pytest.importorskip("transformers", reason="needs the extra peers")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the variable was read at import
    monkeypatch.chdir(tmp_path)
    assert "is a run of Regard: open it with `regard show" in _refused(command, "look", trained.folder)
    found = _refused(command, "look", "nofolder")
    if without:
        assert "'nofolder' is not a folder: check the path." in found
    else:
        assert "'nofolder' is not a folder here, and the Hugging Face cache has no copy" in found
    shutil.copytree(trained.folder, tmp_path / "models" / "mine")
    found = _refused(command, "look", "mine")
    assert "'mine' is not a folder here, but a run in 'models': open it with `regard show mine`" in found


@pytest.mark.parametrize("name", ["show", "test", "examine", "export", "align"])
def test_run_commands_recognize_a_model_folder(command: Command, peer: Path, name: str) -> None:
    found = _refused(command, name, peer)
    assert "is a Hugging Face model, not a run: inspect it with `regard look" in found


def test_translate_and_import_recognize_folders(command: Command, peer: Path, trained: regard.AnswerRun) -> None:
    assert "is a Hugging Face model, not a run" in _refused(command, "translate", peer, "x")
    found = _refused(command, "import", trained.folder)
    assert f"is already a run of Regard: open it with `regard show {trained.folder}`" in found


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_no_help_is_wider_than_a_terminal(command: Command, monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = command(*([name] if name else []), "--help")
    assert status == 0 and out
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in out.splitlines()]
    assert max(map(len, lines)) <= 80
