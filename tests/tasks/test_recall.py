"""Recall."""

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.tasks.base import PAST_END
from regard.tasks.recall import NOISE, VALUES, Recall, RecallTaskConfig


def test_a_worked_example() -> None:
    task = Recall(RecallTaskConfig(max_len=8))
    inputs = task.parse("C7A0dbaC")
    assert task.answer(inputs).tolist() == [[7]]
    assert task.relevance(inputs).int().tolist() == [[[1, 1, 0, 0, 0, 0, 0, 0]]]
    assert task.output_labels(inputs[0]) == ["value of C"]


@given(seed=st.integers(0, 1000), pairs=st.integers(1, 5), noise=st.integers(0, 20), vary=st.booleans())
def test_samples_are_pairs_noise_and_one_of_the_keys(seed: int, pairs: int, noise: int, vary: bool) -> None:
    task = Recall(RecallTaskConfig(max_len=2 * pairs + 1 + noise, pairs=pairs))
    inputs, targets, mask = task.sample(20, torch.Generator().manual_seed(seed), vary_len=vary)
    assert (mask is not None) == vary
    for row, target in zip(inputs, targets.tolist(), strict=True):
        text = task.render(row)
        keys, values, between = text[: 2 * pairs : 2], text[1 : 2 * pairs : 2], text[2 * pairs : -1]
        assert len(set(keys)) == pairs and set(keys) <= set(task.keys)
        assert set(values) <= set(VALUES) and set(between) <= set(NOISE)
        assert str(target[0]) == dict(zip(keys, values, strict=True))[text[-1]]
        own = row[row != PAST_END][None]
        assert task.answer(own).tolist() == [target]
        if vary:
            assert 2 * pairs + 1 <= len(text) <= task.config.max_len
        else:
            assert len(text) == task.config.max_len
        assert torch.equal(task.parse(text), own)
    if mask is not None:
        assert torch.equal(mask, inputs != PAST_END)


def test_every_key_and_value_is_drawn_and_queried(generator: torch.Generator) -> None:
    task = Recall(RecallTaskConfig(max_len=5, pairs=2, vocab_size=3))
    inputs, targets, _ = task.sample(3000, generator)
    for step in (0, 2, 4):
        shares = torch.bincount(inputs[:, step], minlength=3) / 3000
        torch.testing.assert_close(shares, torch.full((3,), 1 / 3), atol=0.04, rtol=0)
    torch.testing.assert_close(
        torch.bincount(targets[:, 0], minlength=10) / 3000, torch.full((10,), 0.1), atol=0.03, rtol=0
    )


@pytest.mark.parametrize("text", ["C7A0dbaB", "C7A0dbad", "CC", "CAdC", "C", "C7A0db7"])
def test_a_sequence_without_an_answer_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="has no answer: end with a key that precedes a value"):
        Recall().parse(text)


def test_bad_draws_are_refused(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match="sample_len 4 is out of range: choose from 5 to 50"):
        Recall().sample(1, generator, sample_len=4)
    with pytest.raises(InputError, match="recall has no signals"):
        Recall().sample(1, generator, signal="A")
