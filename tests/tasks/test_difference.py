"""Difference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.tasks import Difference, TaskConfig


@given(text=st.text(alphabet=" ABC", min_size=1, max_size=10))
def test_answer_and_relevance_are_what_naive_loops_give(text: str) -> None:
    task = Difference()
    inputs = task.parse(text)
    counts = [text.count(letter) for letter in "ABC"]
    assert task.answer(inputs).tolist() == [[*counts, abs(counts[0] - counts[1])]]
    relevant = [[each == letter for each in text] for letter in "ABC"] + [[each in "AB" for each in text]]
    assert task.relevance(inputs).tolist() == [relevant]


def test_one_letter_has_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="vocab_size 1 is too small: difference needs 2 letters"):
        Difference(TaskConfig(vocab_size=1))
