"""Corpora on disk and their batches."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from regard.data import corpus as corpora
from regard.data.batch import PairBatch
from regard.data.buckets import BatchPosition, Buckets, split_batches
from regard.data.corpus import Corpus, build_corpus, open_corpus
from regard.data.parallel import ParallelText
from regard.data.prepare import TokenizerConfig, learn_vocabularies, prepare_corpus, read_vocabularies
from regard.data.subwords import train_subwords, vocabulary_from_symbols
from regard.data.vocabulary import EOS, PAD
from regard.errors import InputError
from tests.data.pair_list import PairList

WORDS = [f"{a}{b}" for a in "abcdefgh" for b in "ijklmnop"]
SUBWORDS = train_subwords([" ".join(WORDS)], kind="words", size=100)
TOKENS = "target.bin"


def text(pairs: int, longest: int = 9) -> list[tuple[str, str]]:
    """Return distinct pairs of 1 to `longest` words. The target is one word longer than the source."""
    found = []
    for index in range(pairs):
        words = [WORDS[(index * 7 + place * (index % 5 + 1)) % 64] for place in range(index % longest + 1)]
        found.append((" ".join(words), " ".join([*words, WORDS[index // 64 % 64]])))
    return found


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return build_corpus(tmp_path / "corpus", PairList(text(700)), (SUBWORDS, SUBWORDS), max_len=20)


def test_every_pair_is_read_back(corpus: Corpus, tmp_path: Path) -> None:
    assert open_corpus(corpus.folder).counts == corpus.counts and len(corpus) == 700 and corpus.longest == 11
    for begin, end in ((0, 700), (13, 14), (699, 700), (350, 420)):
        sources, targets = corpus.read(begin, end)
        assert all(sentence[-1] == EOS for sentence in (*sources, *targets))
        found = [[SUBWORDS.decode(each.tolist()) for each in side] for side in (sources, targets)]
        assert list(zip(*found, strict=True)) == text(700)[begin:end]
    assert not [each for each in tmp_path.iterdir() if each != corpus.folder]


def test_long_sentences_are_skipped_or_refused(tmp_path: Path) -> None:
    corpus = build_corpus(tmp_path / "corpus", PairList(text(700)), (SUBWORDS, SUBWORDS), max_len=5)
    kept = [pair for pair in text(700) if len(pair[1].split()) <= 5]
    assert len(corpus) == len(kept) and corpus.counts.too_long == 700 - len(kept)
    assert SUBWORDS.decode(corpus.read(10, 11)[1][0].tolist()) == kept[10][1]
    with pytest.raises(InputError, match="has 6 tokens, but the limit is 5"):
        build_corpus(tmp_path / "other", PairList(text(700)), (SUBWORDS, SUBWORDS), max_len=5, strict=True)
    with pytest.raises(InputError, match=".* has no pairs: 0 pairs; left out: 9 too long; raise max_len"):
        build_corpus(tmp_path / "other", PairList(text(9)), (SUBWORDS, SUBWORDS), max_len=1)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.json", b"{", "is damaged: it is not valid JSON"),
        ("corpus.json", b"{}", "is damaged: 'format' is missing"),
        ("corpus.json", b'{"format": "regard-corpus/3"}', "is damaged: 'format' has an invalid value"),
        (TOKENS, b"", "is damaged: target.bin changed after it was written"),
        (TOKENS, None, "target.bin' does not exist"),
        ("source-bounds.bin", b"x" * 500, "is damaged: source-bounds.bin changed after it was written"),
    ],
)
def test_a_damaged_corpus_is_refused(corpus: Corpus, name: str, content: bytes | None, message: str) -> None:
    file = corpus.folder / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        open_corpus(corpus.folder)


@pytest.mark.parametrize("value", [None, "x", -1, 0, 10**30, [], {}, 1.5])
@pytest.mark.parametrize("name", ["name", "longest", "symbols", "unknown", "counts", "checksums", "digest"])
def test_every_value_of_the_index_is_type_checked(corpus: Corpus, name: str, value: object) -> None:
    file = corpus.folder / "corpus.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    with pytest.raises(InputError, match="is damaged: .*; delete its folder to prepare the corpus again"):
        open_corpus(corpus.folder)


def test_any_flipped_bit_of_a_corpus_is_detected(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("flips") / "corpus"
    whole = build_corpus(folder, PairList(text(700)), (SUBWORDS, SUBWORDS), max_len=20)
    contents = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    expected = whole.read(0, 700)

    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(contents)))
        damaged = bytearray(contents[path])
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(damaged)
        try:
            with pytest.raises(InputError, match="is damaged") as raised:
                found = open_corpus(folder).read(0, 700)
                assert str(found) == str(expected)  # white space in corpus.json
                raise InputError("is damaged, but only between words")
            assert "\n" not in str(raised.value)
        finally:
            path.write_bytes(contents[path])

    check()


def test_the_index_counts_unknown_tokens(tmp_path: Path) -> None:
    pairs = [("ai zz", "aj"), ("zz", "ak zz zz")]
    corpus = build_corpus(tmp_path / "corpus", PairList(pairs), (SUBWORDS, SUBWORDS), max_len=9)
    shares = corpus.unknown("training")
    assert (shares.source.tokens, shares.source.unknown) == (3, 2)
    assert (shares.target.tokens, shares.target.unknown, shares.pairs) == (4, 2, 2)


def test_large_vocabularies_need_four_bytes_per_token(tmp_path: Path) -> None:
    many = vocabulary_from_symbols([f"w{number}" for number in range(70_000)], words=True)
    corpus = build_corpus(tmp_path / "corpus", PairList([("w3 w69999", "w1")]), (many, many), max_len=9)
    assert many.decode(corpus.read(0, 1)[0][0].tolist()) == "w3 w69999"
    assert (corpus.folder / "source.bin").stat().st_size == 3 * 4


def test_a_prepared_corpus_is_reused_until_the_text_changes(tmp_path: Path) -> None:
    file, root = tmp_path / "pairs.tsv", tmp_path / "prepared"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in text(50)))
    cutting = TokenizerConfig(kind="bpe", size=60, joint=True, lowercase=False)

    def prepare() -> tuple[Corpus, set[str]]:
        found = ParallelText([file])
        vocabularies = learn_vocabularies(found, cutting, root, progress=False)
        assert vocabularies[0] is vocabularies[1]
        corpus = prepare_corpus(found, vocabularies, root, max_len=50, progress=False)
        return corpus, {path.name for path in root.iterdir()}

    first, names = prepare()
    stamp = (first.folder / TOKENS).stat().st_mtime_ns
    second, same = prepare()
    assert second.folder == first.folder and same == names and (first.folder / TOKENS).stat().st_mtime_ns == stamp
    file.write_text(file.read_text() + "aj\tbk\n")
    third, more = prepare()
    assert len(third) == 51 and len(more) == len(names) == 3 and not more & names
    for path in sorted(root.glob("vocabulary-*")):
        path.write_text(path.read_text().replace("a", "b", 1))
    with pytest.raises(InputError, match="vocabulary-.*' is damaged: .*; delete the file to prepare the text again"):
        prepare()


def test_separate_vocabularies_for_both_sides(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("aa bb\tcc dd\n" * 5)
    cutting = TokenizerConfig(kind="words", size=10, joint=False, lowercase=False)
    source, target = learn_vocabularies(ParallelText([file]), cutting, tmp_path, progress=False)
    assert set(source.symbols[4:]) == {"▁aa", "▁bb"} and set(target.symbols[4:]) == {"▁cc", "▁dd"}
    again = read_vocabularies(source.to_json(), target.to_json())
    assert again[0].symbols == source.symbols and again[1].symbols == target.symbols


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=60), tokens=st.integers(30, 200))
def test_batches_fill_the_token_limit(lengths: list[int], tokens: int) -> None:
    found = split_batches(np.array(lengths), tokens)
    assert [begin for begin, _ in found] == [0, *[end for _, end in found[:-1]]] and found[-1][1] == len(lengths)
    for begin, end in found:
        assert max(lengths[begin:end]) * (end - begin) <= tokens
        if end < len(lengths):  # one more pair would exceed the limit
            assert max(lengths[begin : end + 1]) * (end + 1 - begin) > tokens


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=60), most=st.integers(1, 9))
def test_batches_respect_the_maximal_number_of_pairs(lengths: list[int], most: int) -> None:
    found = split_batches(np.array(lengths), 10**6, most)
    assert [end - begin for begin, end in found[:-1]] == [most] * (len(found) - 1)
    assert found[-1][1] == len(lengths) and 0 < found[-1][1] - found[-1][0] <= most
    assert split_batches(np.array(lengths), 40, 0) == split_batches(np.array(lengths), 40)


def sentences(pairs: PairBatch) -> set[tuple[tuple[int, ...], ...]]:
    return {
        tuple(tuple(index for index in row.tolist() if index != PAD) for row in both)
        for both in zip(pairs.source, pairs.target, strict=True)
    }


@pytest.fixture
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "SEGMENT", 40)
    monkeypatch.setattr(corpora, "POOL", 5)


@pytest.mark.usefixtures("small_pools")
def test_an_epoch_contains_each_pair_once_in_batches_of_similar_length(corpus: Corpus) -> None:
    batches = Buckets(corpus, 100, seed=0)
    assert batches.corpus.pools == 4
    drawn: list[PairBatch] = []
    while batches.place.epoch == 0:
        drawn.append(batches.draw())
    every = [sentences(each) for each in drawn]
    assert sum(map(len, every)) == 700 == len(set().union(*every))
    assert all(max(each.source.numel(), each.target.numel()) <= 100 for each in drawn)
    there = sum(int((each.source != PAD).sum() + each.tokens) for each in drawn)
    assert there / sum(each.source.numel() + each.target.numel() for each in drawn) > 0.85
    widths = [each.target.shape[1] for each in drawn]
    assert widths != sorted(widths)
    second = [batches.draw() for _ in drawn]
    assert [sentences(each) for each in second] != every


@pytest.mark.usefixtures("small_pools")
def test_batches_resume_from_any_position(corpus: Corpus) -> None:
    whole = Buckets(corpus, 100, seed=3)
    places, drawn = [], []
    for _ in range(150):
        places.append(whole.place)
        drawn.append(whole.draw())
    assert places[-1].epoch >= 1
    for index in (0, 1, 17, 60, 149):
        later = Buckets(corpus, 100, seed=3, place=BatchPosition(*places[index]))
        assert torch.equal(later.draw().target, drawn[index].target)
    assert not torch.equal(Buckets(corpus, 100, seed=4).draw().target, drawn[0].target)


@pytest.mark.usefixtures("small_pools")
def test_drawn_batches_respect_the_maximal_number_of_pairs(corpus: Corpus) -> None:
    batches = Buckets(corpus, 100, seed=0, max_pairs=3)
    assert {len(batches.draw().source) for _ in range(20)} == {3}


def test_a_token_limit_below_the_longest_sentence_is_refused(corpus: Corpus) -> None:
    with pytest.raises(InputError, match="tokens 10 is less than the 11 tokens of the longest sentence"):
        Buckets(corpus, 10, seed=0)
