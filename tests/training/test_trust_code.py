"""Runs of other users do not execute code."""

import json
import os
import shutil
from pathlib import Path

import pytest

import regard
from regard.cli import main
from regard.io import add_digest
from tests.faults.children import Ended, run

SCORE = """
import pathlib
from regard.attention.scores import ScaledDot

pathlib.Path("ran").write_text("")

class Mine(ScaledDot):
    pass
"""
TASK = """
import pathlib
from regard.tasks.counting import Counting

pathlib.Path("ran").write_text("")

class Mine(Counting):
    name = "mine"
"""
TINY = ["--steps", "2", "--batchsize", "2", "--hidden", "4"]


def command(folder: Path, *words: str, state: str = "state") -> Ended:
    """Run a command in `folder`, in a forked child, as a user whose records are in `state`."""

    def work(told: int) -> int:
        os.environ["XDG_STATE_HOME"] = str(folder / state)
        return main(list(words))

    return run(work, folder, patience=120)


@pytest.fixture(params=["score", "task"])
def name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Name of a run with custom code, trained in `tmp_path/models`."""
    if request.param == "score":
        (tmp_path / "mine.py").write_text(SCORE)
        words = ["counting", "--score", "mine:Mine"]
    else:
        (tmp_path / "mine.py").write_text(TASK)
        words = ["mine.py"]
    done = command(tmp_path, "train", *words, *TINY)
    assert done.status == 0, done.err
    (tmp_path / "ran").unlink()
    return "counting" if request.param == "score" else "mine"


def refused(done: Ended, folder: Path) -> bool:
    """Return whether a command reported the untrusted code in one line and did not execute the code."""
    one_line = done.err.count("\n") == 1 and "Traceback" not in done.err
    said = "uses code that" in done.err and "mine.py" in done.err and "--trust_code" in done.err
    return done.status == 2 and one_line and said and not (folder / "ran").exists()


def test_code_runs_only_for_its_trainer(tmp_path: Path, name: str) -> None:
    assert command(tmp_path, "test", name, "--samples", "2").status == 0
    (tmp_path / "ran").unlink()
    commands = [["test", name]]
    if name == "counting":  # every command loads a task as it loads a score
        others = [["examine", name], ["prune", name], ["show", name], ["translate", name, "A"]]
        commands += [*others, ["plot", "positions", name], ["train", name, "--resume"]]
    for words in commands:
        assert refused(command(tmp_path, *words, state="other"), tmp_path), words
    trusting = command(tmp_path, "test", name, "--samples", "2", "--trust_code", state="other")
    assert trusting.status == 0 and (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()
    assert refused(command(tmp_path, "test", name, state="other"), tmp_path)  # trusting once is not permanent


def test_changed_code_is_not_trusted(tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(file.read_text() + "# and something else\n")
    assert refused(command(tmp_path, "test", name), tmp_path)


@pytest.mark.parametrize("helper", ["helper.py", "package/__init__.py", "package/part.py"])
def test_changed_code_of_an_import_is_not_trusted(tmp_path: Path, helper: str) -> None:
    """Trust covers all that the named file imports, and resuming needs the code with which the run began."""
    (tmp_path / "package").mkdir()
    for name in ("helper.py", "package/__init__.py", "package/part.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "mine.py").write_text(f"import helper, package.part\n{SCORE}")
    words = ["train", "counting", "--score", "mine:Mine", *TINY]
    assert command(tmp_path, *words).status == 0
    (tmp_path / "ran").unlink()
    (tmp_path / helper).write_text("# changed\n")
    assert refused(command(tmp_path, "test", "counting"), tmp_path)
    again = ["train", "counting", "--resume", "--steps", "4", "--trust_code"]
    done = command(tmp_path, *again)
    assert done.status == 2 and done.err.endswith(
        "score 'mine:Mine' has changed since the run 'models/counting' began: restore the code, or train a new "
        "run; if the change has no effect on the run, add --trust_edited\n"
    )
    done = command(tmp_path, *again, "--trust_edited")
    assert done.status == 0 and "began: the losses may differ" in done.err


def test_code_in_another_folder_is_not_trusted(tmp_path: Path) -> None:
    """A module with the same name as a trusted module is not trusted."""
    (tmp_path / "mine.py").write_text(SCORE)
    done = command(tmp_path, "train", "counting", "--score", "mine:Mine", *TINY)
    assert done.status == 0, done.err
    (tmp_path / "sent").mkdir()
    shutil.copytree(tmp_path / "models", tmp_path / "sent" / "models")
    shutil.copy(tmp_path / "mine.py", tmp_path / "sent")
    shutil.copytree(tmp_path / "state", tmp_path / "sent" / "state")
    assert refused(command(tmp_path / "sent", "test", "counting"), tmp_path / "sent")


def test_run_without_custom_code_needs_no_trust(
    trained: regard.AnswerRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert regard.load(trained.folder).step == 12
    config = tmp_path / "signal2" / "config.json"
    shutil.copytree(trained.folder, config.parent)
    for score in ("os:system", "no_such_module:Score", "regard.attention.scores:ScaledDot"):
        stored = json.loads(config.read_text())
        stored["options"]["score"] = score
        config.write_text(json.dumps(add_digest(stored)))
        if score.startswith("regard"):
            assert regard.load(config.parent, trust_edited=True).step == 12
        else:
            with pytest.raises(regard.InputError, match=score):
                regard.load(config.parent, trust_edited=True)


@pytest.mark.parametrize("name", ["evil-mod:X", "evil:", "evil: X", "evil:X.y", " evil:X", "evil:X\n", ".evil:X"])
@pytest.mark.parametrize("part", ["kind", "score"])
def test_other_spellings_of_a_name_run_no_code(
    trained: regard.AnswerRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    for file in ("evil.py", "evil-mod.py", " evil.py"):
        (tmp_path / file).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass X: pass")
    config = tmp_path / "signal2" / "config.json"
    shutil.copytree(trained.folder, config.parent)
    stored = json.loads(config.read_text())
    (stored if part == "kind" else stored["options"])[part] = name
    config.write_text(json.dumps(add_digest(stored)))
    with pytest.raises(regard.InputError, match="module:Class|unknown|is not"):
        regard.load(config.parent, trust_edited=True)
    assert not (tmp_path / "ran").exists()
