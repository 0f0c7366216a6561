"""Language tasks on a user's text: characters, subwords, memory-mapped tokens, validation text, invalid files."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from regard.data.token_file import decode_tokens, encode_lines, learn_vocabulary, prepare_tokens
from regard.errors import InputError
from regard.tasks.batch import IGNORE, BatchContext
from regard.tasks.text import Text, TextTaskConfig
from regard.training.config import TrainingConfig

LINES = "The quick brown fox\njumps over the lazy dog.\n\n  Two blanks, and grüße!\n" * 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


def make_task(path: Path, **options: object) -> Text:
    config = TextTaskConfig(text=str(path), **{"max_len": 16, **options})  # type: ignore[arg-type]
    return Text.prepare(config, path.parent / "prepared", progress=False)


def test_characters_are_the_text(file: Path) -> None:
    task = make_task(file)
    assert len(task.vocabulary) == 4 + len(set(LINES) - {"\n"})
    train, valid = task.tokens(unseen=False), task.tokens(unseen=True)
    assert len(train) + len(valid) == len(LINES) and len(train) == round(0.9 * len(LINES))
    assert task.render(torch.from_numpy(np.concatenate([train, valid]).astype(np.int64))) == LINES


@pytest.mark.parametrize("tokenizer", ["bpe", "unigram"])
def test_subwords_keep_words_and_lines(file: Path, tokenizer: str) -> None:
    task = make_task(file, tokenizer=tokenizer, vocab_size=90, max_len=40)
    assert 40 < len(task.vocabulary) <= 90
    text = "the lazy dog.\njumps"
    inputs = task.parse(text)
    assert task.render(inputs[0]) == text
    assert inputs.shape[1] < len(text) or tokenizer == "unigram"  # which keeps few pieces of so short a text


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\r\n▁\0"), min_size=1))
def test_characters_restore_every_text(text: str) -> None:
    from regard.data.subwords import vocabulary_from_symbols

    vocabulary = vocabulary_from_symbols(sorted(set(text) - {" "} | {"▁"}), words=False)
    lines = [f"{text}\n", text]
    assert decode_tokens(encode_lines(lines, vocabulary), vocabulary) == "".join(lines)


def test_samples_are_windows_of_their_part(file: Path, generator: torch.Generator) -> None:
    task = make_task(file)
    for unseen in (False, True):
        part = task.render(torch.from_numpy(task.tokens(unseen=unseen).astype(np.int64)))
        inputs, targets, mask = task.sample(200, generator, unseen=unseen)
        assert inputs.shape == targets.shape == (200, 16) and mask is None
        assert torch.equal(inputs[:, 1:], targets[:, :-1])
        assert all(
            task.render(torch.cat([row, target[-1:]])) in part for row, target in zip(inputs, targets, strict=True)
        )
    assert torch.equal(task.answer(inputs)[:, :-1], inputs[:, 1:]) and (task.answer(inputs)[:, -1] == IGNORE).all()


def test_every_place_is_drawn(tmp_path: Path, generator: torch.Generator) -> None:
    path = tmp_path / "abc.txt"
    path.write_text("abcdefgh")
    task = make_task(path, max_len=3, valid_share=0)
    rows = {
        task.render(torch.cat([row, last[-1:]])) for row, last in zip(*task.sample(500, generator)[:2], strict=True)
    }
    assert rows == {"abcd", "bcde", "cdef", "defg", "efgh"}


def test_a_training_maps_the_tokens_from_a_file(file: Path) -> None:
    task, context = make_task(file), BatchContext(generator=torch.Generator(), folder=file.parent / "prepared")
    batch = task.batches(TrainingConfig(), context).draw(5)
    tokens = prepare_tokens(file, task.tokenizer, context.folder, progress=False)
    assert isinstance(tokens, np.memmap) and tokens.dtype == np.uint16
    assert np.array_equal(tokens, np.concatenate([task.tokens(unseen=False), task.tokens(unseen=True)]))
    assert np.array_equal(tokens, make_task(file).tokens(unseen=False).tolist() + task.tokens(unseen=True).tolist())
    again = Text.restore(task.config, task.files)
    restored = again.batches(TrainingConfig(), context).draw(5)
    assert torch.equal(batch.inputs, restored.inputs)
    assert len(list(context.folder.glob("tokens-*"))) == 1
    folder = next(context.folder.glob("tokens-*"))
    damaged = bytearray((folder / "tokens.bin").read_bytes())
    damaged[0] ^= 1
    (folder / "tokens.bin").write_bytes(damaged)
    with pytest.raises(InputError, match="is damaged: its tokens have changed since they were written; delete"):
        again.batches(TrainingConfig(), context)


def test_a_compressed_file_is_the_same_text(file: Path) -> None:
    compressed = file.with_suffix(".gz")
    compressed.write_bytes(gzip.compress(file.read_bytes()))
    assert make_task(compressed).tokens(unseen=False).tolist() == make_task(file).tokens(unseen=False).tolist()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (Path.touch, "text '.*' is empty: give a file that contains text"),
        (Path.mkdir, "'.*' is a folder: give the path of a text file"),
        (lambda path: None, "file '.*' does not exist: give the path of a text file"),
        (lambda path: path.write_bytes(bytes(range(256)) * 50), "has zero bytes"),
        (lambda path: path.write_bytes("grüße\n".encode("latin-1") * 50), "is not UTF-8: 50 of 50 lines"),
        (lambda path: path.write_bytes(b"good line\n" * 500 + b"\xff\n"), "is not UTF-8 at line 501: correct the line"),
        (lambda path: path.write_text("abc" * 10), "has 3 tokens, but max_len 16 needs at least 17"),
    ],
    ids=["empty", "folder", "missing", "binary", "latin-1", "one broken line", "short"],
)
def test_a_file_that_is_no_text_is_refused_in_one_line(
    tmp_path: Path, write: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "given.txt"
    write(path)
    with pytest.raises(InputError, match=message) as error:
        make_task(path).tokens(unseen=True)
    assert "\n" not in str(error.value)


def test_an_unreadable_file_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="cannot read '.*text.txt': Permission denied"):
        make_task(file)


def test_a_text_is_required() -> None:
    with pytest.raises(InputError, match="text needs a file: give --text FILE"):
        Text.digests(TextTaskConfig())


def test_input_outside_the_vocabulary_and_relevance_are_refused(file: Path) -> None:
    task = make_task(file)
    assert task.labels(task.parse("a b\n")[0]) == ["a", "▁", "b", "\\n"]
    with pytest.raises(InputError, match="'dog ß Ж' has tokens that do not occur in the training text: 'Ж'"):
        task.parse("dog ß Ж")
    with pytest.raises(InputError, match="has 0 tokens: text takes text of 1 to 16 tokens"):
        task.parse("")
    with pytest.raises(InputError, match="has 17 tokens"):
        task.parse("d" * 17)
    with pytest.raises(InputError, match="the relevant tokens of a text are not known"):
        task.relevance(task.parse("dog"))


def test_rare_characters_that_do_not_fit_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text.txt"
    path.write_text("ab ab ab ab ab " * 30 + "".join(map(chr, range(0x4E00, 0x4E20))))
    vocabulary = learn_vocabulary(path, "bpe", 12)
    prepare_tokens(path, vocabulary, tmp_path / "prepared")
    assert "Unknown tokens: 31 of 183 tokens (16.94%)" in capsys.readouterr().err
