"""Runs of tasks whose answers are numbers: test a run and inspect its attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import Limits, public
from regard.attention.names import short_name
from regard.attention.records import check_indices
from regard.errors import InputError
from regard.evaluation.exact_match import exact_match, fresh_batches
from regard.interpret.relevance import relevance_share
from regard.result import Result, percent
from regard.runs.attention_maps import add_note, map_of_answer
from regard.runs.probe_input import prepare_tokens
from regard.runs.run import Figures, Run, play_back
from regard.streams import make_generator
from regard.training.config import ModelPart, TaskPart
from regard.viz.records import attach_original
from regard.viz.subject import ProbeInput

if TYPE_CHECKING:
    from rich.table import Table

    from regard.interpret.relevance import RelevanceShare
    from regard.models.base import AnswerModel
    from regard.tasks.base import Task
    from regard.tasks.batch import Batch
    from regard.viz.attention_map import AttentionMap, Playback

HEADS_PER_LINE = 5
"""Number of heads that fit on a line of 80 characters."""
CHUNK = 1000
"""Inputs per forward pass."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class TestReport(Result):
    """Result of a test on unseen samples."""

    __test__ = False  # not a test of pytest

    samples: int
    sample_len: int | None
    """Number of letters in each sample. None: all lengths up to max_len, as in training with vary_len."""
    max_len: int
    exact_match: float
    """Fraction of samples (0 to 1) whose outputs are all correct."""
    relevance: RelevanceShare | None
    """Attention on relevant inputs, or None for a model without attention."""
    note: str = ""
    """Warning about a length that is not in the training data, or an empty string."""

    def __str__(self) -> str:
        lengths = f"up to {self.max_len}" if self.sample_len is None else self.sample_len
        matches = (
            f"Exact match: {percent(self.exact_match, 2)} of {self.samples:,} fresh samples of {lengths} letters"
        )
        matches += f"\nNote: {self.note}" if self.note else ""
        if self.relevance is None:
            return matches
        shares = [f"head {head} {percent(share)}" for head, share in enumerate(self.relevance.heads)]
        begins = range(0, len(shares), HEADS_PER_LINE)
        lines = ["   ".join(shares[begin : begin + HEADS_PER_LINE]) for begin in begins]
        title = f"Attention on relevant inputs (uniform attention: {percent(self.relevance.uniform)}):"
        return "\n  ".join([f"{matches}\n{title}", *lines])

    def table(self) -> Table:
        from rich.table import Table

        table = Table("", "fraction", box=None, pad_edge=False)
        table.add_row(f"exact match, {self.samples:,} samples", percent(self.exact_match, 2))
        if self.relevance is not None:
            for head, share in enumerate(self.relevance.heads):
                table.add_row(f"attention on relevant inputs, head {head}", percent(share))
            table.add_row("the same for uniform attention", percent(self.relevance.uniform))
        return table


@public
@dataclass(frozen=True, repr=False)
class AnswerRun(Run[TaskPart, ModelPart]):
    """A run of a task whose answer has a number for each output step."""

    task: Task
    model: AnswerModel
    drawn_by = ("sample_len", "signal")

    def test(
        self,
        *,
        samples: Annotated[int, Limits(1, 10**8)] = 10_000,
        sample_len: int | None = None,
        signal: str | None = None,
        seed: int = 0,
    ) -> TestReport:
        """Test on unseen samples: exact match, and fraction of attention on relevant inputs.

        `sample_len`: number of letters per sample, by default as in training. `signal`: letters of the signals.
        The samples are generated with `seed`, independently of the training data. Raises `InputError` for
        invalid options.
        """
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
        """Return a warning if the number of letters does not occur in the training data, else an empty string."""
        if self.config.training.vary_len or letters == self.max_len:
            return ""
        return (
            f"all training inputs have {self.max_len} letters, this input has {letters}: expect errors; train "
            f"with --vary_len for all lengths"
        )

    def about(self) -> dict[str, Any]:
        seen = "" if self.config.training.vary_len else f"; all training inputs have {self.max_len} letters"
        return {**super().about(), "accepts": self.task.accepts + seen}

    @property
    def max_len(self) -> int:
        """Number of letters of the longest sequence."""
        return self.task.input_len - self.task.signals

    def attend(
        self,
        input: str | None = None,
        *,
        sample_len: int | None = None,
        signal: str | None = None,
        seed: int = 0,
    ) -> AttentionMap:
        """Answer an input such as `"BCCCBAABACCCA"`, and return the attention of each layer.

        If `input` is None, a random input is generated with `seed`, `sample_len` letters and the signals
        `signal`. During an intervention, the map describes the intervention, and `original` is the map without
        the intervention. Raises `InputError` for an invalid input.
        """
        inputs = self._inputs(input, sample_len, signal, seed)
        make_map = partial(map_of_answer, self.model, self.task, inputs)
        attention = attach_original(self.model, self.where, make_map)
        return add_note(attention, self.unusual(inputs.shape[1] - self.task.signals))

    def playback(
        self,
        input: str | None = None,
        *,
        sample_len: int | None = None,
        signal: str | None = None,
        seed: int = 0,
    ) -> Playback:
        """Return the attention map for an input at each training snapshot; options as in `attend`.

        Raises `InputError` for a run without snapshots.
        """
        inputs = self._inputs(input, sample_len, signal, seed)
        return play_back(self.files, self.model, partial(map_of_answer, task=self.task, inputs=inputs))

    def called(self, classes: Sequence[int]) -> list[str]:
        check_indices("class", classes, self.task.classes)
        return [str(number) for number in classes]

    def draw(self, *, sample_len: int | None = None, signal: str | None = None, seed: int = 0) -> str:
        return self.task.render(self._inputs(None, sample_len, signal, seed)[0])

    def check(self, input: str) -> None:
        """Raise `InputError` if the input is invalid for the task."""
        self.task.parse(input)

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Tensor]:
        """Return inputs (T,) of full length, generated independently of the training data."""
        drawn = fresh_batches(self.task, samples, make_generator(seed, purpose))
        return [inputs for batch in drawn for inputs in batch.inputs]

    def look(self, input: Tensor) -> AttentionMap:
        """Return the attention map for an input (T,)."""
        return map_of_answer(self.model, self.task, self.prepare(input).unsqueeze(0))

    @torch.inference_mode()
    def losses(self, inputs: Sequence[Tensor]) -> np.ndarray:
        """Return (N, 2): for each input, the total cross-entropy of its output steps in nats, and the number of
        steps."""
        self.model.eval()
        chunks = [np.zeros(0)]
        for begin in range(0, len(inputs), CHUNK):
            batch = torch.stack([self.prepare(input) for input in inputs[begin : begin + CHUNK]])
            logits = self.model(batch)
            losses = F.cross_entropy(logits.flatten(0, 1), self.task.answer(batch).flatten(), reduction="none")
            chunks.append(losses.view(len(batch), -1).sum(1).double().cpu().numpy())
        sums = np.concatenate(chunks)
        return np.stack([sums, np.full(len(sums), self.task.outputs)], 1)

    def prepare(self, input: str | Tensor) -> Tensor:
        """Return an input (T,) for a text; an input is returned unchanged. Raises `InputError` for others."""
        return prepare_tokens(self.task, input)

    def trial(self, input: Tensor) -> ProbeInput:
        """Return an input (T,) prepared for explanation methods."""
        input = self.prepare(input)
        return ProbeInput(
            run=lambda count: self._logits(input.expand(count, -1)),
            embedding=self.model.input_embedding,
            layers=[*map(short_name, self.model.cross_layers)],
            relevant=self.task.relevance(input.unsqueeze(0))[0].numpy(),
            tokens=input,
            run_tokens=self._logits,
            alphabet=range(len(self.task.vocabulary)),
        )

    def _logits(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(inputs)
        return logits

    def figures(self, *, seed: int = 0) -> Figures:
        """Return the measurements for a comparison, on samples of full length.

        The length is fixed even after training with vary_len, so that exact match is comparable between runs.
        """
        report = self.test(seed=seed, sample_len=self.max_len)
        if report.relevance is None:
            return Figures(exact_match=report.exact_match)
        return Figures(
            exact_match=report.exact_match,
            relevance=max(report.relevance.heads),
            uniform=report.relevance.uniform,
        )

    def _inputs(self, input: str | None, sample_len: int | None, signal: str | None, seed: int) -> Tensor:
        """Return `input` as a batch (1, T), or a random batch if `input` is None."""
        if input is None:
            generator = make_generator(seed, "sample")
            return self.task.sample(1, generator, sample_len=sample_len, signal=signal).inputs
        if sample_len is not None or signal is not None:
            raise InputError("input is given: leave out sample_len and signal, which apply only to random inputs")
        return self.task.parse(input)
