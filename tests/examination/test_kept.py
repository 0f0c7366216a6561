"""What an examination found, read again."""

import os
from pathlib import Path

import pytest

import regard
from regard.examination import examined_in
from regard.examination.importance import worth_by_layer


def test_each_heads_own_sentence(trained: regard.AnswerRun, tmp_path: Path) -> None:
    found = trained.examine(samples=4)
    (tmp_path / "model.safetensors").touch()
    found.save(tmp_path / "examined.json")
    kept = examined_in(tmp_path)
    assert kept.sentences == {"cross": [each.sentence() for each in found.heads]}
    assert kept.worth == worth_by_layer(found.importance)
    assert kept.roles == ({} if found.roles is None else found.roles.by_layer())
    os.utime(tmp_path / "model.safetensors", (2e9, 2e9))  # it was trained further
    assert not any(examined_in(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"heads": [1], "words": ["a"], "importance": {"added": {"a": 1}}}',
        '{"heads": 1, "words": 2, "importance": {"added": {"a": ["b"]}}}',
        "[" * 10**5,
    ],
)
def test_what_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "examined.json").write_text(text)
    assert not any(examined_in(tmp_path))
    assert not any(examined_in(tmp_path / "elsewhere"))
