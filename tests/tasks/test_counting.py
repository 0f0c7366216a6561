"""Counting and Difference."""

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.tasks.base import TaskConfig
from regard.tasks.counting import Counting, Difference


@given(text=st.text(alphabet=" ABCDE", min_size=1, max_size=13))
def test_answer_equals_a_naive_count(text: str) -> None:
    task = Counting(TaskConfig(max_len=13, vocab_size=5))
    inputs = task.parse(text)
    assert task.answer(inputs).tolist() == [[text.count(letter) for letter in "ABCDE"]]
    assert task.relevance(inputs).tolist() == [[[each == letter for each in text] for letter in "ABCDE"]]


def test_the_example_of_the_docstring() -> None:
    assert Counting().answer(Counting().parse("AB BC")).tolist() == [[1, 2, 1]]


def test_outputs_are_named_by_their_letters() -> None:
    assert Counting().output_labels(torch.tensor([0])) == ["count A", "count B", "count C"]


@given(text=st.text(alphabet=" ABC", min_size=1, max_size=10))
def test_difference_matches_naive_loops(text: str) -> None:
    task = Difference()
    inputs = task.parse(text)
    counts = [text.count(letter) for letter in "ABC"]
    assert task.answer(inputs).tolist() == [[*counts, abs(counts[0] - counts[1])]]
    relevant = [[each == letter for each in text] for letter in "ABC"] + [[each in "AB" for each in text]]
    assert task.relevance(inputs).tolist() == [relevant]


def test_difference_needs_two_letters() -> None:
    with pytest.raises(InputError, match="vocab_size 1 is too small: difference needs 2 letters"):
        Difference(TaskConfig(vocab_size=1))
