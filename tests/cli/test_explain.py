"""`regard explain --why` prints the parts of a score, and refuses what cannot be split in one line."""

import json
from pathlib import Path

import pytest

import regard
from regard.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a hardly trained run with two layers."""
    run = regard.train(
        "induction", hidden=16, heads=2, steps=3, savepath=tmp_path_factory.mktemp("runs"), progress=False
    )
    return run.folder


def test_parts_and_tree_are_printed(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "why.json"
    layer = "decoder.1.self_attention"
    main(["explain", str(folder), "--why", "--layer", layer, "--output", "5", "--depth", "3", "--json", str(file)])
    said = " ".join(capsys.readouterr().out.split())
    numbers = json.loads(file.read_text(encoding="utf-8"))
    run = regard.load(folder)
    expected = regard.why(run, numbers["input"], layer=layer, output=5)
    assert f"has score {expected.score:.4f}" in said and "Written into the query" in said
    assert f"{expected.query_parts[0].value:+.4f}" in said
    assert numbers["trace"] == json.loads(json.dumps(expected.trace(depth=3).json()["root"]))
    assert "Followed backwards" in said and "the scales of norms" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--temperature", "2"], "temperature divides scores"), (["--depth", "0"], "depth 0 is out of range")],
)
def test_what_cannot_be_split_is_one_line(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(folder), "--why", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
