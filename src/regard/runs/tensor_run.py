"""Runs whose inputs are tensors: of tasks whose answers are numbers, and of language models."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import Limits, check_value, public
from regard.attention.interventions import record_own
from regard.attention.names import find_name, short_name
from regard.attention.records import check_indices
from regard.decoding.translation import Candidate
from regard.errors import InputError, check_range
from regard.evaluation.accuracy import TokenFigures, exact_match, fresh_batches, measure_tokens, next_token_losses
from regard.interpret.linear_pass import own_forward_pass
from regard.models.base import AnswerModel, LanguageModel
from regard.result import Result, percent
from regard.runs.run import Figures, Run, add_note, visible
from regard.streams import make_generator
from regard.tasks.base import Task
from regard.tasks.batch import Batch, TokenBatch
from regard.tasks.text import Text
from regard.tasks.tokens import TokenTask
from regard.training.config import ModelPart, TaskPart
from regard.viz.attention_map import AttentionMap, Playback, attach_original
from regard.viz.maps import CROSS, LayerKind, make_layer_map
from regard.viz.subject import ForwardPass, ProbeInput, Traits

if TYPE_CHECKING:
    from regard.interpret.alignment import RelevanceShare

DEFAULT_NEW, DEFAULT_TEXT = 20, 200  # Number of tokens that `generate` adds to a prompt, and to a text
HEADS_PER_LINE = 5  # Number of heads that fit on a line of 80 characters
REST = "rest"  # Label of the additional learned step of a model trained on all lengths


@dataclass(frozen=True, repr=False)
class TensorRun(Run[TaskPart, ModelPart]):
    """Base class of runs whose inputs are tensors (T,) or (T, W): `AnswerRun` and `LanguageRun`."""

    task: Task | TokenTask
    chunk: ClassVar[int]  # Number of inputs per forward pass

    def attend(
        self, input: str | None = None, *, sample_len: int | None = None, signal: str | None = None, seed: int = 0
    ) -> AttentionMap:
        """Answer an input such as `"BCCCBAABACCCA"`, and return the attention of each layer.

        If `input` is None, a random input is generated with `seed`, `sample_len` letters or tokens and, for a
        task with signals, the signals `signal`. During an intervention, the map describes the intervention, and
        `original` is the map without the intervention. Raises `InputError` for an invalid input.
        """
        inputs = self._inputs(input, sample_len, signal, seed)
        attention = attach_original(self.model, self.where, partial(self._map, self.model, inputs))
        return add_note(attention, self.unusual(inputs.shape[1]))

    def playback(
        self, input: str | None = None, *, sample_len: int | None = None, signal: str | None = None, seed: int = 0
    ) -> Playback:
        """Return the attention map for an input at each training snapshot; options as in `attend`.

        Raises `InputError` for a run without snapshots.
        """
        inputs = self._inputs(input, sample_len, signal, seed)
        return self._play_back(lambda model: self._map(model, inputs))

    def draw(self, *, sample_len: int | None = None, signal: str | None = None, seed: int = 0) -> str:
        """Return a random input that is not in the training data; options as in `attend`."""
        return self.task.render(self._drawn(sample_len, signal, seed)[0])

    def check(self, input: str) -> None:
        self.task.parse(input)

    def forward_pass(self, input: str) -> ForwardPass:
        inputs = self.task.parse(input).to(next(self.model.parameters()).device)
        return own_forward_pass(self.model.eval(), partial(self.model, inputs))

    def look(self, input: Tensor) -> AttentionMap:
        return self._map(self.model, self.prepare(input).unsqueeze(0))

    def prepare(self, input: str | Tensor) -> Tensor:
        """Return the input of a text; an input is returned unchanged, if it has the task's shape and tokens."""
        tokens: Tensor = (
            self.task.parse(input)[0] if isinstance(input, str) else check_value("input", input, torch.Tensor)
        )
        symbols, shape, width = len(self.task.vocabulary), tuple(tokens.shape), self.task.input_width
        if width and (tokens.dim() != 2 or shape[1] != width):
            raise InputError(f"input of shape {shape} is not (T, {width}): give a text, or one input")
        if not width and (
            tokens.dim() != 1 or tokens.is_floating_point() or not 0 <= tokens.min() <= tokens.max() < symbols
        ):
            raise InputError(
                f"input of shape {shape} and {tokens.dtype} is not one sequence of tokens (T,) from 0 to "
                f"{symbols - 1}: give a text, or an input of `unseen`"
            )
        return tokens

    def _inputs(self, input: str | None, sample_len: int | None, signal: str | None, seed: int) -> Tensor:
        """Return `input` as a batch (1, T), or a random batch if `input` is None."""
        if input is None:
            return self._drawn(sample_len, signal, seed)
        if sample_len is not None or signal is not None:
            raise InputError(f"input is given: leave out {' and '.join(self.drawn_by)}, only for random inputs")
        return self.task.parse(input)

    def _logits(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(inputs.to(next(self.model.parameters()).device))
        return logits

    @torch.inference_mode()
    def losses(self, inputs: Sequence[Tensor]) -> np.ndarray:
        self.model.eval()
        inputs = [self.prepare(input) for input in inputs]
        losses = np.zeros((len(inputs), 2))
        for length in sorted(set(map(len, inputs))):
            rows = [row for row, tokens in enumerate(inputs) if len(tokens) == length]
            for begin in range(0, len(rows), self.chunk):
                chunk = rows[begin : begin + self.chunk]
                losses[chunk] = self._batch_losses(torch.stack([inputs[row] for row in chunk]))
        return losses

    def trial(self, input: Tensor) -> ProbeInput:
        input = self.prepare(input)
        batch, reads_tokens = input.unsqueeze(0), not self.task.input_width
        return ProbeInput(
            run=lambda count: self._logits(batch.expand(count, *batch.shape[1:])),
            embedding=self.model.input_embedding,
            layers=[*map(short_name, self.model.cross_layers)],
            relevant=self.task.relevance(batch)[0].numpy() if getattr(self.task, "knows_relevance", True) else None,
            tokens=input if reads_tokens else None,
            run_tokens=self._logits if reads_tokens else None,
            alphabet=range(len(self.task.vocabulary)),
        )

    @abstractmethod
    def _batch_losses(self, inputs: Tensor) -> Any:
        """Return `losses` of inputs (N, T) of one length."""

    @abstractmethod
    def _drawn(self, sample_len: int | None, signal: str | None, seed: int) -> Tensor:
        """Return a random batch (1, T)."""

    @abstractmethod
    def _map(self, model: Any, inputs: Tensor) -> AttentionMap:
        """Return the attention map of a model, such as that of a snapshot, on one input (1, T)."""

    @abstractmethod
    def unusual(self, steps: int) -> str:
        """Return a warning if no training input has this number of steps, else an empty string."""


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
    chunk = 1000

    def test(
        self,
        *,
        samples: Annotated[int, Limits(1, 10**8)] = 10_000,
        sample_len: int | None = None,
        signal: str | None = None,
        seed: int = 0,
    ) -> TestReport:
        """Test on unseen samples: exact match, and fraction of attention on relevant inputs.

        `sample_len`: number of letters per sample, by default as in training. `signal`: letters of the signals. The
        samples are generated with `seed`, independently of the training data. Raises `InputError` for invalid options.
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

    def _batch_losses(self, inputs: Tensor) -> np.ndarray:
        logits = self.model(inputs)
        losses = F.cross_entropy(logits.flatten(0, 1), self.task.answer(inputs).flatten(), reduction="none")
        sums = losses.view(len(inputs), -1).sum(1).double().cpu().numpy()
        return np.stack([sums, np.full(len(sums), self.task.outputs)], 1)

    def figures(self, *, seed: int = 0) -> Figures:
        """Return the measurements for a comparison, on samples of full length.

        The length is fixed even after training with vary_len, so that exact match is comparable between runs.
        """
        report = self.test(seed=seed, sample_len=self.max_len)
        share = report.relevance
        attention: dict[str, Any] = {} if share is None else {"relevance": max(share.heads), "uniform": share.uniform}
        return Figures(exact_match=report.exact_match, **attention)


# Runs of language models: test them, continue prompts, and inspect their attention.


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class LanguageReport(Result):
    """Result of a test on unseen sequences."""

    samples: int
    sample_len: int | None
    """Number of tokens in each sequence; None for the training lengths."""
    figures: TokenFigures
    measure: str
    """Name of the loss."""
    note: str = ""
    """Warning about a length that does not occur in the training data; empty for all other lengths."""

    @property
    def exact_match(self) -> float:
        """Fraction (0 to 1) of correct outputs."""
        return self.figures.exact_match

    @property
    def loss(self) -> float:
        """Mean loss over all outputs: cross-entropy in nats, or half the squared error of real outputs."""
        return self.figures.loss

    @property
    def perplexity(self) -> float:
        """Exponential of the cross-entropy: the number of equally likely tokens that gives the same loss."""
        return math.exp(min(self.loss, 700.0))

    def __str__(self) -> str:
        perplexity = "" if self.measure != "loss" else f", perplexity {self.perplexity:.3f}"
        lines = [
            f"Exact match: {percent(self.exact_match, 2)} of {self.figures.outputs:,} outputs in "
            f"{self.samples:,} unseen sequences, {self.measure} {self.loss:.4f}{perplexity}",
            *([f"Note: {self.note}"] if self.note else []),
        ]
        if self.figures.uniform is not None:
            lines.append(f"Attention on relevant inputs (uniform attention: {percent(self.figures.uniform)}):")
        for name, heads in self.figures.relevance.items():
            shares = "   ".join(f"head {head} {percent(share)}" for head, share in enumerate(heads))
            lines.append(f"  {name}: {shares}")
        return "\n".join(lines)


@public
@dataclass(frozen=True, repr=False)
class LanguageRun(TensorRun[TaskPart, ModelPart]):
    """A run of a language model."""

    task: TokenTask
    model: LanguageModel
    drawn_by = ("sample_len",)
    chunk = 500

    @property
    def traits(self) -> Traits:
        return Traits(measure="squared error / 2" if self.task.input_width else "loss")

    def test(self, *, samples: int = 1000, sample_len: int | None = None, seed: int = 0) -> LanguageReport:
        """Test on unseen sequences: fraction of correct outputs, loss, and attention on relevant inputs.

        `sample_len`: number of tokens in each sequence; by default the training lengths. The sequences are
        drawn with `seed`, independently of the training data. Raises `InputError` for invalid options.
        """
        check_range("samples", samples, 1, 10**7)
        batches = self._batches(samples, make_generator(seed, "test"), sample_len=sample_len)
        figures = measure_tokens(self.model, self.task, batches)
        note = "" if sample_len is None else self.unusual(sample_len)
        return LanguageReport(
            samples=samples, sample_len=sample_len, figures=figures, measure=self.traits.measure, note=note
        )

    def _batches(self, samples: int, generator: torch.Generator, **options: Any) -> Iterator[TokenBatch]:
        return fresh_batches(self.task, samples, generator, size=self.chunk, unseen=True, **options)

    def unusual(self, steps: int) -> str:
        longest = self.task.lengths[-1]
        if steps <= longest:
            return ""
        return f"training inputs have at most {longest} tokens, but this input has {steps}: expect errors"

    def generate(
        self,
        prompts: str | Iterable[str],
        *,
        new: int | None = None,
        beam: int = 1,
        n_best: int = 1,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[list[Candidate]]:
        """Return the `n_best` continuations of each prompt, best first, each with `new` tokens (default: 200 of a text;
        else 20, or fewer if the model has fewer positions left). A continuation that begins with a new word begins with
        a space. Beyond the length of its training texts, a model of a text reads only the last half of it.

        `beam`: beam size; 1 is greedy search. `temperature` above 0: sample by `seed` instead, with `top_k`
        from the likeliest tokens only, with `top_p` from the fewest tokens that have this share of the
        probability. Raises `InputError` for an invalid prompt, and for options that exclude each other.

            run.generate("CADBFED", new=2)[0][0].text
        """
        from regard.decoding.generation import generate
        from regard.decoding.translation import Search

        if self.task.input_width:
            raise InputError(
                f"{self.name} has real-valued inputs, and its outputs cannot be used as inputs: use `test`"
            )
        search = Search(beam=beam, n_best=n_best, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        tokens = [self.task.parse(prompt)[0].tolist() for prompt in prompts]
        slide = isinstance(self.task, Text) and beam == 1
        longest = self.task.longest if slide or self.model.learned_positions is not None else None
        if new is None:
            left = DEFAULT_NEW if longest is None else longest - max(map(len, tokens), default=0)
            new = DEFAULT_TEXT if slide else max(1, min(DEFAULT_NEW, left))
        answers = generate(self.model, tokens, search, most=new, longest=longest, slide=slide)
        found = list[list[Candidate]]()
        for text, prompt, ranked in zip(prompts, map(torch.tensor, tokens), answers, strict=True):
            # A space at the end of a prompt may be no token, and then is the space before the continuation.
            space = " " * (text[-1:].isspace() > self.task.render(prompt)[-1:].isspace())
            ends = [self.task.continuation(prompt, torch.tensor(best.tokens)).removeprefix(space) for best in ranked]
            found.append([Candidate(text=end, **vars(best)) for end, best in zip(ends, ranked, strict=True)])
        return found

    def _drawn(self, sample_len: int | None, signal: str | None, seed: int) -> Tensor:
        if signal is not None:
            raise InputError(f"signal {signal!r} does not fit: {self.name} has no signals")
        batch = self.task.sample(1, make_generator(seed, "sample"), sample_len=sample_len, unseen=True)
        return batch.inputs if batch.mask is None else batch.inputs[:, batch.mask[0]]

    @torch.inference_mode()
    def _map(self, model: LanguageModel, inputs: Tensor) -> AttentionMap:
        # `outputs` and `probabilities` are those of the most likely next token at each position. Prediction and
        # truth are the outputs of the task.
        model.eval()
        with record_own(model) as records:
            logits = model(inputs.to(next(model.parameters()).device))[0].float().cpu()
        task, targets = self.task, self.task.answer(inputs)[0]
        is_output = TokenBatch(inputs, targets[None], None).is_output[0]
        labels = [visible(label) for label in task.labels(inputs[0])]
        probabilities: list[float] = []
        if task.input_width:
            outputs = [f"{value:.2f}" for value in logits[:, 0].tolist()]
            prediction = " ".join(label for label, shown in zip(outputs, is_output, strict=True) if shown)
            truth = " ".join(f"{value:.2f}" for value in targets[is_output].tolist())
        else:
            best, predicted = logits.softmax(-1).max(-1)
            probabilities, outputs = best.tolist(), [visible(label) for label in task.labels(predicted)]
            prediction, truth = task.render(predicted[is_output]), task.render(targets[is_output])
        relevant = task.relevance(inputs)[0].numpy() if task.knows_relevance else None
        layers = {}
        for full, record in records.items():
            name, weights = short_name(full), record.weights[0].float().cpu().numpy()
            own = make_layer_map(name, weights, {"decoder": (labels, labels)}, None)
            title = own.title.replace(" of the outputs", "")
            layers[name] = dataclasses.replace(own, relevant=relevant, title=title)
        positions = model.learned_positions
        return AttentionMap(
            task=task.name,
            input=task.render(inputs[0]),
            prediction=prediction,
            truth=truth if bool(is_output.any()) else None,
            layers=layers,
            outputs=outputs,
            probabilities=probabilities,
            position_norms=None if positions is None else positions.norm(dim=-1).tolist(),
        )

    def called(self, classes: Sequence[int]) -> list[str]:
        if self.task.input_width:
            return ["value" for _ in classes]
        check_indices("class", classes, len(self.task.vocabulary))
        return self.task.labels(torch.tensor(list(classes)))

    @property
    def draws(self) -> bool:
        try:
            self.task.sample(1, make_generator(0, "sample"), unseen=True)
        except InputError:
            return False  # the text was removed
        return True

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Tensor]:
        """Return inputs (T,) without padding, generated independently of the training data."""
        batches = self._batches(samples, make_generator(seed, purpose))
        return [
            inputs if batch.mask is None else inputs[batch.mask[row]]
            for batch in batches
            for row, inputs in enumerate(batch.inputs)
        ]

    def _batch_losses(self, inputs: Tensor) -> Tensor:
        return next_token_losses(self.model, inputs, self.task.answer(inputs))

    def trial(self, input: Tensor) -> ProbeInput:
        return super().trial(input)._replace(causal=True, steps=self.task.answer_steps(self.prepare(input)))

    def figures(self, *, seed: int = 0) -> Figures:
        figures = self.test(seed=seed).figures
        heads = [share for layer in figures.relevance.values() for share in layer]
        uniform = figures.uniform if heads else None
        return Figures(exact_match=figures.exact_match, relevance=max(heads, default=None), uniform=uniform)
