"""A run on a task with a number for each output step: test it, and see what it attends to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.api.playback import Playback, play_back
from regard.api.run import Run
from regard.errors import InputError, check_range
from regard.evaluation import exact_match, fresh_batches
from regard.inspection import (
    CROSS,
    AttentionMap,
    Examination,
    HeadImportance,
    RelevanceShare,
    attend,
    examine,
    head_importance,
    probe,
    relevance_share,
)
from regard.models import PoolingModel, QueryModel
from regard.tasks import Task
from regard.training import generator_of


@dataclass(frozen=True, kw_only=True)
class TestReport:
    """What a test over fresh samples found."""

    samples: int
    sample_len: int | None
    """Letters in each sample; None: every length up to max_len, as in training with vary_len."""
    max_len: int
    exact_match: float
    """Share of samples (0 to 1) of which all outputs are right."""
    relevance: RelevanceShare | None
    """None for a model without attention."""

    def __str__(self) -> str:
        lengths = f"up to {self.max_len}" if self.sample_len is None else self.sample_len
        matches = f"Exact match: {self.exact_match:.2%} of {self.samples:,} fresh samples of {lengths} letters"
        if self.relevance is None:
            return matches
        heads = "   ".join(f"head {head} {share:.1%}" for head, share in enumerate(self.relevance.heads))
        return (
            f"{matches}\n"
            f"Attention on relevant inputs: {heads}   (uniform attention: {self.relevance.uniform:.1%})"
        )


@dataclass(frozen=True)
class AnswerRun(Run):
    """A run on a task with a number for each output step."""

    task: Task
    model: QueryModel | PoolingModel

    def test(
        self,
        *,
        samples: int = 10_000,
        sample_len: int | None = None,
        signal: str | None = None,
        seed: int = 0,
    ) -> TestReport:
        """Test on fresh samples: exact match, and the share of attention on relevant inputs.

        `sample_len` letters each (default: as in training), signals fixed by `signal`; `seed` chooses the
        samples, which are drawn apart from those of training. Raises `InputError` where a value does not fit.
        """
        check_range("samples", samples, 1, 10**8)
        check_range("seed", seed, 0, 2**32 - 1)
        vary_len = self.config.training.vary_len and sample_len is None

        def batches() -> Iterator[Any]:
            generator = generator_of(seed, "test")
            return fresh_batches(
                self.task, samples, generator, sample_len=sample_len, vary_len=vary_len, signal=signal
            )

        attends = isinstance(self.model, QueryModel) or self.model.cross is not None
        return TestReport(
            samples=samples,
            sample_len=None if vary_len else sample_len or self.config.size.max_len,
            max_len=self.config.size.max_len,
            exact_match=exact_match(self.model, batches()),
            relevance=relevance_share(self.model, self.task, batches()) if attends else None,
        )

    def attend(
        self,
        input: str | None = None,
        *,
        sample_len: int | None = None,
        signal: str | None = None,
        seed: int = 0,
    ) -> AttentionMap:
        """Answer one input, such as `"BCCCBAABACCCA"`, and keep what each layer attended to.

        Without `input`, draw one with `sample_len` letters, signals fixed by `signal`, by `seed`. Raises
        `InputError` where the input does not fit the task.
        """
        return attend(self.model, self.task, self._inputs(input, sample_len, signal, seed))

    def importance(self, *, samples: int = 1000, seed: int = 0) -> HeadImportance:
        """Return by how much the loss rises when each head is off, over unseen samples of full length.

        Raises `InputError` for a model without attention.
        """
        check_range("samples", samples, 1, 10**7)
        batches = list(fresh_batches(self.task, samples, generator_of(seed, "importance")))

        def loss() -> float:
            losses = [
                F.cross_entropy(self.model(inputs, mask).flatten(0, 1), targets.flatten(), reduction="sum")
                for inputs, targets, mask in batches
            ]
            return sum(losses).item() / (samples * self.task.outputs)  # type: ignore[union-attr]

        return head_importance(self.model, loss, samples)

    def examine(self, *, samples: int = 200, seed: int = 0) -> Examination:
        """Ask what the attention to the inputs means, over unseen samples: see `regard.inspection.examination`.

        Raises `InputError` for a model without attention.
        """
        check_range("samples", samples, 2, 10**5)
        importance = self.importance(seed=seed)
        probes, relevance = [], []
        for inputs in self.task.sample(samples, generator_of(seed, "examine")).inputs:

            def run(count: int, inputs: Tensor = inputs) -> Tensor:
                return self.model(inputs.expand(count, -1))

            probes.append(probe(self.model, self.model.embedding, run, [CROSS]))
            relevance.append(self.task.relevance(inputs.unsqueeze(0))[0].numpy())
        return examine(probes, relevance, importance, task=self.task.name, seed=seed)

    def playback(
        self,
        input: str | None = None,
        *,
        sample_len: int | None = None,
        signal: str | None = None,
        seed: int = 0,
    ) -> Playback:
        """Return how attention on one input formed during training; the rest is as in `attend`.

        Raises `InputError` where the run has kept no snapshots.
        """
        inputs = self._inputs(input, sample_len, signal, seed)
        return play_back(self.folder, self.model, lambda model: attend(model, self.task, inputs))

    def draw(self, *, sample_len: int | None = None, signal: str | None = None, seed: int = 0) -> str:
        """Return a drawn input; the rest is as in `attend`."""
        return self.task.render(self._inputs(None, sample_len, signal, seed)[0])

    def _inputs(self, input: str | None, sample_len: int | None, signal: str | None, seed: int) -> Tensor:
        """Return one input (1, T): the one that is given, or a drawn one."""
        if input is None:
            generator = generator_of(seed, "sample")
            return self.task.sample(1, generator, sample_len=sample_len, signal=signal).inputs
        if sample_len is not None or signal is not None:
            raise InputError("input is given: leave out sample_len and signal, which are for drawn samples")
        return self.task.parse(input)
