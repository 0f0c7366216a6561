"""Token batches, and the common behavior of all tasks for language models."""

import itertools

import pytest
import torch
from torch import Tensor

from regard.errors import InputError
from regard.tasks.batch import IGNORE, BatchContext, TokenBatch
from regard.tasks.language_tasks import Induction, InductionTaskConfig
from regard.tasks.tokens import PADDING
from regard.training.config import TrainingConfig


def make_batch() -> TokenBatch:
    targets = torch.tensor([[1, IGNORE], [2, 3], [IGNORE, IGNORE]])
    return TokenBatch(torch.arange(6).view(3, 2), targets, torch.tensor([[1, 1], [1, 1], [1, 0]]).bool())


def make_task() -> Induction:
    return Induction(InductionTaskConfig(max_len=48, repeated=16, vocab_size=62))


def test_a_batch_counts_its_outputs() -> None:
    assert make_batch().tokens == 3
    real = TokenBatch(torch.zeros(1, 2, 3), torch.tensor([[float("nan"), 0.5]]), None)
    assert real.tokens == 1 and real.is_output.tolist() == [[False, True]]


def test_processes_share_the_rows_of_a_batch() -> None:
    batch = make_batch()
    shares = [batch.share(rank, 2) for rank in range(2)]
    assert [share.inputs.tolist() for share in shares] == [[[0, 1], [4, 5]], [[2, 3]]]
    assert sum(share.tokens for share in shares) == batch.tokens
    without_rows = batch.share(3, 4)
    assert without_rows.inputs.shape == (1, 2) and without_rows.tokens == 0


def test_padding_changes_neither_tokens_nor_answers(generator: torch.Generator) -> None:
    task = make_task()
    inputs, targets, mask = task.sample(50, generator, vary_len=True)
    assert mask is not None and len(set(mask.sum(1).tolist())) > 5
    for row, target, present in zip(inputs, targets, mask, strict=True):
        assert present.tolist() == sorted(present.tolist(), reverse=True)
        assert torch.equal(task.answer(row[present][None])[0], target[present])
        assert (row[~present] == PADDING).all() and (target[~present] == IGNORE).all()


def test_equal_seeds_give_equal_batches_and_other_steps_others() -> None:
    def draw(seed: int, step: int) -> Tensor:
        settings, task = TrainingConfig(seed=seed), make_task()
        batch = task.batches(settings, BatchContext(generator=torch.Generator())).draw(step)
        assert isinstance(batch, TokenBatch)
        return batch.inputs

    assert torch.equal(draw(0, 7), draw(0, 7))
    for first, second in itertools.combinations([(0, 7), (0, 8), (1, 7)], 2):
        assert not torch.equal(draw(*first), draw(*second))


def test_text_that_is_not_an_input_is_refused() -> None:
    task = make_task()
    with pytest.raises(InputError, match="input '' has 0 tokens: induction takes 1 to 48 tokens: A, B, C, ..., 7"):
        task.parse("")
    with pytest.raises(InputError, match="has 49 tokens"):
        task.parse("A" * 49)
    with pytest.raises(InputError, match="token '_' at position 1 is not in the vocabulary: use A, B"):
        task.parse("A_B")
    assert task.render(task.parse("CADBFEDBF")[0]) == "CADBFEDBF"
    assert task.labels(task.parse("CAD")[0]) == ["C", "A", "D"]
