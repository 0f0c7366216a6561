"""Runs of tasks whose answers are numbers: test a run and inspect its attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import Limits, public
from regard.attention.interventions import record_own
from regard.attention.names import find_name, short_name
from regard.attention.records import check_indices
from regard.evaluation.accuracy import exact_match, fresh_batches
from regard.result import Result, percent
from regard.runs.run import Figures, TensorRun, visible
from regard.streams import make_generator
from regard.training.config import ModelPart, TaskPart
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import CROSS, LayerKind, make_layer_map
from regard.viz.subject import ProbeInput

if TYPE_CHECKING:
    from regard.interpret.alignment import RelevanceShare
    from regard.models.base import AnswerModel
    from regard.tasks.base import Task
    from regard.tasks.batch import Batch

HEADS_PER_LINE = 5
"""Number of heads that fit on a line of 80 characters."""
CHUNK = 1000
"""Inputs per forward pass."""
REST = "rest"
"""Label of the additional learned step of a model trained on all lengths."""


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
        matches = f"Exact match: {percent(self.exact_match, 2)} of {self.samples:,} fresh samples of {lengths} letters"
        matches += f"\nNote: {self.note}" if self.note else ""
        if self.relevance is None:
            return matches
        shares = [f"head {head} {percent(share)}" for head, share in enumerate(self.relevance.heads)]
        begins = range(0, len(shares), HEADS_PER_LINE)
        lines = ["   ".join(shares[begin : begin + HEADS_PER_LINE]) for begin in begins]
        title = f"Attention on relevant inputs (uniform attention: {percent(self.relevance.uniform)}):"
        return "\n  ".join([f"{matches}\n{title}", *lines])


@public
@dataclass(frozen=True, repr=False)
class AnswerRun(TensorRun[TaskPart, ModelPart]):
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
        from regard.interpret.alignment import relevance_share

        vary_len = self.config.training.vary_len and sample_len is None

        def batches() -> Iterator[Batch]:
            generator = make_generator(seed, "test")
            return fresh_batches(self.task, samples, generator, sample_len=sample_len, vary_len=vary_len, signal=signal)

        attends = bool(self.model.cross_layers)
        return TestReport(
            samples=samples,
            sample_len=None if vary_len else sample_len or self.max_len,
            max_len=self.max_len,
            exact_match=exact_match(self.model, batches()),
            relevance=relevance_share(self.model, self.task, batches()) if attends else None,
            note=self.unusual(self.task.signals + (self.max_len if sample_len is None else sample_len)),
        )

    def unusual(self, steps: int) -> str:
        letters = steps - self.task.signals
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

    def _drawn(self, sample_len: int | None, signal: str | None, seed: int) -> Tensor:
        generator = make_generator(seed, "sample")
        return self.task.sample(1, generator, sample_len=sample_len, signal=signal).inputs

    @torch.inference_mode()
    def _map(self, model: AnswerModel, inputs: Tensor) -> AttentionMap:
        if model.training:
            model.eval()
        with record_own(model) as records:
            positions, logits = model.learned_positions, model(inputs)
        task, relevance = self.task, self.task.relevance(inputs)[0].numpy()
        probabilities, prediction = logits[0].softmax(-1).max(-1)
        text, outputs = task.render(inputs[0]), task.output_labels(inputs[0])
        letters = list(map(visible, text))
        layers = {}
        for full, record in records.items():
            name, weights = short_name(full), record.weights[0].float().numpy()
            rest = weights.shape[-1] - len(letters)
            # The rest step (the additional learned step) does not represent an input, so no answer depends on
            # the rest step.
            relevant = np.pad(relevance, ((0, 0), (0, rest))) if find_name(full, model.cross_layers) else None
            # A pooling model has one query for all outputs.
            queries = outputs if weights.shape[1] == len(outputs) else ["all outputs"]
            if relevant is not None and len(queries) < len(relevant):
                relevant = np.logical_or.reduce(relevant, axis=0, keepdims=True)
            labels: dict[LayerKind, tuple[list[str], list[str]]] = {
                "encoder": (letters, letters),
                "decoder": (outputs, outputs),
                CROSS: (queries, letters + [REST] * rest),
            }
            layers[name] = make_layer_map(name, weights, labels, relevant)
        return AttentionMap(
            task=task.name,
            input=text,
            prediction=prediction.tolist(),
            truth=task.answer(inputs)[0].tolist(),
            layers=layers,
            outputs=outputs,
            probabilities=probabilities.tolist(),
            position_norms=None if positions is None else positions.norm(dim=-1).tolist(),
        )

    def called(self, classes: Sequence[int]) -> list[str]:
        check_indices("class", classes, self.task.classes)
        return [str(number) for number in classes]

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Tensor]:
        """Return inputs (T,) of full length, generated independently of the training data."""
        drawn = fresh_batches(self.task, samples, make_generator(seed, purpose))
        return [inputs for batch in drawn for inputs in batch.inputs]

    @torch.inference_mode()
    def losses(self, inputs: Sequence[Tensor]) -> np.ndarray:
        self.model.eval()
        chunks = [np.zeros(0)]
        for begin in range(0, len(inputs), CHUNK):
            batch = torch.stack([self.prepare(input) for input in inputs[begin : begin + CHUNK]])
            logits = self.model(batch)
            losses = F.cross_entropy(logits.flatten(0, 1), self.task.answer(batch).flatten(), reduction="none")
            chunks.append(losses.view(len(batch), -1).sum(1).double().cpu().numpy())
        sums = np.concatenate(chunks)
        return np.stack([sums, np.full(len(sums), self.task.outputs)], 1)

    def trial(self, input: Tensor) -> ProbeInput:
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
