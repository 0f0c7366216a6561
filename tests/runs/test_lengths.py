"""Warnings report inputs whose length does not occur in training."""

from collections.abc import Callable
from pathlib import Path

import regard

Command = Callable[..., tuple[int, str, str]]


def test_unseen_lengths_are_reported(trained: regard.AnswerRun) -> None:
    usual, short = "BCCCBAABACCCA", "BCCCB"
    assert trained.attend(usual).note == "" and trained.test(samples=10).note == ""
    note = "all training inputs have 10 letters, this input has 2: expect errors; train with --vary_len"
    assert trained.attend(short).note.startswith(note) and f"Note:       {note}" in str(trained.attend(short))
    assert f"Note: {note}" in str(trained.test(samples=10, sample_len=2))
    assert "all training inputs have 10 letters" in trained.about()["accepts"]


def test_vary_len_has_no_unseen_lengths(tmp_path: Path) -> None:
    run = regard.train("counting", vary_len=True, steps=1, hidden=4, savepath=tmp_path, progress=False)
    assert run.attend("AB_BC").note == "" and run.test(samples=10, sample_len=3).note == ""


def test_longer_sequence_is_reported(tmp_path: Path) -> None:
    run = regard.train("copy", max_len=4, steps=1, hidden=4, savepath=tmp_path, progress=False)
    assert run.attend("ABCD").note == ""
    assert "training used inputs of at most 4 characters, but this input has 6" in run.attend("ABCDEF").note


def test_training_ends_with_a_test_on_unseen_samples(command: Command, tmp_path: Path) -> None:
    status, out, _ = command("train", "copy", "--steps", "2", "--hidden", "4", "--savepath", tmp_path)
    assert status == 0 and "exact match 0.0% of 20 unseen samples" in out, out
