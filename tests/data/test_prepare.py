"""Corpora are prepared on several cores, vocabularies are learned from a sample, and changed text is prepared again."""

import os
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from regard.data import corpus, parallel
from regard.data.corpus import Corpus, Sample, Vocabularies, build_corpus
from regard.data.parallel import ConcatenatedText, ParallelText
from regard.data.prepare import TokenizerConfig, learn_vocabularies, prepare_corpus
from regard.errors import InputError
from regard.io import hold_lock
from regard.tasks.translation import TranslationTaskConfig

CUTTING = TokenizerConfig(kind="words", size=100, joint=True, lowercase=False)
LINES = [f"w{number % 40} w{number % 7}\tw{number % 11}" for number in range(95)]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "LINES", 5)
    monkeypatch.setattr(corpus, "STRETCH", 2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def words(file: Path) -> Vocabularies:
    return learn_vocabularies(ParallelText([file]), CUTTING, file.parent / "prepared", progress=False)


def prepare(file: Path, *, strict: bool = False, max_len: int = 9) -> Corpus:
    text, root = ParallelText([file], strict=strict), file.parent / "prepared"
    return prepare_corpus(text, words(file), root, max_len=max_len, strict=strict, progress=False)


def contents(corpus: Corpus) -> list[list[list[int]]]:
    return [[each.tolist() for each in side] for side in corpus.read(0, len(corpus))]


def test_a_corpus_of_other_settings_is_refused(file: Path) -> None:
    """A corpus whose files are intact but belong to another folder is refused."""
    corpus, other = prepare(file), prepare(file, max_len=8)
    for path in other.folder.iterdir():
        (corpus.folder / path.name).write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=f"it is {other.folder.name}, under another name; delete its folder"):
        prepare(file)


def test_strict_refuses_by_file_and_line_after_a_lenient_preparation(file: Path) -> None:
    with file.open("a") as opened:
        opened.write("a b c\td\n\te\n")
    assert len(prepare(file, max_len=2)) == 95
    with pytest.raises(InputError, match="line 97 of '.*pairs.tsv' is with an empty side: fix the line"):
        prepare(file, strict=True, max_len=2)
    file.write_text("".join(f"{line}\n" for line in LINES) + "a b c\td\n")
    assert prepare(file, max_len=2).counts.too_long == 1
    with pytest.raises(InputError, match="sentence 'a b c' has 3 tokens, but the limit is 2"):
        prepare(file, strict=True, max_len=2)


def test_results_of_a_changed_text_are_removed(file: Path) -> None:
    old, root = prepare(file), file.parent / "prepared"
    expected = contents(old)
    prepare(file, max_len=8)
    assert len(list(root.glob("corpus-*"))) == 2 and len(list(root.glob("*.json"))) == 2
    with file.open("a") as opened:
        opened.write("w1\tw2\n")
    new = prepare(file)
    assert len(new) == 96 and set(root.glob("corpus-*")) == {new.folder}
    assert len(list(root.glob("*.json"))) == 2
    assert contents(old) == expected  # a training run that is reading the removed corpus continues


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


@pytest.mark.parametrize(("sample", "taken"), [(39, 3), (75, 7)])
def test_the_sample_of_a_long_text_takes_the_first_lines_of_each_stretch(
    file: Path, monkeypatch: pytest.MonkeyPatch, sample: int, taken: int
) -> None:
    text = ParallelText([file])
    every = Sample(text, None)
    assert list(every) == [cell for line in LINES for cell in line.split("\t")] and every.pairs == 95
    assert every.summary == f"all 95 pairs ({every.bytes / 1e6:,.1f} MB)" and every.bytes == sum(
        len(line) - 1 for line in LINES
    )
    monkeypatch.setattr(corpus, "SAMPLE_PAIRS", sample)
    some = Sample(text, 1)
    chosen = [line.split("\t")[1] for number, line in enumerate(LINES) if number % 10 < taken]
    assert list(some) == chosen == list(some) and some.pairs == len(chosen)
    assert some.summary.endswith(f", the first {taken} of each 10")
    both = Sample(ConcatenatedText([text, text]), 0)
    assert both.lines == sample // 20 and len(list(both)) == 2 * sum(number % 10 < both.lines for number in range(95))


def test_a_vocabulary_is_learned_once_and_reports_its_sample(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = file.parent / "prepared"
    root.mkdir()
    texts = ConcatenatedText([ParallelText([file]), ParallelText([file])])
    learn_vocabularies(texts, CUTTING, root, progress=True)
    assert "vocabulary of 44 symbols, learned from all 190 pairs (0.0 MB)" in capsys.readouterr().err
    learn_vocabularies(texts, CUTTING, root, progress=True)
    assert "learn" not in capsys.readouterr().err


def test_a_process_waits_while_another_learns_the_vocabulary(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_several_processes_build_equal_files(file: Path, tmp_path: Path) -> None:
    text, vocabularies = ParallelText([file]), words(file)
    for processes in (1, 2):
        folder = tmp_path / str(processes) / "corpus"
        build_corpus(folder, text, vocabularies, max_len=9, processes=processes)
    names = {"corpus.json", "source.bin", "source-bounds.bin", "target.bin", "target-bounds.bin"}
    for name in names:
        assert (tmp_path / "1/corpus" / name).read_bytes() == (tmp_path / "2/corpus" / name).read_bytes()
    assert {path.name for path in (tmp_path / "1/corpus").iterdir()} == names


def test_pairs_are_read_across_chunks_and_empty_chunks(file: Path, tmp_path: Path) -> None:
    lines = LINES[:25] + ["\tx"] * 30 + LINES[25:]
    file.write_text("".join(f"{line}\n" for line in lines))
    corpus = build_corpus(tmp_path / "corpus", ParallelText([file]), words(file), max_len=9)
    assert corpus.counts.empty == 30 and len(corpus) == 95
    sources, targets = corpus.read(0, 95)
    assert [words(file)[0].decode(row.tolist()) for row in targets] == [line.split("\t")[1] for line in LINES]
    for begin, end in ((0, 1), (24, 26), (9, 41), (94, 95)):
        assert [row.tolist() for row in corpus.read(begin, end)[0]] == [row.tolist() for row in sources[begin:end]]


def test_a_text_without_a_pair_leaves_nothing(file: Path) -> None:
    vocabularies, root = words(file), file.parent / "prepared"
    file.write_text("\tx\n" * 25)
    with pytest.raises(InputError, match="training text .* has no pairs: 0 pairs; left out: 25 with an empty"):
        prepare_corpus(ParallelText([file]), vocabularies, root, max_len=9, progress=False)
    assert not list(root.glob("*corpus-*"))


def test_a_training_text_is_read_once_before_its_tokens(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest, the number of lines and the check of the encoding need only one scan."""
    scans: list[object] = []
    scan_text = parallel.scan_text

    def counted(opened: BinaryIO, *rest: Any) -> Any:
        scans.append(opened)
        return scan_text(opened, *rest)

    monkeypatch.setattr(parallel, "scan_text", counted)
    TranslationTaskConfig(train=(str(file),)).digests(progress=False)
    prepare(file)
    assert len(scans) == 1
