"""Which samples a step learns from."""

import torch

from regard.streams import generator_of
from regard.tasks import Beginning, Counting, Reverse
from regard.tasks.pairs import RESERVE, SortedPairs
from regard.text import PAD
from regard.training import make_config


def batches(seed: int = 0) -> SortedPairs:
    settings = make_config("reverse", {"batchsize": 8, "seed": seed}).training
    return Reverse().batches(settings, Beginning(generator=generator_of(seed, "train")))


def test_a_step_draws_the_same_batch_wherever_training_began() -> None:
    whole, late = batches(), batches()
    drawn = [whole.draw(step) for step in range(2 * RESERVE)]
    for step in (RESERVE - 1, 2 * RESERVE - 1, 3):
        assert torch.equal(late.draw(step).source, drawn[step].source)
    assert not torch.equal(batches(1).draw(0)[0], drawn[0][0])


def test_batches_are_of_like_length_and_of_all_lengths() -> None:
    drawn = [batches_once.draw(step) for step in range(4 * RESERVE)]
    shares = [(batch.source != PAD).float().mean().item() for batch in drawn]
    assert sum(shares) / len(shares) > 0.9  # of the steps, so much is no padding
    lengths = torch.cat([(batch.source != PAD).sum(1) - 1 for batch in drawn])
    assert set(lengths.tolist()) == set(range(1, 21))
    widths = [batch.source.shape[1] for batch in drawn[:RESERVE]]
    assert widths != sorted(widths)  # in random order


batches_once = batches()


def test_other_tasks_are_drawn_one_batch_after_the_other() -> None:
    settings = make_config("counting", {"batchsize": 4}).training
    drawn = Counting().batches(settings, Beginning(generator=generator_of(0, "train"))).draw(17)
    expected = Counting().sample(4, generator_of(0, "train"))
    assert torch.equal(drawn[0], expected.inputs)
