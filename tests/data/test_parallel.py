"""Parallel text on disk: accepted, skipped and refused lines."""

import gzip
from pathlib import Path

import pytest

from regard.data import parallel
from regard.data.parallel import PairCounts, ParallelText
from regard.errors import InputError

SOURCE = b"eins\n\nzwei drei\n\xff\nf\xc3\xbcnf\r\n\xe2\x80\xa8sechs\x0b\n"
TARGET = b"one\ntwo\ntwo three\nfour\nfive\nsix\nseven\n"


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_unusable_pairs_are_skipped_and_counted(tmp_path: Path, ending: str) -> None:
    text = ParallelText([write(tmp_path, f"a{ending}", SOURCE), write(tmp_path, f"b{ending}", TARGET)], lenient=True)
    # Only a line feed ends a line. A line separator or a vertical tab in a line does not shift later lines.
    pairs = [("eins", "one"), ("zwei drei", "two three"), ("fünf", "five"), ("sechs", "six")]
    assert list(text) == pairs
    assert text.counts == PairCounts(pairs=4, empty=1, not_utf8=1, without_partner=1)
    assert str(text.counts) == ("4 pairs; left out: 1 with an empty side, 1 not UTF-8, 1 without a partner")
    assert list(text) == pairs and text.counts.pairs == 4  # counts are reset for each iteration


def test_tab_separated_pairs(tmp_path: Path) -> None:
    content = "\ufeffeins\tone\nzwei\ndrei\tthree\tsomeone's\n\tvier\n".encode()
    text = ParallelText([write(tmp_path, "pairs.tsv", content)])
    assert list(text) == [("eins", "one"), ("drei", "three")]
    assert text.counts == PairCounts(pairs=2, empty=1, without_partner=1)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"a\n\nb\n", b"a\nb\nc\n", "line 2 of .* is with an empty side"),
        (b"a\n\xff\n", b"a\nb\n", "line 2 of '[^' ]*' is not UTF-8"),
        (b"a\nb\n", b"a\n", "line 2 of '[^' ]*' is without a partner"),
    ],
)
def test_strict_refuses_the_first_skipped_pair(tmp_path: Path, source: bytes, target: bytes, message: str) -> None:
    text = ParallelText([write(tmp_path, "a", source), write(tmp_path, "b", target)], strict=True)
    with pytest.raises(InputError, match=message):
        list(text)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="file .*nowhere' does not exist"):
        ParallelText([tmp_path / "nowhere", tmp_path])
    with pytest.raises(InputError, match="3 files of parallel text"):
        ParallelText([tmp_path] * 3)
    whole = gzip.compress(SOURCE * 1000)
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot read .*cut.gz"):
        list(ParallelText([tmp_path / "cut.gz"]))
    (tmp_path / "plain.gz").write_bytes(b"not compressed")
    with pytest.raises(InputError, match="cannot read .*plain.gz.*it is not gzip"):
        list(ParallelText([tmp_path / "plain.gz"]))


def test_a_file_that_expands_like_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of gzip can be a gigabyte of zeros."""
    monkeypatch.setattr(parallel, "FREE_EXPANSION", 1 << 16)
    zeros, repeated, text = (tmp_path / f"{name}.gz" for name in ("zeros", "repeated", "text"))
    zeros.write_bytes(gzip.compress(bytes(10**7)))
    repeated.write_bytes(gzip.compress(b"Ein Hund.\n" * 10**6))
    text.write_bytes(gzip.compress("".join(f"Satz {number}\n" for number in range(10**5)).encode()))
    for path in (zeros, repeated):
        with pytest.raises(InputError, match="it expands to more than 100 times its size"):
            parallel.file_digest(path)
    assert parallel.file_digest(text).lines == 10**5
