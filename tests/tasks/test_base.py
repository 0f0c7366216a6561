"""Behavior common to all tasks: sampling, parsing, rendering and sizes."""

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.tasks.base import PAST_END, Task, TaskConfig
from regard.tasks.counting import Counting, Difference, Signal, Signal2
from regard.tasks.recall import Recall

PRIMER = (Counting, Difference, Signal, Signal2)
each_task = pytest.mark.parametrize("task_class", PRIMER, ids=[task.name for task in PRIMER])


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@each_task
def test_equal_seeds_draw_equal_samples(task_class: type[Task]) -> None:
    task = task_class()
    first, again, other = (task.sample(50, drawn(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.inputs, again.inputs) and torch.equal(first.targets, again.targets)
    assert not torch.equal(first.inputs, other.inputs)


@each_task
def test_every_step_is_uniform_over_the_vocabulary(task_class: type[Task]) -> None:
    task = task_class(TaskConfig(max_len=5, vocab_size=4))
    inputs = task.sample(20_000, drawn()).inputs
    for step in range(task.input_len):
        shares = torch.bincount(inputs[:, step], minlength=len(task.vocabulary)) / len(inputs)
        torch.testing.assert_close(shares, torch.full_like(shares, 1 / len(task.vocabulary)), atol=0.02, rtol=0)


@each_task
def test_shapes_and_classes(task_class: type[Task]) -> None:
    task = task_class(TaskConfig(max_len=7, vocab_size=5))
    inputs, targets, mask = task.sample(11, drawn())
    assert inputs.shape == (11, task.input_len) and inputs.dtype == torch.int64
    assert targets.shape == (11, task.outputs)
    assert mask is None
    assert task.relevance(inputs).shape == (11, task.outputs, task.input_len)
    assert targets.min() >= 0 and targets.max() < task.classes == 8
    assert len(task.output_labels(inputs[0])) == task.outputs


@each_task
def test_lengths_vary_from_one_to_the_longest(task_class: type[Task]) -> None:
    task = task_class(TaskConfig(max_len=5))
    inputs, targets, mask = task.sample(2000, drawn(), vary_len=True)
    assert mask is not None
    lengths = mask.sum(1) - task.signals
    counts = torch.bincount(lengths, minlength=6)
    assert counts[0] == 0 and (counts[1:] > 300).all() and len(counts) == 6
    assert ((inputs == PAST_END) == ~mask).all()
    # Padding has no effect: the sequence without padding has the same answer and relevance.
    for row in range(20):
        alone = inputs[row : row + 1, mask[row]]
        assert torch.equal(task.answer(alone)[0], targets[row])
        relevance = task.relevance(inputs[row : row + 1])[0]
        assert torch.equal(task.relevance(alone)[0], relevance[:, mask[row]])
        assert not relevance[:, ~mask[row]].any()


@each_task
def test_sample_len(task_class: type[Task]) -> None:
    task = task_class()
    assert task.sample(3, drawn(), sample_len=1).inputs.shape == (3, task.signals + 1)
    for wrong in (0, 11, -1):
        with pytest.raises(InputError, match=f"sample_len {wrong} is out of range: choose from 1 to 10"):
            task.sample(3, drawn(), sample_len=wrong)


@each_task
@given(seed=st.integers(0, 1000), length=st.integers(1, 10))
def test_parse_reads_what_render_writes(task_class: type[Task], seed: int, length: int) -> None:
    task = task_class()
    inputs = task.sample(1, drawn(seed), sample_len=length).inputs
    text = task.render(inputs[0])
    assert torch.equal(task.parse(text), inputs)
    assert torch.equal(task.parse(text.replace(" ", "_")), inputs)


@each_task
@given(text=st.text(max_size=20))
def test_parse_reads_or_refuses_any_text(task_class: type[Task], text: str) -> None:
    task = task_class()
    try:
        inputs = task.parse(text)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        written = text.replace("_", " ") if task.null else text
        assert task.render(inputs[0]) in (written, written.upper())  # lowercase letters are accepted


def test_render_leaves_out_padding() -> None:
    assert Counting().render(torch.tensor([1, 0, 2, PAST_END, PAST_END])) == "A B"


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        (Counting(), "ABX", "letter 'X' at step 2 is not in the vocabulary: use '_' (null), A, B, C"),
        (Signal(), "AB_", "letter '_' at step 2 is not in the vocabulary: use A, B, C"),
        (Counting(), "", "input '' has 0 steps: counting takes 1 to 10 letters"),
        (Counting(), "A" * 11, "input 'AAAAAAAAAAA' has 11 steps: counting takes 1 to 10 letters"),
        (Signal(), "A", "input 'A' has 1 step: signal takes 1 signal and 1 to 10 letters"),
        (Signal2(), "ABC", "input 'ABC' has 3 steps: signal2 takes 3 signals and 1 to 10 letters"),
    ],
)
def test_parse_explains_errors(task: Task, text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        task.parse(text)
    assert str(raised.value) == message


def test_lower_case_is_accepted_if_unambiguous() -> None:
    assert torch.equal(Signal2().parse("bcCcba"), Signal2().parse("BCCCBA"))
    assert torch.equal(Counting().parse("a_b "), Counting().parse("A_B "))
    with pytest.raises(InputError, match="letter 'ß' at step 3"):
        Signal2().parse("ABCß")
    recall = Recall()
    text = recall.render(recall.sample(1, torch.Generator().manual_seed(0)).inputs[0])
    assert recall.normal(text) == text


def test_description_of_valid_inputs() -> None:
    assert Signal2().accepts == "3 signals and 1 to 10 letters: A, B, C"
    assert Counting(TaskConfig(max_len=4, vocab_size=2)).accepts == "1 to 4 letters: '_' (null), A, B"
