"""Every command refuses files that are not UTF-8, have zero bytes, or other numbers of lines."""

import gzip
import subprocess
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import regard
from regard.data import parallel
from regard.data.parallel import ParallelText, check_files, detect_encoding, scan_text
from regard.errors import InputError
from tests.conftest import TINY, Command
from tests.german import LINKS, sentences

TEXT = "".join(f"{source}\n" for source, _ in sentences()[:150])
ENCODED = {
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-16, big": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "UTF-16LE": TEXT.encode("utf-16-le"),
    "UTF-16BE": TEXT.encode("utf-16-be"),
    "UTF-32": TEXT.encode("utf-32"),
    "UTF-32BE": TEXT.encode("utf-32-be"),
}


@pytest.mark.parametrize("name", ENCODED)
def test_an_encoding_is_detected_and_the_suggested_command_works(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a file.de"
    path.write_bytes(ENCODED[name])
    expected = name.partition(",")[0]
    with pytest.raises(InputError, match=f"{expected}, not UTF-8: .* lines, the first is line 1; convert it") as error:
        check_files([path])
    command = str(error.value).partition("convert it (")[2].partition(")")[0]
    subprocess.run(command.replace("NEW", "new"), shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "new").read_text(encoding="utf-8-sig") == TEXT
    check_files([tmp_path / "new"])


def test_a_byte_order_mark_of_utf8_and_gzip_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_bytes(TEXT.encode("utf-8-sig"))
    (tmp_path / "b.de.gz").write_bytes(gzip.compress(TEXT.encode()))
    check_files([tmp_path / "a.de", tmp_path / "b.de.gz"])
    (tmp_path / "b.de.gz").write_bytes(gzip.compress(TEXT.encode("utf-16")))
    with pytest.raises(InputError, match=r"b.de.gz' is UTF-16.*\(gunzip -c .*b.de.gz \| iconv -f UTF-16"):
        check_files([tmp_path / "b.de.gz"])


@pytest.mark.parametrize(("bad", "refused"), [(1, False), (2, False), (3, True)])
def test_more_than_one_percent_of_broken_lines_is_refused(tmp_path: Path, bad: int, refused: bool) -> None:
    lines = ["gr\u00fcn\n".encode("latin-1")] * bad + [b"ja\n"] * (200 - bad)
    path = tmp_path / "a.de"
    path.write_bytes(b"".join(reversed(lines)))
    if not refused:
        check_files([path])
        return
    with pytest.raises(InputError, match="is not UTF-8: 3 of 200 lines, the first is line 198; if it is Latin-1"):
        check_files([path])


def test_zero_bytes_and_unequal_lengths(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.write_bytes(b"a\n" * 300 + b"b\0c\n")
    other.write_bytes(b"a\n" * 300)
    with pytest.raises(InputError, match=r"has zero bytes: 1 of 301 lines, the first is line 301; remove them \(tr"):
        check_files([one])
    one.write_bytes(b"a\n" * 301)
    with pytest.raises(InputError, match="a' has 301 lines and .*b' has 300 lines: line 301 has no counterpart"):
        check_files([one, other])
    assert len(list(ParallelText([one, other], lenient=True))) == 300


@given(st.lists(st.sampled_from([b"a", "ü".encode(), b"\xff", b"\0", b"\n", b"\n", b"\r\n", b"x" * 9])))
def test_counts_do_not_depend_on_the_block_size(parts: list[bytes]) -> None:
    content = b"".join(parts)
    whole = scan_text(BytesIO(content))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "SCAN_BLOCK", 16)
        assert scan_text(BytesIO(content))._replace(encoding=None) == whole._replace(encoding=None)
    assert whole.lines == len(list(BytesIO(content)))


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_utf8_is_not_mistaken_for_another_encoding(text: str) -> None:
    assert detect_encoding(text.encode()) is None


FLAGS: dict[str, Any] = {**TINY, "steps": 2, "hidden": 8, "inner": 8, "progress": False}


def broken(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Write intact text and text with each kind of damage."""
    sources, targets = ("".join(f"{each}\n" for each in side) for side in zip(*sentences()[:150], strict=True))
    contents = {
        "whole.de": sources.encode(),
        "whole.en": targets.encode(),
        "wide.de": sources.encode("utf-16"),
        "latin.de": ("ü" + sources.replace("\n", "\nü")[:-1]).encode("latin-1"),
        "zero.de": sources.replace("der", "d\0r").encode(),
        "long.de": sources.encode() + b"Noch einer.\n",
        "links": f"{LINKS}\n".encode("utf-16") * 150,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: (folder / f"{name}.de", folder / "whole.en") for name in ("whole", "wide", "latin", "zero", "long")}


@pytest.mark.parametrize("part", ["train", "valid", "test"])
@pytest.mark.parametrize("how", ["wide", "latin", "zero", "long"])
def test_training_refuses_broken_text(tmp_path: Path, part: str, how: str) -> None:
    text = broken(tmp_path)
    given: Any = {"train": text["whole"], part: text[how]}
    with pytest.raises(InputError, match=f"{how}.de' .*; or skip such lines with --lenient"):
        regard.train("translation", **given, **FLAGS, savepath=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_lenient_accepts_broken_text_for_one_run_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, flags = broken(tmp_path), {**FLAGS, "progress": True}
    regard.train("translation", train=text["long"], **flags, lenient=True, savepath=tmp_path / "runs")
    assert "150 pairs; left out: 1 without a partner" in capsys.readouterr().err
    with pytest.raises(InputError, match="has 151 lines and"):
        regard.train("translation", train=text["long"], **flags, overwrite=True, savepath=tmp_path / "runs")
    with pytest.raises(InputError, match="strict stops at a broken line, but lenient skips"):
        regard.train("translation", train=text["whole"], **FLAGS, strict=True, lenient=True)
    with pytest.raises(InputError, match="links' is UTF-16"):
        regard.train("translation", train=text["whole"], guide=str(tmp_path / "links"), **FLAGS, savepath=tmp_path)


def test_commands_refuse_broken_files_before_they_write(
    german: regard.TranslationRun, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = broken(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_bytes("ein Hund\ta dog\n".encode("utf-16"))
    wide, whole = text["wide"][0], text["whole"]
    for words in (
        ("translate", german.folder, "--input", wide),
        ("translate", german.folder, "--input", text["latin"][0]),
        ("score", german.folder, "--input", "pairs.tsv"),
        ("align", german.folder, wide, whole[1]),
        ("align", german.folder, *text["long"]),
        ("clean", wide, whole[1]),
        ("clean", *text["long"]),
        ("test", german.folder, "--data", *text["latin"], "--output", "out"),
        ("test", german.folder, "--data", *text["long"]),
    ):
        status, out, err = command(*words)
        assert (status, out, err.count("\n")) == (2, "", 1) and "--lenient" in err, (words, err)
    assert not (tmp_path / "cleaned").exists() and not (tmp_path / "out").exists()
    status, out, err = command("translate", german.folder, "--input", text["latin"][0], "--lenient", "--beam", "1")
    assert status == 0 and out.count("\n") == 150 and "line 1 is not UTF-8" in err
    status, out, err = command("align", german.folder, *text["long"], "--lenient")
    assert status == 0 and out.count("\n") == 150 and "TARGET ends before line 151" in err
    status, out, err = command("clean", *text["long"], "--lenient")
    assert status == 0 and "1  without a partner" in out
    status, out, err = command("test", german.folder, "--data", *text["long"], "--lenient", "--beam", "1")
    assert status == 0 and "left out: 1 without a partner" in out
