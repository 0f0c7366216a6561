"""Every command that loads a run refuses an edited run in one line, and uses the run with --trust-edited."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import regard

Command = Callable[..., tuple[int, str, str]]
PAIR = "der Hund\tthe dog\n"


@pytest.fixture(scope="module")
def edited(german: regard.TranslationRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return runs with one changed value in the config: a translator, and a run without text."""
    root = tmp_path_factory.mktemp("edited")
    shutil.copytree(german.folder, root / "translation")
    regard.train("signal2", hidden=8, heads=2, steps=2, pos_enc=True, savepath=root, progress=False)
    for run in ("translation", "signal2"):
        stored = json.loads((root / run / "config.json").read_text())
        stored["options"]["seed"] = 7
        shutil.copytree(root / run, root / "sound" / run)
        (root / run / "config.json").write_text(json.dumps(stored))
    (root / "pairs.tsv").write_text(PAIR)
    (root / "text").write_text("der Hund\n")
    return root


COMMANDS = {
    "test": "test signal2 --samples 5",
    "test translation": "test translation --data pairs.tsv --beam 1",
    "examine": "examine signal2 --samples 2",
    "explain": "explain signal2",
    "prune": "prune signal2 --output pruned --overwrite",
    "translate": "translate translation der --engine regard",
    "align": "align translation text text",
    "score": "score translation --input pairs.tsv",
    "plot": "plot positions signal2 -o positions.png",
    "clean": "clean pairs.tsv --runs runs/translation --savepath cleaned",
    "resume": "train signal2 --resume",
    "from": "train signal2 --from signal2 --overwrite --steps 1",
    "export": "export translation --output exported",
    "show": "show signal2 --no-browser",
    "compare_with": "show sound/signal2 --compare-with signal2 --no-browser",
    "reverse": "align sound/translation text text --reverse translation",
}
REFUSED = ("export", "show", "compare_with", "reverse")
"""Commands that take long or do not end, or that fail for another reason with --trust-edited."""


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_refuse_an_edited_run(
    edited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, name: str
) -> None:
    shutil.copytree(edited, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    for file in ("pairs.tsv", "text"):
        (tmp_path / "runs" / file).rename(tmp_path / file)
    (tmp_path / "sound").symlink_to(tmp_path / "runs" / "sound")
    words = COMMANDS[name].split()
    where = () if name == "clean" else ("--savepath", "runs")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    status, out, err = command(*words, *where)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "was edited or mixed with another run: config.json: seed is 7 in config.json, " in err
    assert "restore a copy of the run" in err and "add --trust-edited" in err
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    if name in REFUSED:
        return
    status, _, err = command(*words, *where, "--trust-edited")
    told = [line for line in err.splitlines() if "was edited" in line]
    assert status == 0 and len(told) == 1 and "the file is used unchanged (--trust-edited)" in told[0]


def test_show_refuses_an_edited_examination(edited: Path, tmp_path: Path, command: Command) -> None:
    shutil.copytree(edited / "sound" / "signal2", tmp_path / "signal2")
    assert command("examine", tmp_path / "signal2", "--samples", "2")[0] == 0
    file = tmp_path / "signal2" / "examined.json"
    file.write_text(file.read_text().replace("cross", "Cross", 1))
    status, out, err = command("show", tmp_path / "signal2", "--no-browser")
    assert (status, out, err.count("\n")) == (2, "", 1) and "examined.json: the file has changed since" in err
