"""Runs of language models: test them, continue prompts, and inspect their attention."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from regard.arguments import public
from regard.attention.interventions import record_own
from regard.attention.names import short_name
from regard.attention.records import check_indices
from regard.decoding.translation import Candidate
from regard.errors import InputError, check_range
from regard.evaluation.accuracy import TokenFigures, measure_tokens, next_token_losses
from regard.result import Result, percent
from regard.runs.run import Figures, TensorRun, visible
from regard.streams import make_generator
from regard.tasks.batch import TokenBatch
from regard.training.config import ModelPart, TaskPart
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import make_layer_map
from regard.viz.subject import ProbeInput, Traits

if TYPE_CHECKING:
    from regard.models.base import LanguageModel
    from regard.tasks.tokens import TokenTask

CHUNK = 500
"""Number of sequences per forward pass."""

DEFAULT_NEW = 20
"""Number of tokens that `generate` adds to a prompt."""


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

    @property
    def traits(self) -> Traits:
        return Traits(measure="squared error / 2" if self.task.input_width else "loss")

    def test(self, *, samples: int = 1000, sample_len: int | None = None, seed: int = 0) -> LanguageReport:
        """Test on unseen sequences: fraction of correct outputs, loss, and attention on relevant inputs.

        `sample_len`: number of tokens in each sequence; by default the training lengths. The sequences are
        drawn with `seed`, independently of the training data. Raises `InputError` for invalid options.
        """
        check_range("samples", samples, 1, 10**7)
        figures = measure_tokens(
            self.model, self.task, self._batches(samples, make_generator(seed, "test"), sample_len)
        )
        note = "" if sample_len is None else self.unusual(sample_len)
        return LanguageReport(
            samples=samples, sample_len=sample_len, figures=figures, measure=self.traits.measure, note=note
        )

    def _batches(self, samples: int, generator: torch.Generator, sample_len: int | None = None) -> Iterator[TokenBatch]:
        for done in range(0, samples, CHUNK):
            count = min(CHUNK, samples - done)
            yield self.task.sample(count, generator, sample_len=sample_len, unseen=True)

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
        """Return the `n_best` continuations of each prompt, best first, each with `new` tokens (default: 20, or
        fewer if the model has fewer positions left). The prompt and the text of a continuation are the whole
        text: a continuation that begins with a new word begins with a space.

        `beam`: beam size; 1 is greedy search. `temperature` above 0: sample by `seed` instead, with `top_k`
        from the likeliest tokens only, with `top_p` from the fewest tokens that have this share of the
        probability. Raises `InputError` for an invalid prompt, and for options that exclude each other.

            run.generate("CADBFED", new=2)[0][0].text
        """
        from regard.decoding.generation import generate
        from regard.decoding.translation import Candidate, Search

        if self.task.input_width:
            raise InputError(
                f"{self.name} has real-valued inputs, and its outputs cannot be used as inputs: use `test`"
            )
        search = Search(beam=beam, n_best=n_best, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        tokens = [self.task.parse(prompt)[0].tolist() for prompt in prompts]
        longest = None if self.model.learned_positions is None else self.task.longest
        if new is None:
            left = DEFAULT_NEW if longest is None else longest - max(map(len, tokens), default=0)
            new = max(1, min(DEFAULT_NEW, left))
        answers = generate(self.model, tokens, search, most=new, longest=longest)
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

    def losses(self, inputs: Sequence[Tensor]) -> np.ndarray:
        inputs = [self.prepare(input) for input in inputs]
        lengths = [len(tokens) for tokens in inputs]
        losses = np.zeros((len(inputs), 2))
        for length in sorted(set(lengths)):
            rows = [row for row, other in enumerate(lengths) if other == length]
            for begin in range(0, len(rows), CHUNK):
                chunk = rows[begin : begin + CHUNK]
                batch = torch.stack([inputs[row] for row in chunk])
                losses[chunk] = next_token_losses(self.model, batch, self.task.answer(batch)).numpy()
        return losses

    def trial(self, input: Tensor) -> ProbeInput:
        input = self.prepare(input)
        batch, reads_tokens = input.unsqueeze(0), not self.task.input_width
        return ProbeInput(
            run=lambda count: self._logits(batch.expand(count, *batch.shape[1:])),
            embedding=self.model.input_embedding,
            layers=[*map(short_name, self.model.cross_layers)],
            relevant=self.task.relevance(batch)[0].numpy() if self.task.knows_relevance else None,
            causal=True,
            tokens=input if reads_tokens else None,
            run_tokens=self._logits if reads_tokens else None,
            alphabet=range(len(self.task.vocabulary)),
            steps=self.task.answer_steps(input),
        )

    def figures(self, *, seed: int = 0) -> Figures:
        figures = self.test(seed=seed).figures
        heads = [share for layer in figures.relevance.values() for share in layer]
        if not heads:
            return Figures(exact_match=figures.exact_match)
        return Figures(exact_match=figures.exact_match, relevance=max(heads), uniform=figures.uniform)
