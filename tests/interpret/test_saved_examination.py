"""The examination that was saved with a run is loaded, or refused if it is damaged."""

import json
import os
import shutil
from pathlib import Path

import pytest

import regard
from regard.interpret.examination import examined_facts
from regard.interpret.importance import importance_by_layer
from regard.io.reading import add_digest
from regard.training.checkpoint import Checkpoint
from regard.training.run_folder import RunFolder


@pytest.fixture
def run(trained: regard.AnswerRun, tmp_path: Path) -> RunFolder:
    """A copy of a run."""
    return RunFolder(Path(shutil.copytree(trained.folder, tmp_path / "signal2")))


def test_loads_what_was_saved(trained: regard.AnswerRun, run: RunFolder) -> None:
    result = trained.examine(samples=4)
    file = result.save(run.path / "examined.json")
    os.utime(file, (0, 0))  # copies may have an old date
    loaded = examined_facts(run)
    assert loaded["examined"] == {"cross": [head.sentence() for head in result.heads]}
    assert loaded["importance"] == importance_by_layer(result.importance)
    assert loaded["roles"] == ({} if result.roles is None else result.roles.by_layer())
    Checkpoint(step=13, weights=trained.model.state_dict()).save(run)  # training went on
    assert not any(examined_facts(run).values())


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 10**5])
def test_refuses_a_damaged_file(run: RunFolder, content: str) -> None:
    (run.path / "examined.json").write_text(content)
    with pytest.raises(regard.InputError, match="is damaged: .*; delete the file, or examine the run again"):
        examined_facts(run)


def test_refuses_an_edited_file_and_that_of_another_run(
    trained: regard.AnswerRun, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    file = trained.examine(samples=4).save(run.path / "examined.json")
    stored = json.loads(file.read_text())
    file.write_text(json.dumps({**stored, "words": ["the head is worth nothing"]}))
    with pytest.raises(
        regard.InputError, match=r"examined\.json: the file has changed since it was written; delete the file"
    ):
        examined_facts(run)
    del stored["digest"]
    file.write_text(json.dumps(stored))
    with pytest.raises(
        regard.InputError, match=r"examined\.json: the file has changed since it was written; delete the file"
    ):
        regard.load(run.path).about()
    file.write_text(json.dumps(add_digest({**stored, "of": {**stored["of"], "config": "another"}})))
    with pytest.raises(regard.InputError, match=r"examined\.json: it belongs to another run; delete the file"):
        examined_facts(run)
    assert "it belongs to another run; the file is used unchanged" not in capsys.readouterr().err
    examined_facts(RunFolder(run.path, trust_edited=True))
    assert "it belongs to another run; the file is used unchanged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"heads": [1], "words": ["a"], "importance": {"added": {"a": 1}}},
        {"heads": 1, "words": 2, "importance": {"added": {"a": ["b"]}}},
    ],
)
def test_ignores_content_of_another_version(run: RunFolder, content: dict[str, object]) -> None:
    run.write_derived("examined.json", content)
    assert not any(examined_facts(run).values())
    (run.path / "examined.json").unlink()
    assert not any(examined_facts(run).values())
