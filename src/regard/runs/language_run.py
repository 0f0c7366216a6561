"""Runs of language models: test them, continue prompts, and inspect their attention."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from regard.arguments import public
from regard.attention.names import short_name
from regard.attention.records import check_indices
from regard.decoding.translation import Candidate
from regard.errors import InputError, check_range
from regard.evaluation.next_tokens import TokenFigures, measure_tokens, next_token_losses
from regard.result import Result, percent
from regard.runs.attention_maps import add_note, map_of_tokens
from regard.runs.probe_input import prepare_tokens
from regard.runs.run import Figures, Run, play_back
from regard.streams import make_generator
from regard.training.config import ModelPart, TaskPart
from regard.viz.attention_map import AttentionMap, Playback
from regard.viz.records import attach_original
from regard.viz.subject import ProbeInput

if TYPE_CHECKING:
    from rich.table import Table

    from regard.models.base import LanguageModel
    from regard.tasks.batch import TokenBatch
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

    def table(self) -> Table:
        from rich.table import Table

        table = Table("", "", box=None, pad_edge=False, show_header=False)
        table.add_row("exact match", percent(self.exact_match, 2))
        table.add_row(self.measure, f"{self.loss:.4f}")
        for name, heads in self.figures.relevance.items():
            for head, share in enumerate(heads):
                table.add_row(f"attention on relevant inputs, {name}, head {head}", percent(share))
        return table


@public
@dataclass(frozen=True, repr=False)
class LanguageRun(Run[TaskPart, ModelPart]):
    """A run of a language model."""

    task: TokenTask
    model: LanguageModel
    drawn_by = ("sample_len",)

    @property
    def measure(self) -> str:
        return "squared error / 2" if self.task.input_width else "loss"

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
            samples=samples, sample_len=sample_len, figures=figures, measure=self.measure, note=note
        )

    def _batches(
        self, samples: int, generator: torch.Generator, sample_len: int | None = None
    ) -> Iterator[TokenBatch]:
        for done in range(0, samples, CHUNK):
            count = min(CHUNK, samples - done)
            yield self.task.sample(count, generator, sample_len=sample_len, unseen=True)

    def unusual(self, tokens: int) -> str:
        """Return a warning if an input has more tokens than the training data, or an empty string."""
        longest = self.task.lengths[-1]
        if tokens <= longest:
            return ""
        return f"training inputs have at most {longest} tokens, but this input has {tokens}: expect errors"

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
        search = Search(
            beam=beam,
            n_best=n_best,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
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
            ends = [
                self.task.continuation(prompt, torch.tensor(best.tokens)).removeprefix(space) for best in ranked
            ]
            found.append([Candidate(text=end, **vars(best)) for end, best in zip(ends, ranked, strict=True)])
        return found

    def attend(self, input: str | None = None, *, sample_len: int | None = None, seed: int = 0) -> AttentionMap:
        """Predict the token after each token of an input, and return the attention of each layer.

        `input` None: one drawn by `seed`, with `sample_len` tokens. During an intervention, the map names the
        intervention, and `original` is the map without the intervention. Raises `InputError` for an input that
        does not fit.
        """
        inputs = self._inputs(input, sample_len, seed)
        attention = attach_original(self.model, self.where, partial(map_of_tokens, self.model, self.task, inputs))
        return add_note(attention, self.unusual(inputs.shape[1]))

    def playback(self, input: str | None = None, *, sample_len: int | None = None, seed: int = 0) -> Playback:
        """Return the attention map for an input at each snapshot. The options are those of `attend`.

        Raises `InputError` for a run without snapshots.
        """
        inputs = self._inputs(input, sample_len, seed)
        return play_back(self.files, self.model, partial(map_of_tokens, task=self.task, inputs=inputs))

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

    def draw(self, *, sample_len: int | None = None, seed: int = 0) -> str:
        """Return a drawn input that is not in the training data. The options are those of `attend`."""
        return self.task.render(self._inputs(None, sample_len, seed)[0])

    def check(self, input: str) -> None:
        """Raise `InputError` for an input that the task does not accept."""
        self.task.parse(input)

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Tensor]:
        """Return inputs (T,) without padding, generated independently of the training data."""
        batches = self._batches(samples, make_generator(seed, purpose))
        return [
            inputs if batch.mask is None else inputs[batch.mask[row]]
            for batch in batches
            for row, inputs in enumerate(batch.inputs)
        ]

    def look(self, input: Tensor) -> AttentionMap:
        """Return the attention map for an input (T,)."""
        return map_of_tokens(self.model, self.task, self.prepare(input).unsqueeze(0))

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

    def prepare(self, input: str | Tensor) -> Tensor:
        """Return an input (T,) for a text; an input is returned unchanged. Raises `InputError` for others."""
        return prepare_tokens(self.task, input, self.task.input_width)

    def trial(self, input: Tensor) -> ProbeInput:
        """Return an input (T,) prepared for explanation methods."""
        from regard.viz.subject import ProbeInput

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

    def _logits(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(inputs.to(next(self.model.parameters()).device))
        return logits

    def figures(self, *, seed: int = 0) -> Figures:
        figures = self.test(seed=seed).figures
        heads = [share for layer in figures.relevance.values() for share in layer]
        if not heads:
            return Figures(exact_match=figures.exact_match)
        return Figures(exact_match=figures.exact_match, relevance=max(heads), uniform=figures.uniform)

    def _inputs(self, input: str | None, sample_len: int | None, seed: int) -> Tensor:
        """Return `input` as a batch (1, T), or a drawn input if `input` is None."""
        if input is None:
            batch = self.task.sample(1, make_generator(seed, "sample"), sample_len=sample_len, unseen=True)
            return batch.inputs if batch.mask is None else batch.inputs[:, batch.mask[0]]
        if sample_len is not None:
            raise InputError("input is given: leave out sample_len, which applies only to random inputs")
        return self.task.parse(input)
