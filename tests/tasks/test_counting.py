"""Counting, Difference, Signal and Signal 2."""

import pytest
import torch
from hypothesis import given, strategies as st

from regard.tasks.base import TaskConfig
from regard.tasks.counting import Counting, Difference, Signal, Signal2


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


@pytest.mark.parametrize("task", [Signal(), Signal2()], ids=["signal", "signal2"])
@given(data=st.data())
def test_answer_and_relevance_equal_naive_loops(task: Signal, data: st.DataObject) -> None:
    text = data.draw(st.text(alphabet="ABC", min_size=task.signals + 1, max_size=task.signals + 10))
    inputs = task.parse(text)
    signals, letters = text[: task.signals], text[task.signals :]
    assert task.answer(inputs).tolist() == [[letters.count(signal) for signal in signals]]
    for output, signal in enumerate(signals):
        expected = [step == output for step in range(task.signals)] + [each == signal for each in letters]
        assert task.relevance(inputs)[0, output].tolist() == expected


def test_signals_do_not_count_themselves() -> None:
    assert Signal().answer(Signal().parse("BBABC")).tolist() == [[2]]
    assert Signal2().answer(Signal2().parse("CBBBABC")).tolist() == [[1, 2, 2]]


def test_a_signal_can_be_fixed() -> None:
    generator = torch.Generator().manual_seed(0)
    assert set(Signal().sample(50, generator, signal="B").inputs[:, 0].tolist()) == {1}
    assert (Signal2().sample(50, generator, signal="C").inputs[:, :3] == 2).all()
    assert Signal2().sample(2, generator, signal="CAB").inputs[:, :3].tolist() == [[2, 0, 1]] * 2


def test_outputs_are_named_by_the_letters_they_count() -> None:
    task = Signal2()
    assert task.output_labels(task.parse("CBBA")[0]) == ["count C", "count B (1st)", "count B (2nd)"]
