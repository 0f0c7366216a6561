"""Base class of tasks for language models: predict the next token at some positions of a sequence.

Shapes: B batch, T tokens, W numbers per input of a real-valued task. The target at a position is the next token
if this token is an output of the task, and `IGNORE` otherwise. The answer and the relevance at a position
depend only on inputs up to this position, so padding on the right never changes them.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import ClassVar

import torch
from torch import Tensor

from regard.errors import InputError, plural, shorten
from regard.streams import make_generator
from regard.tasks.base import AnyTask
from regard.tasks.batch import IGNORE, NO_POSITION, BatchContext, BatchSettings, BatchSource, TokenBatch, no_output

PADDING = 0  # Token at the positions after the end of a shorter sequence, where the mask is False
LISTED_TOKENS = 40  # Largest vocabulary that an error message lists in full


class TokenTask(AnyTask):
    """A task for language models. A task with an `input_width` has one real output per position, with the squared
    error as loss.

    Subclasses set `name`, `summary`, `defaults` and `config_class`, and define `vocabulary`, `lengths`, `draw`,
    `answer` and `relevance`.
    """

    answers = "tokens"
    knows_relevance: ClassVar[bool] = True  # Whether `relevance` is known
    varied: ClassVar[bool] = False
    """Whether the lengths of samples always vary, because the task tests length generalization."""

    vocabulary: Sequence[str] = ()
    """Text of each token, in the order of the indices. All texts have one character, or none contains a space."""

    @property
    @abstractmethod
    def lengths(self) -> range:
        """Numbers of inputs of the training samples."""

    @property
    def longest(self) -> int:
        return self.lengths[-1]

    @property
    def outputs(self) -> int:
        return len(self.vocabulary) or 1

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"symbols": self.outputs, "longest": self.longest, "input_width": self.input_width}

    @abstractmethod
    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        """Draw inputs (B, T) for `lengths` (B,), where T is the largest length. The tokens after the end are arbitrary.

        `unseen`: draw only samples that are held out from training, if the task holds out samples.
        """

    @abstractmethod
    def answer(self, inputs: Tensor) -> Tensor:
        """Return the targets (B, T) of inputs (B, T) without padding."""

    @abstractmethod
    def relevance(self, inputs: Tensor) -> Tensor:
        """Return the inputs on which the answer at each position depends: (B, T, T) bool for inputs (B, T).

        The row of a position without an answer is False. Raises `InputError` if relevance is not known.
        """

    def answer_steps(self, inputs: Tensor) -> list[int]:
        """Return the positions of one input (T,) that have an answer."""
        targets = self.answer(inputs.unsqueeze(0))[0]
        known = ~targets.isnan() if targets.is_floating_point() else targets != IGNORE
        return known.nonzero()[:, 0].tolist()

    def draw_with_targets(
        self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Draw inputs like `draw`, and return them with their targets (B, T), by default the answers."""
        inputs = self.draw(lengths, generator, unseen=unseen)
        return inputs, self.answer(inputs)

    def sample(
        self,
        batch: int,
        generator: torch.Generator,
        *,
        sample_len: int | None = None,
        vary_len: bool = False,
        unseen: bool = False,
    ) -> TokenBatch:
        """Draw `batch` samples of `sample_len` inputs (default: the largest training length).

        With `vary_len`, the lengths are uniform over `lengths`, up to `sample_len`. If `varied` is True, the lengths
        always vary unless `sample_len` is given. `unseen`: draw only samples that are held out from training, if the
        task holds out samples. Equal generator states give equal samples. Raises `InputError` for an invalid length.
        """
        self.check_sample_len(sample_len)
        vary_len = vary_len or (self.varied and sample_len is None)
        longest = self.lengths[-1] if sample_len is None else sample_len
        lengths = torch.full((batch,), longest)
        if vary_len:
            choices = torch.arange(self.lengths.start, longest + 1, self.lengths.step)
            lengths = choices[torch.randint(len(choices), (batch,), generator=generator)]
        inputs, targets = self.draw_with_targets(lengths, generator, unseen=unseen)
        if not vary_len:
            return TokenBatch(inputs, targets, None)
        mask = torch.arange(inputs.shape[1]) < lengths[:, None]
        padding = mask.unsqueeze(2) if self.input_width else mask
        inputs = inputs.masked_fill(~padding, PADDING)
        return TokenBatch(inputs, targets.masked_fill(~mask, no_output(targets)), mask)

    def check_sample_len(self, sample_len: int | None) -> None:
        """Raise `InputError` if samples cannot have `sample_len` inputs."""
        possible = range(self.lengths.start, self.longest + 1, self.lengths.step)
        if sample_len is not None and sample_len not in possible:
            step = f" in steps of {possible.step}" if possible.step > 1 and len(possible) > 1 else ""
            raise InputError(
                f"sample_len {sample_len} does not fit: {self.name} takes {possible[0]} to {possible[-1]} tokens{step}"
            )

    def batches(self, settings: BatchSettings, beginning: BatchContext) -> BatchSource:
        return TokenBatches(self, settings)

    def example(self, generator: torch.Generator) -> tuple[str, str]:
        inputs, targets, _ = self.sample(1, generator)
        return self.render(inputs[0]), self.render(targets[0][targets[0] != IGNORE])

    @property
    def accepts(self) -> str:
        return f"1 to {self.longest} tokens: {self._tokens}"

    @property
    def _tokens(self) -> str:
        known = list(self.vocabulary)
        return ", ".join(known if len(known) <= LISTED_TOKENS else [*known[:3], "...", *known[-3:]])

    @property
    def separator(self) -> str:
        """Text between two tokens: empty, or a space if a token has several characters."""
        return "" if all(len(token) == 1 for token in self.vocabulary) else " "

    def parse(self, text: str) -> Tensor:
        """Convert text to inputs (1, T): characters, or tokens separated by spaces.

        Raises `InputError` for an unknown token or an invalid number of tokens.
        """
        tokens = text.split() if self.separator else list(text)
        self._check_count(text, len(tokens))
        indices = {token: index for index, token in enumerate(self.vocabulary)}
        for position, token in enumerate(tokens):
            if token not in indices:
                raise InputError(
                    f"token {shorten(token)} at position {position} is not in the vocabulary: use {self._tokens}"
                )
        return torch.tensor([[indices[token] for token in tokens]])

    def _check_count(self, text: str, count: int) -> None:
        if not 1 <= count <= self.longest:
            raise InputError(f"input {shorten(text)} has {plural(count, 'token')}: {self.name} takes {self.accepts}")

    def render(self, tokens: Tensor) -> str:
        """Return tokens (T,) as text. This function is the inverse of `parse`."""
        return self.separator.join(self.vocabulary[token] for token in tokens.tolist())

    def continuation(self, prompt: Tensor, tokens: Tensor) -> str:
        """Return tokens (N,) after a prompt (T,) as text that is appended to the text of the prompt.

        The text may begin with a space. A prompt may end within a character, whose text is then left out.
        """
        before, whole = self.render(prompt), self.render(torch.cat([prompt, tokens]))
        same = (mine == yours for mine, yours in zip(before, whole, strict=False))
        return whole[len(list(takewhile(bool, same))) :]

    def labels(self, inputs: Tensor) -> list[str]:
        """Return a name for each input of one sequence (T,) for plots."""
        return [self.vocabulary[token] for token in inputs.tolist()]


class LookupTask(TokenTask):
    """Base class of tasks in which each answer is an earlier input. A subclass defines `sources`."""

    @abstractmethod
    def sources(self, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the positions (B, T) on which each answer depends, the answer's last, and where there is an answer."""

    def answer(self, inputs: Tensor) -> Tensor:
        places, has_answer = self.sources(inputs)
        return torch.where(has_answer, inputs.gather(1, places[-1].clamp_max(inputs.shape[1] - 1)), IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        return mark_positions(*self.sources(inputs))


class NextTokenTask(TokenTask):
    """Base class of tasks with sequences from a text, in which every next token is an output. A subclass defines
    `draw_with_targets`. The answer to a sequence is its continuation; on which tokens it depends is not known."""

    draws = False
    knows_relevance = False

    @property
    def lengths(self) -> range:
        return range(1, self.config.max_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        return self.draw_with_targets(lengths, generator, unseen=unseen)[0]

    def answer(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs[:, 1:], torch.full_like(inputs[:, :1], IGNORE)], dim=1)

    def relevance(self, inputs: Tensor) -> Tensor:
        raise InputError("the relevant tokens of a text are not known: choose a different task, such as induction")


class TokenBatches:
    """Training batches, drawn by `TokenTask.sample`. Each training step has a separate random stream, so a resumed run
    draws the same batches as an uninterrupted run."""

    place = NO_POSITION

    def __init__(self, task: TokenTask, settings: BatchSettings) -> None:
        self.task, self.settings = task, settings

    def draw(self, step: int) -> TokenBatch:
        generator = make_generator(self.settings.seed, f"tokens/{step}")
        return self.task.sample(self.settings.batchsize, generator, vary_len=self.settings.vary_len)


def earlier_equal(inputs: Tensor) -> Tensor:
    """Return the last earlier position (B, T) of each token in inputs (B, T), or -1 for a first occurrence.

    >>> earlier_equal(torch.tensor([[5, 6, 5, 5]]))
    tensor([[-1, -1,  0,  2]])
    """
    positions = torch.arange(inputs.shape[1], device=inputs.device)
    equal = (inputs[:, :, None] == inputs[:, None, :]) & (positions[:, None] > positions)
    return torch.where(equal, positions, -1).amax(2)


def mark_positions(relevant: Sequence[Tensor], has_answer: Tensor) -> Tensor:
    """Return (B, T, T) bool: in each row with an answer, True at the positions in `relevant`, each (B, T).

    >>> mark_positions([torch.tensor([[0, 0]])], torch.tensor([[False, True]])).int()
    tensor([[[0, 0],
             [1, 0]]], dtype=torch.int32)
    """
    marked = torch.zeros(*has_answer.shape, has_answer.shape[1], dtype=torch.bool, device=has_answer.device)
    for positions in relevant:
        marked.scatter_(2, positions.clamp_min(0).unsqueeze(2), value=True)
    return marked & has_answer.unsqueeze(2)
