"""`regard test`."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

import regard

Command = Callable[..., tuple[int, str, str]]


def test_a_run_is_found_by_its_task_or_its_folder(command: Command, trained: regard.AnswerRun) -> None:
    by_task = command("test", "signal2", "--savepath", trained.folder.parent, "--samples", "50")
    by_folder = command("test", trained.folder, "--samples", "50")
    assert by_task[0] == 0 and by_task == by_folder


def test_report_equals_that_of_the_run(command: Command, trained: regard.AnswerRun) -> None:
    _, out, _ = command("test", trained.folder, "--samples", "500", "--seed", "3", "--sample_len", "4")
    report = trained.test(samples=500, seed=3, sample_len=4)
    assert str(report) in out
    assert f"Exact match: {report.exact_match:.2%} of 500 fresh samples of 4 letters" in out
    assert str(trained.attend(seed=3, sample_len=4)) in out
    assert len(trained.attend(seed=3, sample_len=4).input) == 7


def test_the_report_can_be_read_by_other_programs(
    command: Command, trained: regard.AnswerRun, german: regard.TranslationRun, tmp_path: Path
) -> None:
    status, _, err = command("test", trained.folder, "--samples", "50", "--json", tmp_path / "letters.json")
    assert status == 0, err
    assert json.loads((tmp_path / "letters.json").read_text()) == asdict(trained.test(samples=50))
    status, _, err = command("test", german.folder, "--json", tmp_path / "german.json")
    assert status == 0, err
    found, report = json.loads((tmp_path / "german.json").read_text()), german.test()
    assert found["quality"] == asdict(report.quality) and found["translations"] == report.translations


def test_the_signal_can_be_fixed(command: Command, trained: regard.AnswerRun) -> None:
    _, out, _ = command("test", trained.folder, "--samples", "5", "--signal", "CAB")
    assert "Input:      'CAB" in out


@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<?xml"), ("a.html", b"<!doctype")])
def test_plot_writes_to_the_given_path(
    command: Command, trained: regard.AnswerRun, tmp_path: Path, name: str, start: bytes
) -> None:
    status, out, err = command("test", trained.folder, "--samples", "5", "--plot", tmp_path / name)
    assert status == 0, err
    assert f"Saved {tmp_path / name}" in out
    assert (tmp_path / name).read_bytes().startswith(start)


def test_plot_opens_only_with_a_display(
    command: Command, trained: regard.AnswerRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import webbrowser

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    plot = ("test", trained.folder, "--samples", "5", "--plot", tmp_path / "a.png")
    monkeypatch.setenv("DISPLAY", ":0")
    command(*plot)
    assert opened == []  # a pipe
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    command(*plot)
    assert opened == [(tmp_path / "a.png").as_uri()]
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    command(*plot)
    assert len(opened) == 1


def test_flags_of_the_training_are_accepted(command: Command, trained: regard.AnswerRun) -> None:
    plain = command("test", trained.folder, "--samples", "5")
    assert plain[0] == 0
    for again in (["--multihead=True"], ["--heads", "2", "--hidden=8"], ["--model", "query"]):
        assert command("test", trained.folder, *again, "--samples", "5") == plain


def test_help(command: Command) -> None:
    for argv in (["--help"], ["counting", "--help"]):
        status, out, _ = command("test", *argv)
        assert status == 0
        assert all(flag in out for flag in ("--input", "--sample_len", "--signal", "--plot", "--savepath"))
    status, out, _ = command("test", "translation", "--help")
    assert status == 0 and "--length_penalty" in out and "--data" in out


def test_a_run_from_sequence_to_sequence(command: Command, translator: regard.PairRun) -> None:
    status, out, _ = command("test", translator.folder, "--samples", "50", "--seed", "2", "--input", "3. Mai 1979")
    assert status == 0
    assert str(translator.test(samples=50, seed=2)) in out
    assert str(translator.attend("3. Mai 1979")) in out and "</s>" in out
