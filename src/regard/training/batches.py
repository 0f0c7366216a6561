"""Which samples a training step learns from, on tasks that draw their own; a corpus has `regard.text.buckets`.

Batches of pairs hold sources of like length: `RESERVE` batches are drawn at once, sorted by length and cut, and
then served in random order, so that little of the arithmetic goes into padding. Each reserve has a random
stream of its own, by its number, so a resumed training draws the same ones wherever it stopped.
"""

import torch

from regard.tasks import Batch, Pair, PairTask, Task
from regard.text import Pairs
from regard.training.settings import SampledTraining
from regard.training.streams import generator_of

RESERVE = 16
"""Batches of pairs that are drawn at once."""


class Batches:
    """The batches of one training; `generator` draws those of tasks that are not of pairs."""

    place = (0, 0, 0)
    """There is no corpus to have a place in."""

    def __init__(self, task: Task | PairTask, settings: SampledTraining, generator: torch.Generator) -> None:
        self.task, self.settings, self.generator = task, settings, generator
        self._number, self._reserve = -1, list[list[Pair]]()

    def draw(self, step: int) -> Batch | Pairs:
        """Return the batch of a training step, counted from 0."""
        size = self.settings.batchsize
        if not isinstance(self.task, PairTask):
            vary_len = getattr(self.settings, "vary_len", False)
            return self.task.sample(size, self.generator, vary_len=vary_len)
        number, index = divmod(step, RESERVE)
        if number != self._number:
            self._number, self._reserve = number, self._draw_reserve(self.task, number)
        return self.task.batch(self._reserve[index])

    def _draw_reserve(self, task: PairTask, number: int) -> list[list[Pair]]:
        size = self.settings.batchsize
        generator = generator_of(self.settings.seed, f"pairs/{number}")
        pairs = sorted(task.pairs(RESERVE * size, generator), key=lambda pair: len(pair.source))
        order = torch.randperm(RESERVE, generator=generator).tolist()
        return [pairs[place * size : (place + 1) * size] for place in order]
