"""Calibration, doubts, and their files, through Python and the command line."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.cli import main
from regard.errors import InputError
from regard.statistics import auroc
from regard_lab.doubts.calibration import FORMAT, calibrate_doubt
from regard_lab.doubts.doubt import Doubter, doubt
from tests.german import sentences, write
from tests.viz.test_report_page import begins_with_picture

Command = Callable[..., tuple[int, str, str]]
PAIRS = [(source[:-1], target[:-1]) for source, target in sentences()[:100]]
"""The training text without full stops, so that no pair is in it."""


@pytest.fixture(scope="module", autouse=True)
def short_fits() -> Iterator[None]:
    """End each fit early: four fifths of a calibration are its twelve fits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard_lab.doubts.calibration.ITERATIONS", 100)
        yield


def copy_run(run: regard.TranslationRun, folder: Path) -> regard.TranslationRun:
    """Return a copy of a run, whose files a test may change."""
    shutil.copytree(run.folder, folder)
    copy = regard.load(folder)
    assert isinstance(copy, regard.TranslationRun)
    return copy


@pytest.fixture(scope="module")
def calibrated(german: regard.TranslationRun, tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    """Return a copy of the run of parallel text, whose doubt is calibrated on the command line."""
    folder = tmp_path_factory.mktemp("calibrated")
    run = copy_run(german, folder / "translation")
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    files = ["--data", str(folder / "pairs.tsv"), "--json", str(folder / "report.json")]
    assert main(["trust", str(run.folder), *files]) == 0
    return run


def test_the_report_judges_each_kind_of_fault(
    german: regard.TranslationRun, calibrated: regard.TranslationRun, tmp_path: Path
) -> None:
    run = copy_run(german, tmp_path / "run")
    report = calibrate_doubt(run, PAIRS, reverse=run, show=False)
    again, first = (json.loads((each.folder / "trust.json").read_text()) for each in (run, calibrated))
    assert again["calibration"]["frequencies"] == first["calibration"]["frequencies"]
    results = {(fault.kind, fault.origin): fault for fault in report.faults}
    assert {kind for kind, _ in results} == {
        *{"detached", "looped", "copied", "foreign", "repeated", "replaced", "target language"},
        *{"unknown language", "random letters", "random words", "misspelled", "shuffled"},
    }
    assert results["copied", "references"].auroc > 0.95
    assert results["looped", "references"].auroc > 0.95
    assert results["detached", "references"].auroc > 0.9
    assert results["random letters", "translations"].auroc > 0.94
    assert "faults omitted, references" in report.left_out  # the sentences have five words
    assert report.features[-1] == "reverse"
    assert "copied" in str(report) and "in text like the calibration text" in str(report)


def test_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    flags = write(tmp_path)
    run = regard.train(
        "translation", **flags, model="recurrent", score="none", steps=2, savepath=tmp_path, progress=False
    )
    assert isinstance(run, regard.TranslationRun)
    with pytest.raises(InputError, match="no attention to its source"):
        calibrate_doubt(run, PAIRS, show=False)


def test_faults_have_more_doubt_and_their_name(calibrated: regard.TranslationRun) -> None:
    source, target = sentences()[270]
    good, loop, copy, blank = Doubter(calibrated).measure(
        [(source, target), (source, "The old old old old dog sings."), (source, source), ("", "a")], "references"
    )
    assert good is not None and loop is not None and copy is not None and blank is None
    assert not good.warned and loop.warned and copy.warned
    assert loop.reason == "looped" and copy.reason == "copied"
    assert "usually" in loop.evidence


@pytest.mark.parametrize("kind", ["digits", "reversed", "capitals", "English", "one word"])
def test_sources_with_faults_that_were_not_planted_have_more_doubt(
    calibrated: regard.TranslationRun, kind: str
) -> None:
    sources = [source for source, _ in PAIRS]
    faulty = {
        "digits": ["".join(str(ord(letter) % 10) if letter != " " else " " for letter in text) for text in sources],
        "reversed": [text[::-1] for text in sources],
        "capitals": [text.upper() for text in sources],
        "English": [target for _, target in PAIRS],
        "one word": [" ".join([text.split()[0]] * 5) for text in sources],
    }[kind]
    good_pairs, faulty_pairs = (
        list(zip(texts, calibrated.translate(texts), strict=True)) for texts in (sources, faulty)
    )
    doubts = Doubter(calibrated).measure([*faulty_pairs, *good_pairs])
    surprises = [-score.per_token for score in calibrated.score([*faulty_pairs, *good_pairs])]
    truth = np.arange(len(doubts)) < len(faulty)
    own, alone = (
        auroc(np.array([doubt.log_odds for doubt in doubts if doubt]), truth),
        auroc(np.array(surprises), truth),
    )
    assert own is not None and alone is not None and own >= max(alone - 0.02, 0.9), (own, alone)


def test_too_few_pairs_and_an_uncalibrated_run_are_refused(german: regard.TranslationRun) -> None:
    for pairs, message in (
        (PAIRS[:49], "at least 50"),
        ([(source, source) for source, _ in PAIRS], "equals the source"),
    ):
        with pytest.raises(InputError, match=message):
            calibrate_doubt(german, pairs, show=False)
    with pytest.raises(InputError, match="regard trust"):
        doubt(german, PAIRS)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"format": "regard-trust/2", "step": 1, "kinds": []}, "another version of Regard"),
        ({"step": 1, "kinds": []}, "another version of Regard"),
        ({"format": FORMAT, "calibration": {"step": 300}}, "is damaged"),
        (None, "trust.json"),
    ],
)
def test_a_calibration_that_cannot_be_used_is_one_line(
    calibrated: regard.TranslationRun, tmp_path: Path, command: Command, stored: Any, message: str
) -> None:
    shutil.copytree(calibrated.folder, tmp_path / "run")
    if stored is None:
        (tmp_path / "run" / "trust.json").write_text("{")
    else:
        regard.load(tmp_path / "run").files.write_derived("trust.json", stored)
    status, out, err = command("translate", tmp_path / "run", "Heute singt der alte Wolf.", "--doubt")
    assert (status, out, err.count("\n")) == (2, "", 1) and message in err


def test_few_pairs_and_unlike_text_are_said(
    calibrated: regard.TranslationRun, tmp_path: Path, command: Command
) -> None:
    sources = [source for source, _ in PAIRS]
    with pytest.warns(UserWarning, match="few pairs"):
        doubt(calibrated, list(zip(sources, calibrated.translate(sources), strict=True)))
    (tmp_path / "like.de").write_text("".join(f"{source}\n" for source in sources))
    (tmp_path / "unlike.de").write_text("".join(f"{source[::-1]}\n" for source in sources))
    for name in ("like", "unlike"):
        files = ["--input", tmp_path / f"{name}.de", "--doubt_file", tmp_path / f"{name}.json"]
        status, _, err = command("translate", calibrated.folder, *files)
        assert status == 0 and ("this text is unlike pairs.tsv" in err) == (name == "unlike"), err
        assert "false alarms: 1.0% of good translations in text like pairs.tsv (100 pairs: 0.0% to" in err
        notes = json.loads((tmp_path / f"{name}.json").read_text())["notes"]
        assert len(notes) == {"like": 2, "unlike": 3}[name] and "on few pairs (100)" in notes[1]


def test_the_command_line(calibrated: regard.TranslationRun, tmp_path: Path, command: Command) -> None:
    sources = [source for source, _ in PAIRS]
    assert json.loads((calibrated.folder.parent / "report.json").read_text())["pairs"] == 100
    (tmp_path / "in.txt").write_text("\n".join([*sources[:3], "", sources[3]]) + "\n")
    words = ("translate", calibrated.folder, "--input", tmp_path / "in.txt", "--doubt", "--doubt_file")
    for name in ("d.html", "d.json", "d.tsv"):
        status, out, err = command(*words, tmp_path / name)
        assert status == 0, err
        lines = out.splitlines()
        assert len(lines) == 5 and lines[3] == ""
        assert all(len(line.split("\t")) == 3 for line in lines if line)
        assert "translations with a warning: " in err and " of 4\n" in err and "text like pairs.tsv" in err
    content = json.loads((tmp_path / "d.json").read_text())
    assert content["lines"][3] is None and len(content["lines"]) == 5
    warned = [line["warned"] for line in content["lines"] if line]
    assert not all(warned), warned
    assert [bool(line["reason"]) for line in content["lines"] if line] == warned
    rows = (tmp_path / "d.tsv").read_text().splitlines()
    assert len(rows) == 6 and rows[4].startswith("4\t\t")
    assert [cells[3] != "" for row in rows[1:] if len(cells := row.split("\t")) and cells[1]] == warned
    page = (tmp_path / "d.html").read_text()
    assert begins_with_picture(page) and sources[0] in page and "d-attention.html#map=0" in page
    assert (tmp_path / "d-attention.html").exists()


def test_a_run_that_generates_its_pairs_is_calibrated(
    translator: regard.PairRun, tmp_path: Path, command: Command
) -> None:
    shutil.copytree(translator.folder, tmp_path / "run")
    status, out, err = command("trust", tmp_path / "run", "--samples", "60")
    assert status == 0 and "detached" in out and "Stored in" in out, err
    run = regard.load(tmp_path / "run")
    assert isinstance(run, regard.PairRun)
    detached, good = Doubter(run).measure([("3. Mai 1979", "2024-11-30"), ("3. Mai 1979", "1979-05-03")], "references")
    assert detached is not None and good is not None and detached.log_odds > good.log_odds


def test_pairs_beyond_samples_are_named(
    german: regard.TranslationRun, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = list[int]()

    def stop(_: object, pairs: list[tuple[str, str]], **options: object) -> None:
        counts.append(len(pairs))
        raise InputError("stop")

    monkeypatch.setattr("regard_lab.cli.trust.calibrate_doubt", stop)
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    for samples, words in ((60, "only the first 60 pairs of pairs.tsv are used"), (len(PAIRS), "")):
        _, _, err = command("trust", german.folder, "--data", tmp_path / "pairs.tsv", "--samples", samples)
        assert words in err and counts[-1] == samples and ("only" in err) == bool(words)


def test_few_pairs_have_an_uncertain_threshold(calibrated: regard.TranslationRun) -> None:
    report = Doubter(calibrated).calibration.report
    assert "few pairs (100)" in str(report) and "uncertain" in str(report)
    assert "1.0% of good translations in text like pairs.tsv" in str(report)
    assert "few pairs" not in str(dataclasses.replace(report, false_alarms=0.05))
