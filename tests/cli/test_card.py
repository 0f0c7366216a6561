"""`regard card`: tables, files, resuming, a user's own mechanism, and errors."""

import json
from pathlib import Path

import pytest

from regard.cli import main
from regard_lab.cards import cells

OWN = """
from regard.attention.normalizers import Softmax


class Halved(Softmax):
    normalized = False

    def forward(self, scores, mask):
        return super().forward(scores, mask) / 2
"""


def test_card_of_own_mechanism_resumes(
    small_probes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("halved.py").write_text(OWN)
    arguments = ["card", "halved:Halved", "--seeds", "2", "--steps", "2", "--savepath", "cards"]
    assert main([*arguments, "--json", "first.json"]) == 0
    printed = capsys.readouterr().out
    assert "halved:Halved beside softmax" in printed
    assert "absolute weights" in printed
    stored = sorted(path for path in Path("cards").rglob("*.json") if "seed" in path.name)
    assert len(stored) == 2 * 2 * 9  # mechanisms, seeds, probes

    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("a stored result is measured again")

    monkeypatch.setattr(cells, "measure_cell", fail)
    assert main([*arguments, "--json", "second.json"]) == 0
    first, second = (Path(f"{name}.json").read_text() for name in ("first", "second"))
    assert first == second
    card = json.loads(first)
    assert card["mechanism"] == "halved:Halved"
    assert not card["normalized"]
    assert [row["test"] for row in card["rows"]][3:6] == ["copy", "copy x2", "copy x4"]
    assert all(0.45 < shares["total"][0] < 0.55 for shares in card["shares"])
    stored[0].write_text("{")
    assert main(arguments) == 2
    assert "delete it" in capsys.readouterr().err


def test_a_new_process_loads_an_own_mechanism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("halved_too.py").write_text(OWN)
    pair = ("halved_too:Halved", "sort")
    [result] = cells.measure_cells([pair], 1, Path("cards"), steps=2, progress=False)[pair]
    assert not result.normalized and len(list(Path("cards").rglob("sort-seed-0-*.json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name one mechanism"),
        (["sink", "--all"], "name one mechanism"),
        (["sinc"], "attention part 'sinc' is unknown"),
        (["alibi,rotary"], "both for the slot position"),
        (["grouped:3"], "grouped"),
        (["sink", "--seeds", "0"], "seeds"),
    ],
)
def test_errors(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["card", *arguments, "--savepath", str(tmp_path / "cards")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "cards").exists()
