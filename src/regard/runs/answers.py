"""A run on a task with a number for each output step: test it, and see what it attends to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError, check_range
from regard.evaluation import exact_match, fresh_batches
from regard.interpret import relevance_share
from regard.result import Result
from regard.runs.maps import map_of_answer
from regard.runs.playback import play_back
from regard.runs.run import Figures, Run
from regard.streams import make_generator
from regard.training import ModelPart, TaskPart, TrainingPart
from regard.viz import ProbeInput
from regard.viz.records import attach_original

if TYPE_CHECKING:
    from rich.table import Table

    from regard.interpret import RelevanceShare
    from regard.models import AnswerModel
    from regard.tasks import Batch, Task
    from regard.viz import AttentionMap, Playback

IN_A_LINE = 5
"""Heads that are told of in a line of 80 columns."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TestReport(Result):
    """What a test over fresh samples found."""

    __test__ = False  # pytest would take it for a test

    samples: int
    sample_len: int | None
    """Letters in each sample; None: every length up to max_len, as in training with vary_len."""
    max_len: int
    exact_match: float
    """Share of samples (0 to 1) of which all outputs are right."""
    relevance: RelevanceShare | None
    """None for a model without attention."""
    note: str = ""
    """What is unusual about the samples: a length that training has not seen; empty where nothing is."""

    def __str__(self) -> str:
        lengths = f"up to {self.max_len}" if self.sample_len is None else self.sample_len
        matches = f"Exact match: {self.exact_match:.2%} of {self.samples:,} fresh samples of {lengths} letters"
        matches += f"\nNote: {self.note}" if self.note else ""
        if self.relevance is None:
            return matches
        told = [f"head {head} {share:.1%}" for head, share in enumerate(self.relevance.heads)]
        lines = ["   ".join(told[begin : begin + IN_A_LINE]) for begin in range(0, len(told), IN_A_LINE)]
        title = f"Attention on relevant inputs (uniform attention: {self.relevance.uniform:.1%}):"
        return "\n  ".join([f"{matches}\n{title}", *lines])

    def table(self) -> Table:
        """Return the figures as a table."""
        from rich.table import Table

        table = Table("", "share", box=None, pad_edge=False)
        table.add_row(f"exact match, {self.samples:,} samples", f"{self.exact_match:.2%}")
        if self.relevance is not None:
            for head, share in enumerate(self.relevance.heads):
                table.add_row(f"attention on relevant inputs, head {head}", f"{share:.1%}")
            table.add_row("the same of uniform attention", f"{self.relevance.uniform:.1%}")
        return table


@dataclass(frozen=True, repr=False)
class AnswerRun(Run[TaskPart, ModelPart, TrainingPart]):
    """A run on a task with a number for each output step."""

    task: Task
    model: AnswerModel
    drawn_by = ("sample_len", "signal")

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

        def batches() -> Iterator[Batch]:
            generator = make_generator(seed, "test")
            return fresh_batches(
                self.task, samples, generator, sample_len=sample_len, vary_len=vary_len, signal=signal
            )

        attends = bool(self.model.cross_layers)
        return TestReport(
            samples=samples,
            sample_len=None if vary_len else sample_len or self.max_len,
            max_len=self.max_len,
            exact_match=exact_match(self.model, batches()),
            relevance=relevance_share(self.model, self.task, batches()) if attends else None,
            note=self.unusual(self.max_len if sample_len is None else sample_len),
        )

    def unusual(self, letters: int) -> str:
        """Say so where training has seen no input of so many letters; empty where it has."""
        if self.config.training.vary_len or letters == self.max_len:
            return ""
        return (
            f"training has only seen inputs of {self.max_len} letters, not of {letters}: errors are to be "
            f"expected; train with --vary_len for all lengths"
        )

    def about(self) -> dict[str, Any]:
        """Return what a page says of the run."""
        seen = "" if self.config.training.vary_len else f"; training has only seen {self.max_len} letters"
        return {**super().about(), "accepts": self.task.accepts + seen}

    @property
    def max_len(self) -> int:
        """Letters of the longest sequence."""
        return self.task.input_len - self.task.signals

    def attend(
        self,
        input: str | None = None,
        *,
        sample_len: int | None = None,
        signal: str | None = None,
        seed: int = 0,
    ) -> AttentionMap:
        """Answer one input, such as `"BCCCBAABACCCA"`, and keep what each layer attended to.

        Without `input`, draw one with `sample_len` letters, signals fixed by `signal`, by `seed`. With an
        intervention in force, the map names it and has what is answered without it, in `original`. Raises
        `InputError` where the input does not fit the task.
        """
        inputs = self._inputs(input, sample_len, signal, seed)
        found = attach_original(self.model, self.where, lambda: map_of_answer(self.model, self.task, inputs))
        return dataclasses.replace(found, note=self.unusual(inputs.shape[1] - self.task.signals))

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
        return play_back(self.files, self.model, lambda model: map_of_answer(model, self.task, inputs))

    def called(self, classes: Sequence[int]) -> list[str]:
        """Return some of the classes as text: they are numbers."""
        return [str(each) for each in classes]

    def draw(self, *, sample_len: int | None = None, signal: str | None = None, seed: int = 0) -> str:
        """Return a drawn input; the rest is as in `attend`."""
        return self.task.render(self._inputs(None, sample_len, signal, seed)[0])

    def check(self, input: str) -> None:
        """Raise `InputError` where an input does not fit the task."""
        self.task.parse(input)

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Tensor]:
        """Return inputs (T,) of full length, drawn apart from those of training."""
        drawn = fresh_batches(self.task, samples, make_generator(seed, purpose))
        return [inputs for batch in drawn for inputs in batch.inputs]

    def look(self, input: Tensor) -> AttentionMap:
        """Return what it attends to in an input (T,)."""
        return map_of_answer(self.model, self.task, input.unsqueeze(0))

    @torch.inference_mode()
    def losses(self, inputs: Sequence[Tensor]) -> np.ndarray:
        """Return (N, 2), of each input: the cross-entropy of its output steps, in nats, and their number."""
        self.model.eval()
        found = []
        for begin in range(0, len(inputs), CHUNK):
            some = torch.stack(list(inputs[begin : begin + CHUNK]))
            logits = self.model(some)
            losses = F.cross_entropy(logits.flatten(0, 1), self.task.answer(some).flatten(), reduction="none")
            found.append(losses.view(len(some), -1).sum(1).double().cpu().numpy())
        sums = np.concatenate(found)
        return np.stack([sums, np.full(len(sums), self.task.outputs)], 1)

    def trial(self, input: Tensor) -> ProbeInput:
        """Return an input (T,) ready to be probed."""
        relevant = self.task.relevance(input.unsqueeze(0))[0].numpy()

        def run(count: int) -> Tensor:
            found: Tensor = self.model(input.expand(count, -1))
            return found

        return ProbeInput(run, self.model.input_embedding, self.model.cross_layers, relevant)

    def figures(self, *, seed: int = 0) -> Figures:
        """Test on samples of full length, also where lengths varied in training: so that exact match by length
        means what it says."""
        report = self.test(seed=seed, sample_len=self.max_len)
        if report.relevance is None:
            return Figures(exact_match=report.exact_match)
        return Figures(
            exact_match=report.exact_match,
            relevance=max(report.relevance.heads),
            uniform=report.relevance.uniform,
        )

    def _inputs(self, input: str | None, sample_len: int | None, signal: str | None, seed: int) -> Tensor:
        """Return one input (1, T): the one that is given, or a drawn one."""
        if input is None:
            generator = make_generator(seed, "sample")
            return self.task.sample(1, generator, sample_len=sample_len, signal=signal).inputs
        if sample_len is not None or signal is not None:
            raise InputError("input is given: leave out sample_len and signal, which are for drawn samples")
        return self.task.parse(input)


CHUNK = 1000
"""Inputs that run through the model at once."""
