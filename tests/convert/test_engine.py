"""Selection of the search engine, and the converted model that is stored with a run."""

import errno
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.convert.certificate import read_certificate
from regard.errors import InputError, MachineError
from tests.conftest import Command
from tests.german import sentences

pytest.importorskip("ctranslate2")
SOURCES = [source for source, _ in sentences()[:30]]


@pytest.fixture
def run(german: regard.TranslationRun, tmp_path: Path) -> regard.TranslationRun:
    """Return a copy of the run without converted models."""
    shutil.copytree(german.folder, tmp_path / "translation", ignore=shutil.ignore_patterns("engines"))
    return loaded(tmp_path)


def loaded(folder: Path) -> regard.TranslationRun:
    found = regard.load(folder / "translation")
    assert isinstance(found, regard.TranslationRun)
    return found


def kept(run: regard.TranslationRun) -> list[Path]:
    return sorted((run.folder / "engines").iterdir())


def translate(run: regard.TranslationRun, **options: Any) -> list[str]:
    return run.translate(SOURCES, **{"engine": "ctranslate2", **options})


def test_a_model_is_converted_once(
    run: regard.TranslationRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert translate(run) == run.translate(SOURCES)
    [place] = kept(run)
    assert capsys.readouterr().err == f"regard: converting the model once for CTranslate2, to {str(place)!r}\n"
    assert read_certificate(place).log_probabilities < 1e-4
    monkeypatch.setattr("regard.convert.ctranslate2.write_ctranslate2", None)
    assert translate(run) == translate(loaded(run.folder.parent)) == run.translate(SOURCES)
    assert kept(run) == [place] and capsys.readouterr().err == ""


def test_changed_parameters_are_converted_again(run: regard.TranslationRun) -> None:
    translate(run)
    before = kept(run)
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.add_(0.02)
    assert translate(run) == run.translate(SOURCES)
    assert len(kept(run)) == 1 and kept(run) != before
    assert translate(loaded(run.folder.parent)) == loaded(run.folder.parent).translate(SOURCES)
    assert kept(run) == before


def test_damaged_conversion_is_replaced(run: regard.TranslationRun) -> None:
    translate(run)
    [place] = kept(run)
    (place / "model.bin").write_bytes((place / "model.bin").read_bytes()[:1000])
    assert translate(loaded(run.folder.parent)) == run.translate(SOURCES)
    (place / "model.bin").unlink()
    assert translate(loaded(run.folder.parent)) == run.translate(SOURCES)
    assert kept(run) == [place] and (place / "model.bin").stat().st_size > 1000


def test_edited_conversion_is_replaced(run: regard.TranslationRun, capsys: pytest.CaptureFixture[str]) -> None:
    translate(run)
    [place] = kept(run)
    content = (place / "model.bin").read_bytes()
    middle = len(content) // 2
    (place / "model.bin").write_bytes(content[:middle] + b"\x3f" * 400 + content[middle + 400 :])
    capsys.readouterr()
    assert translate(loaded(run.folder.parent)) == run.translate(SOURCES)
    assert "does not match its certificate and is converted again" in capsys.readouterr().err
    assert (place / "model.bin").read_bytes() == content


def test_an_interrupted_conversion_leaves_nothing(run: regard.TranslationRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("regard.convert.exchange.write_certificate", interrupt)
        with pytest.raises(KeyboardInterrupt):
            translate(run)
    assert kept(run) == []
    assert translate(run) == run.translate(SOURCES) and len(kept(run)) == 1


def test_conversion_that_cannot_be_stored_is_used(
    run: regard.TranslationRun, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.folder / "engines").write_bytes(b"")
    assert translate(run) == run.translate(SOURCES)
    err = capsys.readouterr().err
    assert "without storing it: cannot write" in err and err.count("\n") == 1
    assert (run.folder / "engines").read_bytes() == b""


def test_auto_answers_on_a_full_disk(
    run: regard.TranslationRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("regard.convert.ctranslate2.write_ctranslate2", full)
    with pytest.raises(MachineError, match="cannot write .*: No space left on device"):
        translate(run)
    assert translate(run, engine="auto") == run.translate(SOURCES) and kept(run) == []
    assert "using Regard's own search, because cannot write" in capsys.readouterr().err


def test_auto_uses_ctranslate2_and_reports_it(run: regard.TranslationRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert translate(run, engine="auto") == translate(run, engine="auto") == run.translate(SOURCES)
    converted, taken = capsys.readouterr().err.splitlines()
    assert "converting the model" in converted
    assert taken.startswith("regard: using CTranslate2 ") and taken.endswith(
        "in float32 (--engine regard for Regard's own search)"
    )


def test_auto_is_silent_without_a_choice(
    run: regard.TranslationRun,
    translator: regard.PairRun,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert translator.translate(["3. Mai"], engine="auto") == translator.translate(["3. Mai"])
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert translate(run, engine="auto") == run.translate(SOURCES)
    assert capsys.readouterr().err == "" and not (run.folder / "engines").exists()


def test_auto_uses_regards_search_for_unsupported_options(
    run: regard.TranslationRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = run.search(SOURCES, temperature=1.0, seed=3)
    assert run.search(SOURCES, temperature=1.0, seed=3, engine="auto") == drawn
    assert capsys.readouterr().err == (
        "regard: using Regard's own search, because temperature 1 samples with Regard's seeds, which "
        "CTranslate2 does not support\n"
    )
    with regard.record(run.model) as records:
        translate(run, engine="auto", beam=1)
    assert records and "layers are being recorded" in capsys.readouterr().err
    with regard.intervene(run, run.layers[0].name, heads=[0, 1]):
        assert translate(run, engine="auto", beam=1) == run.translate(SOURCES, beam=1)
    from regard.convert import ctranslate2

    right = ctranslate2._array
    monkeypatch.setattr(ctranslate2, "_array", lambda tensor: right(tensor) * 1.01)
    assert translate(run, engine="auto") == run.translate(SOURCES)
    assert "using Regard's own search, because log-probabilities differ by" in capsys.readouterr().err
    assert kept(run) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "marian"}, "engine 'marian' is unknown: choose auto, regard, ctranslate2"),
        ({"engine": "ctranslate2", "precision": "int4"}, "precision 'int4' is unknown"),
        ({"engine": "auto", "precision": "int8", "temperature": 1.0}, "temperature 1 samples"),
    ],
)
def test_invalid_engines_are_refused(run: regard.TranslationRun, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        run.search(SOURCES, **options)
    assert "\n" not in str(error.value) and not (run.folder / "engines").exists()


def test_a_missing_extra_and_another_model_are_refused(
    run: regard.TranslationRun, translator: regard.PairRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="is not a Transformer for translation: CTranslate2 cannot run it"):
        translator.translate(["3. Mai"], engine="ctranslate2")
    with regard.record(run.model), pytest.raises(InputError, match="layers are being recorded"):
        translate(run)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    for options in ({"engine": "ctranslate2"}, {"engine": "auto", "precision": "int8"}):
        with pytest.raises(InputError, match=r"pip install 'regard\[export\]'"):
            translate(run, **options)


def test_int8_gives_nearly_the_same_translations(run: regard.TranslationRun) -> None:
    import ctranslate2

    if "int8" not in ctranslate2.get_supported_compute_types("cpu"):
        pytest.skip("this processor multiplies no int8")
    here = run.search(SOURCES, beam=1, engine="ctranslate2")
    there = run.search(SOURCES, beam=1, engine="ctranslate2", precision="int8")
    same = [one[0].text == other[0].text for one, other in zip(here, there, strict=True)]
    assert sum(same) > 20
    assert [each[0].score for each in here] != [each[0].score for each in there]
    assert len(kept(run)) == 1


def test_on_the_command_line(run: regard.TranslationRun, command: Command, tmp_path: Path) -> None:
    lines = [*SOURCES[:5], "", "Morgen läuft ☃.", "x " * 5000, SOURCES[6]]
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    argv = ("translate", run.folder, "--input", tmp_path / "lines")
    for more in ((), ("--beam", "1"), ("--n_best", "2", "--batchsize", "2")):
        ours = command(*argv, *more, "--engine", "regard")
        assert ours[0] == 0 and command(*argv, *more, "--engine", "auto")[1] == ours[1]
        assert command(*argv, *more, "--engine", "ctranslate2") == ours  # the model is converted by now
    status, out, err = command("translate", run.folder, SOURCES[0], "--scores")
    assert status == 0 and err.startswith("regard: using CTranslate2 ") and err.count("\n") == 1
    assert float(out.split("\t")[0]) == pytest.approx(run.search(SOURCES[:1])[0][0].log_probability, abs=2e-4)


def test_plots_use_regards_search(run: regard.TranslationRun, command: Command, tmp_path: Path) -> None:
    picture = ("--plot", tmp_path / "a.html")
    status, _, err = command("translate", run.folder, SOURCES[0], *picture)
    assert status == 0 and err == "regard: using the engine regard, because --plot needs attention weights\n"
    status, out, err = command("translate", run.folder, SOURCES[0], *picture, "--engine", "ctranslate2")
    assert (status, out) == (2, "") and "--plot needs the engine regard" in err and err.count("\n") == 1
    assert not (run.folder / "engines").exists()
