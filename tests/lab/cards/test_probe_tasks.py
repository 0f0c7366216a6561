"""The small tasks of the probes: answers and relevance by hand."""

import pytest
import torch

from regard.streams import make_generator
from regard.tasks.batch import IGNORE
from regard_lab.cards.probes import (
    CopyLetters,
    HelpText,
    HelpTextConfig,
    Letters,
    LettersConfig,
    ReverseLetters,
    SortLetters,
)

SIZES = LettersConfig(letters=4, test_letters=8, vocab_size=3)


@pytest.mark.parametrize(
    ("task", "inputs", "answers", "sources"),
    [
        (CopyLetters, "CAB|CA", "CAB", [0, 1, 2]),
        (ReverseLetters, "CAB|BA", "BAC", [2, 1, 0]),
        (SortLetters, "CAB|AB", "ABC", None),
    ],
)
def test_answers_and_relevance(task: type[Letters], inputs: str, answers: str, sources: list[int] | None) -> None:
    built = task(SIZES)
    tokens = built.parse(inputs)
    assert built.render(built.answer(tokens)[0][3:]) == answers
    assert (built.answer(tokens)[0][:3] == IGNORE).all()
    relevant = built.relevance(tokens)[0]
    assert not relevant[:3].any()
    for step, row in enumerate(relevant[3:]):
        assert row.nonzero().flatten().tolist() == ([0, 1, 2] if sources is None else [sources[step]])


@pytest.mark.parametrize("task", [CopyLetters, ReverseLetters, SortLetters])
def test_samples_contain_their_answers(task: type[Letters]) -> None:
    built = task(SIZES)
    inputs, targets, mask = built.sample(50, make_generator(0, "test"))
    assert mask is not None
    lengths = mask.sum(1)
    assert sorted(set(lengths.tolist())) == [4, 6, 8]
    for tokens, target, length in zip(inputs, targets, lengths.tolist(), strict=True):
        count = length // 2
        letters, answer = tokens[:count].tolist(), target[count:length].tolist()
        expected = {"copy": letters, "reverse": letters[::-1], "sort": sorted(letters)}[task.name]
        assert answer == expected
        assert tokens[count + 1 : length].tolist() == answer[:-1]
        assert (target[length:] == IGNORE).all()
        assert torch.equal(built.answer(tokens[None, :length])[0], target[:length])


def test_longer_samples_for_tests() -> None:
    inputs = CopyLetters(SIZES).sample(2, make_generator(0, "test"), sample_len=16).inputs
    assert inputs.shape == (2, 16)


def test_text_is_held_out() -> None:
    task = HelpText(HelpTextConfig(max_len=8))
    inputs, targets, _ = task.sample(64, make_generator(0, "test"), unseen=True)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    held_out = task.text[round(0.9 * len(task.text)) :]
    assert all("".join(task.vocabulary[token] for token in row) in held_out for row in inputs.tolist())
