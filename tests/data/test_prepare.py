"""Preparing corpora and vocabularies: after a kill, from a sample, and anew after a change of the text."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from regard.data import chunks, corpus_builder, worker_pool
from regard.data.chunks import Sample, find_chunks
from regard.data.corpus import Corpus
from regard.data.corpus_builder import build_corpus
from regard.data.parallel import ConcatenatedText, ParallelText
from regard.data.prepare import CorpusPreparation, TokenizerConfig, learn_vocabularies
from regard.errors import InputError
from regard.io import hold_lock

CUTTING = TokenizerConfig(kind="words", size=100, joint=True, lowercase=False)
LINES = [f"w{number % 40} w{number % 7}\tw{number % 11}" for number in range(95)]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "LINES", 10)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def preparation(file: Path, strict: bool = False, max_len: int = 9) -> CorpusPreparation:
    text, root = ParallelText([file], strict=strict), file.parent / "prepared"
    vocabularies = learn_vocabularies(ParallelText([file]), CUTTING, root, progress=False)
    return CorpusPreparation(text, vocabularies, root, max_len, strict, progress=False)


def contents(corpus: Corpus) -> list[list[list[int]]]:
    return [[each.tolist() for each in side] for side in corpus.read(0, len(corpus))]


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("shard-*")}


def test_only_missing_and_damaged_shards_are_built(file: Path) -> None:
    whole = contents(preparation(file).corpus())
    folder = preparation(file).folder
    before = stamps(folder)
    (folder / "corpus.json").unlink()
    (folder / "shard-000004.bin").unlink()
    damaged = folder / "shard-000007.bin"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert contents(preparation(file).corpus()) == whole
    changed = {name for name, stamp in stamps(folder).items() if stamp != before[name]}
    assert changed == {"shard-000004.bin", "shard-000007.bin"}


def test_a_shard_of_another_corpus_is_refused(file: Path, tmp_path: Path) -> None:
    one, other = preparation(file), preparation(file, max_len=8)
    one.corpus()
    other.corpus()
    (one.folder / "shard-000000.bin").write_bytes((other.folder / "shard-000000.bin").read_bytes())
    with pytest.raises(InputError, match="shard-000000.bin is a shard of another corpus; delete its folder"):
        one.corpus()


def test_strict_refuses_by_file_and_line_after_a_lenient_preparation(file: Path) -> None:
    with file.open("a") as opened:
        opened.write("a b c\td\n\te\n")
    assert len(preparation(file, max_len=2).corpus()) == 95
    with pytest.raises(InputError, match="line 97 of '.*pairs.tsv' is with an empty side: fix it"):
        preparation(file, strict=True, max_len=2).corpus()
    file.write_text("".join(f"{line}\n" for line in LINES) + "a b c\td\n")
    assert preparation(file, max_len=2).corpus().counts.too_long == 1
    with pytest.raises(InputError, match="sentence 'a b c' has 3 tokens, at most 2 are taken"):
        preparation(file, strict=True, max_len=2).corpus()


def test_results_of_a_changed_text_are_removed_unless_in_use(file: Path) -> None:
    old, longer = preparation(file).corpus(), preparation(file, max_len=8).corpus()
    root = file.parent / "prepared"
    assert old.folder.is_dir() and longer.folder.is_dir() and len(list(root.glob("*.json"))) == 2
    del longer
    with file.open("a") as opened:
        opened.write("w1\tw2\n")
    new = preparation(file).corpus()
    assert len(new) == 96 and old.folder.is_dir()  # it is read still
    assert len(list(root.glob("corpus-*"))) == 2
    assert contents(old)[0]
    del old
    with file.open("a") as opened:
        opened.write("w1\tw2\n")
    held = new
    newest = preparation(file).corpus()
    assert set(root.glob("corpus-*")) == {newest.folder, held.folder}


def test_a_text_is_identified_by_its_content(file: Path) -> None:
    moved = file.parent / "elsewhere" / file.name
    moved.parent.mkdir()
    before = ParallelText([file]).identity()
    file.rename(moved)
    assert ParallelText([moved]).identity() == before
    stamp = moved.stat()
    moved.write_text(moved.read_text().replace("w1", "w2", 1))
    os.utime(moved, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert ParallelText([moved]).identity() != before


def test_the_sample_of_a_long_text_takes_the_first_lines_of_each_chunk(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ParallelText([file])
    count, spans = find_chunks(text)
    every = Sample([(text, spans)], count, None)
    assert list(every) == [cell for line in LINES for cell in line.split("\t")] and every.pairs == 95
    assert every.summary == f"all 95 pairs ({every.bytes / 1e6:,.1f} MB)" and every.bytes == sum(
        len(line) - 1 for line in LINES
    )
    monkeypatch.setattr(chunks, "SAMPLE_PAIRS", 39)
    some = Sample([(text, spans)], count, 1)
    chosen = [line.split("\t")[1] for number, line in enumerate(LINES) if number % 10 < 3]
    assert (
        list(some) == chosen == list(some)
        and some.pairs == 30
        and some.summary.endswith(", the first 3 of each 10")
    )
    both = Sample([(text, spans), (text, None)], 2 * count, 0)
    assert both.lines == 1 and len(list(both)) == 20


def test_a_vocabulary_is_learned_once_and_reports_its_sample(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = file.parent / "prepared"
    root.mkdir()
    texts = ConcatenatedText([ParallelText([file]), ParallelText([file])])
    learn_vocabularies(texts, CUTTING, root, progress=True)
    assert "vocabulary of 44 symbols, learned from all 190 pairs (0.0 MB)" in capsys.readouterr().err
    [stored] = root.glob("vocabulary-*")
    assert '"pairs": 190' in stored.read_text()
    learn_vocabularies(texts, CUTTING, root, progress=True)
    assert "learn" not in capsys.readouterr().err


def test_a_process_waits_while_another_learns_the_vocabulary(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = file.parent / "prepared"
    learned = learn_vocabularies(ParallelText([file]), CUTTING, root, progress=False)
    [stored] = root.glob("vocabulary-*")
    content = stored.read_bytes()
    stored.unlink()
    found: list[object] = []
    with hold_lock(stored):
        other = threading.Thread(
            target=lambda: found.append(learn_vocabularies(ParallelText([file]), CUTTING, root, progress=True))
        )
        other.start()
        time.sleep(0.4)
        assert not found
        stored.write_bytes(content)
    other.join(10)
    assert found[0][0].to_json() == learned[0].to_json()  # type: ignore[index]
    said = capsys.readouterr().err
    assert said.count("waiting: ") == 1 and "learn the vocabulary" not in said


KILLED = """
import sys
from regard.data import chunks, corpus_builder, worker_pool
chunks.LINES = 2000
made = 0
def count(each):
    global made
    made += 1
    if made == 3:
        print("now", flush=True)
        import time; time.sleep(60)
from pathlib import Path
from regard.data.parallel import ParallelText
from regard.data.subwords import SubwordVocabulary
text = ParallelText([sys.argv[1]])
words = SubwordVocabulary.from_json(Path(sys.argv[2]).read_text())
key = corpus_builder.corpus_key(text, (words, words), 9)
builder = corpus_builder.ShardBuilder(Path(sys.argv[3]), (words, words), 9, False, key)
corpus_builder.build_shards(builder, text, on_shard=count, processes=2)
"""


def test_a_killed_build_continues(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers end with the killed process, and each shard is complete or missing."""
    monkeypatch.setattr(chunks, "LINES", 2000)
    file.write_text("".join(f"{line}\n" for line in LINES * 300))
    text, ready = ParallelText([file]), preparation(file)
    vocabulary = tmp_path / "words.json"
    vocabulary.write_text(ready.vocabularies[0].to_json())
    folder = tmp_path / "corpus"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(file), str(vocabulary), str(folder)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"now\n"
        child.send_signal(signal.SIGKILL)
    before = stamps(folder)
    assert 3 <= len(before) < 15
    whole = build_corpus(tmp_path / "whole", text, ready.vocabularies, max_len=9)
    found = build_corpus(folder, text, ready.vocabularies, max_len=9)
    assert contents(found) == contents(whole) and before.items() <= stamps(folder).items()
    assert [path.read_bytes() for path in sorted(folder.glob("shard-*"))] == [
        path.read_bytes() for path in sorted(whole.folder.glob("shard-*"))
    ]


def test_several_processes_build_equal_shards(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_builder, "available_cores", lambda: 2)
    beside = build_corpus(tmp_path / "two", ParallelText([file]), preparation(file).vocabularies, max_len=9)
    monkeypatch.setattr(corpus_builder, "available_cores", lambda: 1)
    alone = build_corpus(tmp_path / "one", ParallelText([file]), preparation(file).vocabularies, max_len=9)
    assert contents(beside) == contents(alone) and beside.counts == alone.counts


def test_pairs_are_read_across_shards_and_empty_shards(file: Path, tmp_path: Path) -> None:
    lines = LINES[:25] + ["\tx"] * 30 + LINES[25:]
    file.write_text("".join(f"{line}\n" for line in lines))
    corpus = build_corpus(tmp_path / "corpus", ParallelText([file]), preparation(file).vocabularies, max_len=9)
    assert [shard.head.pairs for shard in corpus.shards][2:6] == [5, 0, 0, 5] and corpus.counts.empty == 30
    sources, targets = corpus.read(0, 95)
    word = preparation(file).vocabularies[0]
    assert [word.decode(each.tolist()) for each in targets] == [line.split("\t")[1] for line in LINES]
    for begin, end in ((0, 1), (24, 26), (9, 41), (94, 95)):
        assert [each.tolist() for each in corpus.read(begin, end)[0]] == [
            each.tolist() for each in sources[begin:end]
        ]
        lengths = [[len(one), len(two)] for one, two in zip(sources[begin:end], targets[begin:end], strict=True)]
        assert corpus.lengths(begin, end).tolist() == lengths
    wanted = np.arange(32) % 3 == 0
    some = corpus.read(9, 41, wanted)
    for side, every in zip(some, (sources, targets), strict=True):
        assert [len(each) > 0 for each in side] == wanted.tolist()
        assert all(
            not mine or one.tolist() == other.tolist()
            for mine, one, other in zip(wanted, side, every[9:41], strict=True)
        )


def test_a_text_without_a_pair_leaves_nothing(file: Path) -> None:
    ready = preparation(file)
    file.write_text("\tx\n" * 25)
    text = ParallelText([file])
    with pytest.raises(InputError, match="no pair to learn from: 0 pairs; left out: 25 with an empty side"):
        CorpusPreparation(text, ready.vocabularies, ready.root, max_len=9, progress=False).corpus()
    assert not list(ready.root.glob("corpus-*"))
    assert worker_pool.available_cores() >= 1
