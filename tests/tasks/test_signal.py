"""Signal and Signal 2."""

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.tasks.signal import Signal, Signal2


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


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        ("X", "letter 'X' at step 0 is not in the vocabulary: use A, B, C"),
        ("AB", "signal 'AB' has 2 letters: give 1 letter or 3 letters, one for each signal"),
        ("", "signal '' has 0 letters: give 1 letter or 3 letters, one for each signal"),
    ],
)
def test_invalid_signals_are_refused(signal: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        Signal2().sample(1, torch.Generator(), signal=signal)
    assert str(raised.value) == message


def test_outputs_are_named_by_the_letters_they_count() -> None:
    task = Signal2()
    assert task.output_labels(task.parse("CBBA")[0]) == ["count C", "count B (1st)", "count B (2nd)"]
