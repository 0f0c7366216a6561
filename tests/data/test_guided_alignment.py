"""Token alignments of a corpus from a file of word links."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.data.buckets import Buckets, GuidedAlignment, check_alignment_file, prepare_alignment, target_attention
from regard.data.corpus import Corpus, build_corpus
from regard.data.parallel import ParallelText
from regard.data.subwords import SubwordVocabulary, train_subwords
from regard.errors import InputError
from tests.german import LINKS, sentences

PAIRS = sentences()[:40]


@pytest.fixture(scope="module")
def vocabulary() -> SubwordVocabulary:
    return train_subwords([side for pair in sentences() for side in pair], kind="bpe", size=50)


def prepared(
    folder: Path,
    vocabulary: SubwordVocabulary,
    lines: list[str],
    links: list[str],
    *,
    max_len: int = 60,
    name: str = "links",
) -> tuple[Corpus, GuidedAlignment]:
    text, file = folder / "pairs.tsv", folder / name
    text.write_text("".join(f"{line}\n" for line in lines))
    opened = gzip.open if name.endswith(".gz") else open
    with opened(file, "wt") as written:
        written.write("".join(f"{line}\n" for line in links))
    corpus = build_corpus(folder / "corpus", ParallelText([text]), (vocabulary, vocabulary), max_len=max_len)
    guide = prepare_alignment(
        file, ParallelText([text]), (vocabulary, vocabulary), corpus, max_len=max_len, progress=False
    )
    return corpus, guide


@pytest.mark.parametrize("name", ["links", "links.gz"])
def test_all_tokens_of_linked_words_are_linked(tmp_path: Path, vocabulary: SubwordVocabulary, name: str) -> None:
    lines = ["\t".join(pair) for pair in PAIRS]
    corpus, guide = prepared(tmp_path, vocabulary, lines, [LINKS] * len(lines), name=name)
    for (source, target), links in zip(PAIRS, guide.read(0, len(corpus)), strict=True):
        pieces = [vocabulary.pieces(source), vocabulary.pieces(target)]
        words = [np.cumsum([piece.startswith("▁") for piece in side]) - 1 for side in pieces]
        expected = {
            (i, j)
            for i, one in enumerate(words[0])
            for j, other in enumerate(words[1])
            if f"{one}-{other}" in LINKS.split()
        }
        assert set(map(tuple, links.tolist())) == expected


def test_links_of_skipped_pairs_are_skipped(tmp_path: Path, vocabulary: SubwordVocabulary) -> None:
    """Empty pairs, long pairs and lines without a counterpart are skipped together with their links."""
    long = " ".join([PAIRS[3][0]] * 9)
    lines = ["\t".join(PAIRS[0]), "\tempty", f"{long}\t{PAIRS[3][1]}", "alone", "\t".join(PAIRS[1])]
    corpus, guide = prepared(tmp_path, vocabulary, lines, ["0-0", "", "1-1", "3-3", "4-4"], max_len=40)
    assert len(corpus) == 2
    both = [{tuple(link) for link in each} for each in guide.read(0, 2)]
    first = [vocabulary.pieces(side) for side in PAIRS[0]]
    assert both[0] == {(i, j) for i in range(_first_word(first[0])) for j in range(_first_word(first[1]))}
    assert min(i for i, _ in both[1]) > 4


def _first_word(pieces: list[str]) -> int:
    return next(place for place, piece in enumerate(pieces) if place and piece.startswith("▁"))


@pytest.mark.parametrize(
    ("links", "told"),
    [
        (["0-0"], "ends before line 2 of the text"),
        (["0-0"] * 3, "has 1 more lines than the text"),
        (["0-0", "5-0"], "line 2 .* link 5-0 is beyond a source of 5 words"),
        (["0-0", "x"], "line 2 .* has 'x', which is not a link"),
    ],
)
def test_links_of_another_text_are_refused(
    tmp_path: Path, vocabulary: SubwordVocabulary, links: list[str], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        prepared(tmp_path, vocabulary, ["\t".join(pair) for pair in PAIRS[:2]], links)
    assert not list(tmp_path.glob("*-guide-*"))


def test_a_prepared_alignment_is_reused_and_damage_is_refused(tmp_path: Path, vocabulary: SubwordVocabulary) -> None:
    corpus, guide = prepared(tmp_path, vocabulary, ["\t".join(pair) for pair in PAIRS[:2]], [LINKS] * 2)
    again = [tmp_path / "links", ParallelText([tmp_path / "pairs.tsv"]), (vocabulary, vocabulary), corpus]
    assert prepare_alignment(*again, max_len=60, progress=False).folder == guide.folder  # type: ignore[arg-type]
    (guide.folder / "links.bin").write_bytes(b"\0" * 8)
    with pytest.raises(
        InputError, match="is damaged: links.bin changed after it was written .CRC-32.; delete its folder"
    ):
        prepare_alignment(*again, max_len=60, progress=False)  # type: ignore[arg-type]


def test_target_attention_is_shared_among_linked_tokens() -> None:
    found = target_attention([np.array([[0, 1], [2, 1], [1, 0]]), np.zeros((0, 2), int)], (2, 3, 3))
    expected = torch.zeros(2, 3, 3)
    expected[0, 0, 1], expected[0, 1, 0], expected[0, 1, 2] = 1, 0.5, 0.5
    assert torch.equal(found, expected)


def test_batches_contain_the_alignment_of_their_pairs(tmp_path: Path, vocabulary: SubwordVocabulary) -> None:
    """After sorting and shuffling, each row has weights on the tokens of the linked word."""
    lines = ["\t".join(pair) for pair in PAIRS]
    links = ["0-4" if number % 2 else "4-2" for number in range(len(lines))]
    corpus, guide = prepared(tmp_path, vocabulary, lines, links)
    known = {
        (tuple(source.tolist()), tuple(target.tolist())): each.tolist()
        for source, target, each in zip(*corpus.read(0, len(corpus)), guide.read(0, len(corpus)), strict=True)
    }
    batches, seen = Buckets(corpus, 200, 0, guide=guide), 0
    while batches.place[0] == 0:
        batch = batches.draw()
        assert batch.alignment is not None and batch.alignment.shape == (*batch.target.shape, batch.source.shape[1])
        for source, target, row in zip(batch.source, batch.target, batch.alignment, strict=True):
            pair = tuple(tuple(side[side != 0].tolist()) for side in (source, target))
            assert sorted((i, j) for j, i in row.nonzero().tolist()) == sorted(map(tuple, known[pair]))  # type: ignore[index]
            seen += 1
        assert batch.share(1, 2).alignment is not None
    assert seen == len(PAIRS)


def test_links_are_checked_before_any_work(tmp_path: Path) -> None:
    text, links = tmp_path / "a.de", tmp_path / "links"
    text.write_text("ein Hund\nzwei Hunde", encoding="utf-8")
    target = tmp_path / "a.en"
    target.write_text("a dog\ntwo dogs", encoding="utf-8")
    for content, message in (
        ("0-0\n", "has links for 1 line, but .* has 2: give one line"),
        ("0-0\n\n0-0\n", "has links for 3 lines, but .* has 2"),
        ("1 1 1 S\n", r"line 1 of .* has '1', which is not a link: give a line in Moses' format \(0-0 1-2\) for each"),
    ):
        links.write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            check_alignment_file(links, text)
        with pytest.raises(InputError, match=message):
            regard.train("translation", train=(str(text), str(target)), guide=str(links), savepath=tmp_path / "models")
        assert not (tmp_path / "models").exists()
    with pytest.raises(InputError, match="none' does not exist"):
        check_alignment_file(tmp_path / "none", text)
    links.write_text("0-0\n\n", encoding="utf-8")
    check_alignment_file(links, text)
