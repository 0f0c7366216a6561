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
    status, _, err = command("test", trained.folder, "--samples", "5", "--json", tmp_path / "no" / "where.json")
    assert status == 2 and err.count("\n") == 1


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


BAD = {
    "letter": (["--input", "ABCX"], "letter 'X' at step 3 is not in the vocabulary: use A, B, C"),
    "too long": (["--input", "A" * 14], "has 14 steps: signal2 takes 3 signals and 1 to 10 letters"),
    "too short": (["--input", "ABC"], "has 3 steps: signal2 takes 3 signals and 1 to 10 letters"),
    "length": (["--sample_len", "11"], "sample_len 11 is out of range: choose from 1 to 10"),
    "signal": (["--signal", "Q"], "letter 'Q' at step 0 is not in the vocabulary"),
    "samples": (["--samples", "0"], "samples 0 is out of range"),
    "ending": (["--plot", "a.doc"], "plot 'a.doc' has no known extension: choose one of .png"),
    "nowhere": (["--plot", "/nowhere/at/all.png"], "cannot write '/nowhere/at/all.png': No such file"),
    "its own": (
        ["--multihead=False"],
        "was trained with multihead True, not False: train another run with False",
    ),
    "its size": (["--heads", "4"], "was trained with heads 2, not 4: train another"),
    "its size, impossible": (["--heads", "3"], "was trained with heads 2, not 3: train another"),
    "its width, impossible": (["--hidden=7"], "was trained with hidden 8, not 7: train another"),
    "its model": (["--model", "pooling"], "was trained with model query, not pooling"),
    "flag": (["--sampels", "3"], "Unrecognized options: --sampels, 3"),
}


@pytest.mark.parametrize(("argv", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_status_2(
    command: Command, trained: regard.AnswerRun, argv: list[str], message: str
) -> None:
    status, _, err = command("test", trained.folder, "--samples", "5", *argv)
    assert status == 2
    assert message in err and err.startswith("regard: ") and err.count("\n") == 1


def test_flags_of_the_training_are_accepted(command: Command, trained: regard.AnswerRun) -> None:
    plain = command("test", trained.folder, "--samples", "5")
    assert plain[0] == 0
    for again in (["--multihead=True"], ["--heads", "2", "--hidden=8"], ["--model", "query"]):
        assert command("test", trained.folder, *again, "--samples", "5") == plain


def test_missing_run_is_refused(command: Command, tmp_path: Path) -> None:
    status, _, err = command("test", "counting", "--savepath", tmp_path)
    assert status == 2
    assert err == (
        f"regard: no run 'counting' in '{tmp_path}': train the run with `regard train`, or give its --savepath\n"
    )


def test_help(command: Command) -> None:
    for argv in (["--help"], ["counting", "--help"]):
        status, out, _ = command("test", *argv)
        assert status == 0
        assert all(flag in out for flag in ("--input", "--sample_len", "--signal", "--plot", "--savepath"))
    status, out, _ = command("test", "translation", "--help")
    assert status == 0 and "--length_penalty" in out and "--data" in out


def test_a_run_from_sequence_to_sequence(command: Command, translator: regard.PairRun) -> None:
    status, out, _ = command(
        "test", translator.folder, "--samples", "50", "--seed", "2", "--input", "3. Mai 1979"
    )
    assert status == 0
    assert str(translator.test(samples=50, seed=2)) in out
    assert str(translator.attend("3. Mai 1979")) in out and "</s>" in out
    status, out, err = command("test", translator.folder, "--signal", "A")
    assert (status, out) == (2, "") and "dates has no signals" in err
