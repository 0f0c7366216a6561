"""Small tasks for the probes of a card: copy, reverse and sort letters, and text of Python's help topics.

A sequence of letters, the separator, and the letters again in the order of the task: "CAB|CA" has the answers C,
A, B when copied. The number of letters varies in training, and tests can use more letters.
"""

import string
from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import torch
from torch import Tensor

from regard.arguments import Limits, check_fields
from regard.errors import InputError, check_range
from regard.tasks.batch import IGNORE
from regard.tasks.tokens import TokenTask

SEPARATOR = "|"
HELD_OUT = 0.1
"""Fraction of the text, at its end, that is held out for tests."""


@dataclass(frozen=True, kw_only=True)
class LettersConfig:
    """Size of a task over letters."""

    letters: Annotated[int, Limits(2, 1000)] = 12
    """Largest number of letters in training."""
    shortest: int = 2
    """Smallest number of letters in training."""
    test_letters: int = 48
    """Largest number of letters in a test."""
    vocab_size: Annotated[int, Limits(2, 26)] = 16
    """Number of different letters (2 to 26)."""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range."""
        check_fields(self)
        check_range("shortest", self.shortest, 1, self.letters)
        check_range("test_letters", self.test_letters, self.letters, 10_000)


class Letters(TokenTask):
    """Base class: letters, the separator, and the letters in another order.

    The inputs are the letters, the separator, and the answer without its last letter. All letters, also those of
    the answer, are known to the model when it predicts the next letter (teacher forcing).
    """

    config_class = LettersConfig
    varied = True

    def __init__(self, config: LettersConfig | None = None) -> None:
        super().__init__(config)
        self.vocabulary = SEPARATOR + string.ascii_uppercase[: self.config.vocab_size]

    @property
    def lengths(self) -> range:
        return range(2 * self.config.shortest, 2 * self.config.letters + 1, 2)

    @property
    def longest(self) -> int:
        return int(2 * self.config.test_letters)

    @abstractmethod
    def order(self, letters: Tensor, counts: Tensor) -> Tensor:
        """Return the position (B, N) of each answer's letter, for letters (B, N) and their numbers (B, 1)."""

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # training draws a negligible fraction of all sequences
        batch, counts, most = len(lengths), lengths[:, None] // 2, int(lengths.max()) // 2
        letters = 1 + torch.randint(self.config.vocab_size, (batch, most), generator=generator)
        answer = letters.gather(1, self.order(letters, counts))
        inputs = torch.zeros(batch, 2 * most + 1, dtype=torch.int64)
        inputs[:, :most] = letters
        inputs.scatter_(1, counts, 0).scatter_(1, counts + 1 + torch.arange(most), answer)
        return inputs[:, : 2 * most]

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the letters in the order of the task, from the separator on."""
        sources, has_answer = self.sources(inputs)
        return torch.where(has_answer, inputs.gather(1, sources), IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        sources, has_answer = self.sources(inputs)
        marked = torch.zeros(*inputs.shape, inputs.shape[1], dtype=torch.bool, device=inputs.device)
        return marked.scatter_(2, sources[:, :, None], value=True) & has_answer[:, :, None]

    def sources(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the position (B, T) of the letter that each answer repeats, and whether there is an answer."""
        counts = (inputs == 0).int().argmax(1, keepdim=True)  # the separator is after the letters
        most = max(int(counts.max()), 1)
        step = torch.arange(inputs.shape[1], device=inputs.device) - counts
        has_answer = (step >= 0) & (step < counts)
        order = self.order(inputs[:, :most], counts)
        return order.gather(1, step.clamp(0, most - 1)).clamp(max=inputs.shape[1] - 1), has_answer


class CopyLetters(Letters):
    """The letters again: "CAB|CA" has the answers C, A, B."""

    name = "copy"
    summary = "letters, then the same letters"

    def order(self, letters: Tensor, counts: Tensor) -> Tensor:
        """Return positions in their order."""
        del counts
        return torch.arange(letters.shape[1], device=letters.device).expand(letters.shape)


class ReverseLetters(Letters):
    """The letters from last to first: "CAB|BA" has the answers B, A, C."""

    name = "reverse"
    summary = "letters, then the letters from last to first"

    def order(self, letters: Tensor, counts: Tensor) -> Tensor:
        """Return positions from the last letter to the first."""
        return (counts - 1 - torch.arange(letters.shape[1], device=letters.device)).clamp(min=0)


class SortLetters(Letters):
    """The letters in alphabetical order: "CAB|AB" has the answers A, B, C.

    Each answer depends on all letters, because any letter can change its rank.
    """

    name = "sort"
    summary = "letters, then the letters in alphabetical order"

    def order(self, letters: Tensor, counts: Tensor) -> Tensor:
        """Return positions in the order of the letters there; equal letters keep their order."""
        places = torch.arange(letters.shape[1], device=letters.device)
        return letters.masked_fill(places >= counts, self.config.vocab_size + 1).argsort(dim=1, stable=True)

    def relevance(self, inputs: Tensor) -> Tensor:
        _, has_answer = self.sources(inputs)
        letters = (inputs == 0).cumsum(1) == 0
        return has_answer[:, :, None] & letters[:, None, :]


@dataclass(frozen=True, kw_only=True)
class HelpTextConfig:
    """Size of the task."""

    max_len: Annotated[int, Limits(1, 10_000)] = 32
    """Number of characters in a sequence."""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range."""
        check_fields(self)


class HelpText(TokenTask):
    """Predict every next character of Python's help topics (`pydoc_data.topics`), from random positions.

    The last tenth of the text is held out. The text differs between versions of Python.
    """

    name = "text"
    summary = "the next character of Python's help topics"
    config_class = HelpTextConfig
    draws = False
    knows_relevance = False

    def __init__(self, config: HelpTextConfig | None = None) -> None:
        super().__init__(config)
        self.text = help_text()
        self.vocabulary = sorted(set(self.text))
        index = {character: number for number, character in enumerate(self.vocabulary)}
        self.tokens = torch.tensor([index[character] for character in self.text])

    @property
    def lengths(self) -> range:
        return range(1, self.config.max_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        return self.draw_with_targets(lengths, generator, unseen=unseen)[0]

    def draw_with_targets(
        self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False
    ) -> tuple[Tensor, Tensor]:
        begin = round((1 - HELD_OUT) * len(self.tokens))
        part, length = self.tokens[begin:] if unseen else self.tokens[:begin], int(lengths.max())
        begins = torch.randint(len(part) - length, (len(lengths), 1), generator=generator)
        windows = part[begins + torch.arange(length + 1)]
        return windows[:, :-1], windows[:, 1:]

    def answer(self, inputs: Tensor) -> Tensor:
        """Return the next character of each character. The last character has no answer."""
        return torch.cat([inputs[:, 1:], torch.full_like(inputs[:, :1], IGNORE)], dim=1)

    def relevance(self, inputs: Tensor) -> Tensor:
        """Raise `InputError`, because the characters on which an answer depends are not known."""
        raise InputError("the relevant characters of a text are not known")


@cache
def help_text() -> str:
    """Return Python's help topics, joined in alphabetical order. Raises `InputError` if they are missing."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise InputError(
            "the probe `text` needs the help topics of Python (module pydoc_data): install Python's complete "
            "standard library"
        ) from None
    texts: dict[str, Any] = topics
    return "\n\n".join(texts[name] for name in sorted(texts))
