"""Copy, Reverse, Sort."""

import pytest
import torch
from hypothesis import given, strategies as st

from regard.data.vocabulary import EOS, PAD
from regard.errors import InputError
from regard.tasks.pairs import Copy, Pair, PairTask, Reverse, SequenceConfig, Sort, alignment_mask


@pytest.mark.parametrize(
    ("task", "source", "target", "alignment"),
    [
        (Copy(), "CAB", "CAB", ((0,), (1,), (2,))),
        (Reverse(), "CAB", "BAC", ((2,), (1,), (0,))),
        (Sort(), "3121", "1123", ((1, 3), (1, 3), (2,), (0,))),
        (Copy(), "", "", ()),
    ],
)
def test_worked_examples(task: PairTask, source: str, target: str, alignment: tuple[tuple[int, ...], ...]) -> None:
    assert task.known(source) == Pair(source, target, alignment)


@given(digits=st.text("0123456789", max_size=20))
def test_answers_equal_pythons(digits: str) -> None:
    letters = digits.translate({ord(digit): chr(ord("A") + int(digit)) for digit in set(digits)})
    for pair, source, target in (
        (Copy().known(letters), letters, letters),
        (Reverse().known(letters), letters, letters[::-1]),
        (Sort().known(digits), digits, "".join(sorted(digits))),
    ):
        assert pair is not None and pair.target == target
        for symbol, positions in zip(pair.target, pair.alignment, strict=True):
            assert {source[position] for position in positions} == {symbol}


@pytest.mark.parametrize("source", ["A" * 21, "a", "AB1"])
def test_inputs_without_an_answer_are_refused(source: str) -> None:
    assert Reverse().known(source) is None


def test_lengths_are_uniform_and_can_be_fixed(generator: torch.Generator) -> None:
    task = Reverse(SequenceConfig(max_len=5, vocab_size=3))
    lengths = torch.tensor([len(pair.source) for pair in task.pairs(5000, generator)])
    shares = torch.bincount(lengths, minlength=6)[1:] / 5000
    torch.testing.assert_close(shares, torch.full((5,), 0.2), atol=0.03, rtol=0)
    assert {len(pair.source) for pair in task.pairs(50, generator, sample_len=4)} == {4}
    with pytest.raises(InputError, match="sample_len 6 is out of range: choose from 1 to 5"):
        task.pairs(1, generator, sample_len=6)


def test_a_batch_ends_each_sequence_and_pads_it(generator: torch.Generator) -> None:
    task = Copy(SequenceConfig(max_len=3, vocab_size=2))
    batch = task.batch([Pair("AB", "AB", ((0,), (1,))), Pair("", "", ())])
    assert batch.source.tolist() == batch.target.tolist() == [[4, 5, EOS], [EOS, PAD, PAD]]
    assert batch.source_mask.tolist() == [[True] * 3, [True, False, False]]
    assert batch.target_in.tolist() == [[1, 4, 5], [1, EOS, PAD]]
    assert torch.equal(
        task.sample(4, torch.Generator().manual_seed(1)).source, task.sample(4, torch.Generator().manual_seed(1)).source
    )


def test_links() -> None:
    found = alignment_mask([Pair("AB", "BA", ((1,), (0,))), Pair("A", "A", ((0,),))], 3, 3)
    assert found.int().tolist() == [[[0, 1, 0], [1, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0], [0, 0, 0]]]


@pytest.mark.parametrize(
    ("task", "sizes", "message"),
    [
        (Sort, {"vocab_size": 11}, "vocab_size 11 is out of range: choose from 1 to 10"),
        (Copy, {"vocab_size": 27}, "vocab_size 27 is out of range"),
        (Copy, {"max_len": 0}, "max_len 0 is out of range"),
    ],
)
def test_bad_sizes_are_refused(task: type[PairTask], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        task(SequenceConfig(**sizes))


def test_default_size_of_sort_is_valid() -> None:
    assert Sort().alphabet == "0123456789"
