"""Run folders that version 1.0.0 wrote, one of each kind, stay readable (docs/how-to/upgrade.md).

tests/upgrade/1.0.0/make.txt has the commands that wrote them. A folder that cannot be read any more is an error of
the reader: never write the folders again. A later kind of run gets a folder of its version beside this one.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import regard
from tests.conftest import Command

STORED = Path(__file__).parent / "upgrade/1.0.0"
EXPECTED = json.loads((STORED / "expected.json").read_text(encoding="utf-8"))
"""For each folder: the class of the run, an input, and weights of the first head of the first layer."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a copy of the folders. The task's file has another path there, as after a move."""
    shutil.copytree(STORED, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("*.py.txt"):
        file.rename(file.with_suffix(""))
    config = tmp_path / "custom_task/doubles/config.json"
    config.write_text(config.read_text().replace("/tmp/fx/doubles.py", str(tmp_path / "doubles.py")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", EXPECTED)
def test_a_run_of_each_kind_has_its_weights(name: str) -> None:
    kind, sample, weights = EXPECTED[name]
    run = regard.load(name, trust_code=True, trust_edited=name.startswith("custom_task"))
    row = np.asarray(next(iter(run.attend(sample).layers.values())).weights)[0, -1]
    assert type(run).__name__ == kind and row == pytest.approx(weights, abs=1e-4)


def test_every_folder_is_tested() -> None:
    found = {file.parent.relative_to(STORED).as_posix() for file in STORED.rglob("config.json")}
    assert found - {"translation/translation/ctranslate2"} == {*EXPECTED}
    assert sum(file.stat().st_size for file in STORED.rglob("*") if file.is_file()) < 300_000


def test_commands_open_stored_runs(command: Command) -> None:
    for line in (
        "test pooling/counting --samples 5",
        "examine heads/signal2 --samples 4",
        "show query/counting --live page.html",
        "timeline decoder/induction --samples 10",
        "generate text/text a --new 3",
        "translate translation/translation a --engine ctranslate2",
        "train counting --savepath query --resume --steps 3",
    ):
        status, out, err = command(*line.split())
        assert status == 0 and out, (line, err)


def test_a_stored_comparison_is_continued(command: Command) -> None:
    line = "compare counting --vary heads=1,2 --multihead --hidden 4 --steps 2 --batchsize 4 --seeds 1"
    status, out, err = command(*line.split(), "--savepath", "comparison")
    assert status == 0 and "heads=1 minus heads=2" in out and "2 measurements are stored" in err, err
