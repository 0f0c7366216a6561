"""`regard align`: one line of links per pair, selection of heads, and refused inputs."""

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.data.word_alignment import parse_moses
from tests.conftest import Command
from tests.german import LINKS, sentences

PAIRS = sentences()[200:]


@pytest.fixture(scope="module")
def own(german: regard.TranslationRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the German run, in which tests may choose heads."""
    folder = tmp_path_factory.mktemp("own") / "translation"
    shutil.copytree(german.folder, folder)
    return folder


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Write the files of source, target and links."""
    files = (tmp_path / "a.de", tmp_path / "a.en", tmp_path / "a.links")
    for file, side in zip(files, (*zip(*PAIRS, strict=True), [LINKS] * len(PAIRS)), strict=True):
        file.write_text("".join(f"{line}\n" for line in side))
    return files


def type_in(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_heads_are_selected_reported_stored_and_used(
    own: Path, texts: tuple[Path, Path, Path], command: Command
) -> None:
    source, target, links = texts
    status, out, err = command("align", own, source, target)
    assert status == 0 and "this run has no chosen alignment heads, so all heads are averaged" in err
    assert len(out.splitlines()) == len(PAIRS)
    status, out, err = command("align", own, source, target, "--links", links)
    assert (status, err) == (0, "")
    for word in ("best head", "set of heads", "all heads", "last layer", "decoder.0.cross 1", "Stored in"):
        assert word in out
    assert max(map(len, out.splitlines()[:-1])) <= 80
    kept = json.loads((own / "alignment.json").read_text())
    assert kept["format"] == "regard-alignment/1" and kept["report"]["found"]["best head"]["error_rate"]
    status, out, err = command("align", own, source, target)
    assert (status, err) == (0, "")
    known, found = parse_moses(LINKS, "here").sure, [parse_moses(line, "there").sure for line in out.splitlines()]
    assert sum(len(each & known) for each in found) > 0.45 * len(known) * len(PAIRS)
    for way in ("head", "set", "all"):
        assert command("align", own, source, target, "--by", way)[0] == 0


def test_stored_selection_is_replaced_with_a_notice(
    own: Path, texts: tuple[Path, Path, Path], command: Command
) -> None:
    source, target, links = texts
    command("align", own, source, target, "--links", links)
    before = (own / "alignment.json").read_text()
    wrong = source.with_name("wrong.links")
    wrong.write_text("0-1 3-3\n" * len(PAIRS))
    asked = ("align", own, source, target, "--links", wrong)
    status, out, _ = command(*asked, "--no-keep")
    assert status == 0 and "Stored in" not in out and (own / "alignment.json").read_text() == before
    status, out, _ = command(*asked)
    assert (
        "These heads replace the earlier choice, decoder.0.cross" in out
        and "--no-keep evaluates without storing" in out
    )
    command("align", own, source, target, "--links", links)


def test_pairs_are_read_from_files_and_standard_input(
    own: Path, texts: tuple[Path, Path, Path], command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, target, _ = texts
    expected = command("align", own, source, target)[1]
    for which in (0, 1):
        type_in(monkeypatch, texts[which].read_bytes())
        files: list[Any] = [source, target]
        files[which] = "-"
        assert command("align", own, *files)[1] == expected
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{one}\t{other}\tmore\n" for one, other in PAIRS))
    assert command("align", own, pairs)[1] == expected
    status, out, _ = command("align", own, source)  # after translating
    assert status == 0 and len(out.splitlines()) == len(PAIRS) and out.count(" ||| ") == len(PAIRS)


def test_json_has_words_links_and_weights(own: Path, texts: tuple[Path, Path, Path], command: Command) -> None:
    source, target, _ = texts
    lines = command("align", own, source, target, "--format", "json")[1].splitlines()
    moses = command("align", own, source, target)[1].splitlines()
    for line, links, pair in zip(lines, moses, PAIRS, strict=True):
        found = json.loads(line)
        assert (found["source"], found["target"]) == (pair[0].split(), pair[1].split())
        assert " ".join(f"{one}-{other}" for one, other in found["links"]) == links
        sums = [sum(row) + rest for row, rest in zip(found["weights"], found["nothing"], strict=True)]
        assert sums == pytest.approx([1] * len(sums), abs=1e-4)


def test_both_directions(own: Path, texts: tuple[Path, Path, Path], command: Command) -> None:
    """A model of two training steps suffices for the opposite direction, because the result does not matter."""
    source, target, links = texts
    sizes: dict[str, Any] = {"vocab_size": 60, "hidden": 16, "heads": 2, "inner": 16}
    turned = (target, source)
    other = regard.train("translation", train=turned, steps=2, **sizes, savepath=own.parent / "other").folder
    status, out, _ = command("align", own, source, target, "--links", links, "--reverse", other)
    assert status == 0
    for how in ("product", "intersection", "union", "grow-diag-final"):
        assert f"both: {how}" in out
        assert command("align", own, source, target, "--reverse", other, "--symmetrise", how)[0] == 0
    command("align", own, source, target, "--links", links)


def test_alignment_is_drawn(own: Path, texts: tuple[Path, Path, Path], command: Command, tmp_path: Path) -> None:
    asked = (own, *texts[:2], "--by", "all")
    status, out, _ = command("align", *asked, "--plot", tmp_path / "drawn.svg")
    assert status == 0 and "Saved" in out and (tmp_path / "drawn.svg").stat().st_size > 1000
    name = "mean of 2 heads"  # whichever library draws it
    assert name in out and f"<!-- {name} -->" in (tmp_path / "drawn.svg").read_text(encoding="utf-8")
    assert command("align", *asked, "--plot", tmp_path / "drawn.html")[0] == 0
    assert f'"names": ["{name}"]' in (tmp_path / "drawn.html").read_text(encoding="utf-8")


def test_links_of_a_task_select_heads(command: Command, translator: regard.PairRun, tmp_path: Path) -> None:
    folder = tmp_path / "dates"
    shutil.copytree(translator.folder, folder)
    status, out, _ = command("align", folder, "--samples", "40")
    assert status == 0 and "the task's own links" in " ".join(out.split())
    assert (folder / "alignment.json").exists()


def test_links_behind_translations(own: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, f"{PAIRS[0][0]}\n\n{PAIRS[1][0]}\n".encode())
    status, out, _ = command("translate", own, "--align", "--n_best", "2")
    assert status == 0
    lines = out.splitlines()
    assert len(lines) == 6 and lines[2:4] == ["", ""]
    for line in lines[:2] + lines[4:]:
        text, links = line.split(" ||| ")
        assert all(j < len(text.split()) and i < 5 for i, j in parse_moses(links, "here").sure)


def test_markup_is_transferred(own: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "<p>Heute singt der <b>alte</b> Hahn.</p>\n<br/>\na < b\n\n"
    type_in(monkeypatch, content.encode())
    status, out, err = command("translate", own, "--tags")
    lines = out.splitlines()
    assert status == 0 and len(lines) == 4
    assert lines[0].startswith("<p>") and lines[0].count("<b>") == lines[0].count("</b>") == 1
    assert "old</b>" in lines[0] and lines[0].endswith("</p>")
    assert (lines[1], lines[3]) == ("<br/>", "")
    assert "<" not in lines[2]
    assert "line 3: markup is not well-formed: '< b' is not a tag; write &lt;; the line is read as text" in err
    assert command("translate", own, "<b>Heute</b> singt", "--tags")[1].count("<b>") == 1


def test_links_of_every_pair_are_needed(german: regard.TranslationRun) -> None:
    with pytest.raises(regard.InputError, match="links for 2 pairs, but there are 1: give links for every pair"):
        german.choose_alignment(PAIRS[:1], [regard.WordAlignment.of([])] * 2)


def test_selection_of_an_earlier_step_is_ignored(own: Path, texts: tuple[Path, Path, Path], command: Command) -> None:
    command("align", own, *texts[:2], "--links", texts[2])
    run = regard.load_translator(str(own))
    assert run.kept_heads() is not None
    kept = json.loads((own / "alignment.json").read_text())
    (own / "alignment.json").write_text(json.dumps(kept | {"step": 1}))
    with pytest.raises(
        regard.InputError, match=r"alignment\.json: the file has changed since it was written; delete it"
    ):
        run.kept_heads()
    run.files.write_derived("alignment.json", {**kept, "step": 1})
    assert run.kept_heads() is None
    (own / "alignment.json").write_text("{")
    with pytest.raises(regard.InputError, match="is damaged.*delete it, and choose heads again"):
        run.kept_heads()
    (own / "alignment.json").write_text(json.dumps(kept))


def test_silver_links(own: Path, texts: tuple[Path, Path, Path], command: Command) -> None:
    source, target, links = texts
    try:
        import eflomal
    except ImportError:
        status, _, err = command("align", own, source, target, "--silver")
        assert (
            "aligning with eflomal" not in err
            and status != 0
            and "silver links need eflomal: pip install 'regard[align]', or give --links" in err
        )
        return
    del eflomal
    status, out, _ = command("align", own, source, target, "--silver", "--links", links)
    assert status == 0 and "eflomal" in out
