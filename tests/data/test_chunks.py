"""Chunks of a text contain the pairs of the text."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.data import corpus
from regard.data.corpus import PairChunk, read_chunks
from regard.data.parallel import PairCounts, PairSource, ParallelText
from regard.errors import InputError
from tests.data.pair_list import PairList

LINE = st.sampled_from(
    [b"ein Hund", b"", b"  blank \r", b"\xff", b"\xef\xbb\xbfmark", b"a\tb", b"a\tb\t\xff", b"\t", b"x\x0by"]
)
FILE = st.tuples(st.lists(LINE, max_size=12), st.booleans()).map(
    lambda found: b"\n".join(found[0]) + (b"\n" if found[1] and found[0] else b"")
)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "LINES", 3)


def read(text: PairSource) -> tuple[list[tuple[str, str]], PairCounts]:
    found = [each.read() for each in read_chunks(text)]
    pairs = [pair for each in found for pair in zip(each.sources, each.targets, strict=True)]
    return pairs, sum((each.counts for each in found), PairCounts())


@given(files=st.lists(FILE, min_size=1, max_size=2), packed=st.booleans())
def test_chunks_contain_the_pairs_of_a_text_with_equal_counts(
    tmp_path_factory: pytest.TempPathFactory, files: list[bytes], packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("text")
    paths = [folder / f"{number}{'.gz' if packed else ''}" for number in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        path.write_bytes(gzip.compress(content) if packed else content)
    text = ParallelText(paths, lenient=True)
    expected = list(text)
    assert read(text) == (expected, text.counts)
    if not packed:
        assert sum(chunk.size for chunk in read_chunks(text)) == text.bytes


def test_the_first_lines_of_a_chunk(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"a{number}\tb{number}\n" for number in range(8)))
    first = [each.read(2).sources for each in read_chunks(ParallelText([file]))]
    assert first == [["a0", "a1"], ["a3", "a4"], ["a6", "a7"]]
    packed = tmp_path / "pairs.tsv.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert [each.read(2).sources for each in read_chunks(ParallelText([packed]))] == first
    pairs = PairList([(f"a{number}", f"b{number}") for number in range(8)])
    assert [each.read(2).sources for each in read_chunks(pairs)] == first


class Gaps(PairList):
    """Pairs without a source are skipped."""

    def __iter__(self):
        self.counts = PairCounts()
        for number, pair in enumerate(self.pairs):
            if pair[0]:
                self.counts.pairs += 1
                yield pair
            else:
                self.skip("empty", f"row {number}")
            self.on_bytes(number + 1)


def test_skipped_pairs_of_other_sources_are_counted_to_the_end() -> None:
    text = Gaps([("a", "b"), ("", "c"), ("d", "e"), ("f", "g"), ("h", "i"), ("", "j")])
    found = list(read_chunks(text))
    assert all(isinstance(each, PairChunk) for each in found)
    assert sum((each.read().counts for each in found), PairCounts()) == PairCounts(pairs=4, empty=2)
    assert sum(each.size for each in found) == 6


def test_a_strict_text_names_file_and_line(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.write_bytes(b"1\n2\n3\n4\n\xff\n6\n")
    other.write_bytes(b"1\n2\n3\n4\n5\n6\n")
    found = list(read_chunks(ParallelText([one, other], strict=True)))
    assert found[0].read().sources == ["1", "2", "3"]
    with pytest.raises(InputError, match="line 5 of '[^' ]*' is not UTF-8: fix the line, or leave out --strict"):
        found[1].read()
