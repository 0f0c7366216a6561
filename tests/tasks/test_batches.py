"""The samples of each training step."""

import pytest
import torch

from regard.data.vocabulary import PAD
from regard.streams import make_generator
from regard.tasks import base
from regard.tasks.batch import BatchContext
from regard.tasks.counting import Counting
from regard.tasks.pairs import BATCHES_PER_POOL, LengthSortedBatches, Reverse
from regard.tasks.recall import Recall
from regard.training.config import make_config


def batches(seed: int = 0) -> LengthSortedBatches:
    settings = make_config("reverse", {"batchsize": 8, "seed": seed}).training
    return Reverse().batches(settings, BatchContext(generator=make_generator(seed, "train")))


def test_batch_of_a_step_does_not_depend_on_the_start() -> None:
    whole, late = batches(), batches()
    drawn = [whole.draw(step) for step in range(2 * BATCHES_PER_POOL)]
    for step in (BATCHES_PER_POOL - 1, 2 * BATCHES_PER_POOL - 1, 3):
        assert torch.equal(late.draw(step).source, drawn[step].source)
    assert not torch.equal(batches(1).draw(0)[0], drawn[0][0])


def test_batches_have_similar_lengths_and_cover_all() -> None:
    drawn = [batches_once.draw(step) for step in range(4 * BATCHES_PER_POOL)]
    shares = [(batch.source != PAD).float().mean().item() for batch in drawn]
    assert sum(shares) / len(shares) > 0.9  # fraction of steps that are not padding
    lengths = torch.cat([(batch.source != PAD).sum(1) - 1 for batch in drawn])
    assert set(lengths.tolist()) == set(range(1, 21))
    widths = [batch.source.shape[1] for batch in drawn[:BATCHES_PER_POOL]]
    assert widths != sorted(widths)  # in random order


batches_once = batches()


def test_other_tasks_draw_batches_one_by_one() -> None:
    settings = make_config("counting", {"batchsize": 4}).training
    drawn = Counting().batches(settings, BatchContext(generator=make_generator(0, "train"))).draw(17)
    expected = Counting().sample(4, make_generator(0, "train"))
    assert torch.equal(drawn[0], expected.inputs)


@pytest.mark.parametrize("vary_len", [False, True])
def test_many_batches_equal_those_drawn_one_by_one(vary_len: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_config("counting", {"batchsize": 4, "vary_len": vary_len}).training
    monkeypatch.setattr(base, "MAX_LETTERS_DRAWN", 4 * 10 * 3)  # three batches
    generator = make_generator(0, "train")
    drawn, alone = Counting().batches(settings, BatchContext(generator=generator)), make_generator(0, "train")
    for step in range(8):
        # A training run that is resumed with the same generator and position samples the same batches.
        again = BatchContext(generator=generator.clone_state(), place=drawn.place)
        late = Counting().batches(settings, again)
        found, expected = drawn.draw(step), Counting().sample(4, alone, vary_len=vary_len)
        for each, other, same in zip(found, expected, late.draw(step), strict=True):
            if each is None or other is None or same is None:
                assert each is other is same
            else:
                assert torch.equal(each, other) and torch.equal(same, other)


def test_custom_sampler_draws_one_batch_at_a_time() -> None:
    settings = make_config("recall", {"batchsize": 4}).training
    drawn = Recall().batches(settings, BatchContext(generator=make_generator(0, "train")))
    assert isinstance(drawn, base.SampleBatches) and drawn.together == 1
