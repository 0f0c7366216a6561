"""Imported models are calibrated on a text that is given, and their translations have doubts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.convert.exchange import import_model
from regard.errors import InputError
from regard_lab.doubts.calibration import calibrate_doubt
from tests.german import sentences
from tests.marian import write_marian

Command = Callable[..., tuple[int, str, str]]
PAIRS = sentences()[:60]
SOURCES = [source for source, _ in sentences()[100:108]]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    """Return an imported run without text. Its weights are random, so that its answers are long and senseless."""
    pytest.importorskip("transformers")
    pytest.importorskip("sacremoses")
    folder = tmp_path_factory.mktemp("marian")
    theirs = write_marian(folder / "theirs")
    place = import_model(theirs, savepath=folder / "runs", examples=SOURCES[:3], progress=False)
    run = regard.load(place)
    assert isinstance(run, regard.TranslationRun)
    return run


def test_an_imported_model_has_doubts(imported: regard.TranslationRun, tmp_path: Path, command: Command) -> None:
    status, _, err = command("trust", imported.folder)
    assert status == 2 and err == (
        f"regard: run {str(imported.folder)!r} has no validation or test text: give --data SOURCE TARGET\n"
    )
    text = tmp_path / "pairs.tsv"
    text.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    status, out, err = command("trust", imported.folder, "--data", text)
    assert status == 0 and "pairs.tsv" in out, err
    lines = tmp_path / "in.de"
    lines.write_text("".join(f"{source}\n" for source in SOURCES))
    page = tmp_path / "doubts.html"
    status, out, err = command("translate", imported.folder, "--input", lines, "--doubt", "--doubt_file", page)
    assert status == 0 and page.exists() and "saved" in err, err
    assert [len(line.split("\t")) for line in out.splitlines()] == [3] * len(SOURCES)
    assert [line.split("\t")[2] for line in out.splitlines()] == imported.translate(SOURCES)


def test_a_translation_beyond_the_limit_is_cut_and_a_source_is_refused(imported: regard.TranslationRun) -> None:
    calibrate_doubt(imported, PAIRS, show=False)
    source, target = PAIRS[0]
    most = imported.task.longest_target
    long, longer = (" ".join([target] * count) for count in (most, most + 1))
    with pytest.warns(UserWarning):  # few pairs, and a text unlike theirs
        doubts = regard.doubt(imported, [(source, long), (source, longer)])
    assert all(doubt is not None and np.isfinite(doubt.log_odds) for doubt in doubts)
    with pytest.raises(InputError, match="text 0, .* are allowed"):
        regard.doubt(imported, [(" ".join([source] * most), target)])
