"""The probes of a card: a task, a model, and fixed settings of its training, so that results can be compared.
Measurements with another digest of the settings are not used."""

import dataclasses
import hashlib
import string
import tomllib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import torch
from torch import Tensor

from regard.arguments import Limits
from regard.errors import InputError, check_range
from regard.io import json_digest
from regard.models.decoder_only import DecoderOnlyConfig
from regard.streams import make_generator
from regard.tasks.base import TaskOptions
from regard.tasks.batch import IGNORE
from regard.tasks.language_tasks import Induction, Mqar, Parity, Regression
from regard.tasks.tokens import NextTokenTask, TokenTask, mark_positions

# Small tasks for the probes of a card: copy, reverse and sort letters, and text of Python's help topics.
#
# A sequence of letters, the separator, and the letters again in the order of the task: "CAB|CA" has the answers
# C, A, B when copied. The number of letters varies in training, and tests can use more letters.

SEPARATOR = "|"
HELD_OUT = 0.1  # Fraction of the text, at its end, that is held out for tests


@dataclass(frozen=True, kw_only=True)
class LettersConfig(TaskOptions):
    """Size of a task over letters."""

    letters: Annotated[int, Limits(2, 1000)] = 12  # Largest number of letters in training
    shortest: int = 2  # Smallest number of letters in training
    test_letters: int = 48  # Largest number of letters in a test
    vocab_size: Annotated[int, Limits(2, 26)] = 16  # Number of different letters (2 to 26)

    def check_sizes(self) -> None:
        check_range("shortest", self.shortest, 1, self.letters)
        check_range("test_letters", self.test_letters, self.letters, 10_000)


class Letters(TokenTask):
    """Base class: letters, the separator, and the letters in another order without the last one, which are known when
    the next letter is predicted (teacher forcing)."""

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
        sources, has_answer = self.sources(inputs)
        return torch.where(has_answer, inputs.gather(1, sources), IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        sources, has_answer = self.sources(inputs)
        return mark_positions([sources], has_answer)

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
        return torch.arange(letters.shape[1], device=letters.device).expand(letters.shape)


class ReverseLetters(Letters):
    """The letters from last to first: "CAB|BA" has the answers B, A, C."""

    name = "reverse"
    summary = "letters, then the letters from last to first"

    def order(self, letters: Tensor, counts: Tensor) -> Tensor:
        return (counts - 1 - torch.arange(letters.shape[1], device=letters.device)).clamp(min=0)


class SortLetters(Letters):
    """The letters in alphabetical order: "CAB|AB" has the answers A, B, C, each of which depends on all letters."""

    name = "sort"
    summary = "letters, then the letters in alphabetical order"

    def order(self, letters: Tensor, counts: Tensor) -> Tensor:
        places = torch.arange(letters.shape[1], device=letters.device)
        return letters.masked_fill(places >= counts, self.config.vocab_size + 1).argsort(dim=1, stable=True)

    def relevance(self, inputs: Tensor) -> Tensor:
        _, has_answer = self.sources(inputs)
        letters = (inputs == 0).cumsum(1) == 0
        return has_answer[:, :, None] & letters[:, None, :]


@dataclass(frozen=True, kw_only=True)
class HelpTextConfig(TaskOptions):
    """Size of the task."""

    max_len: Annotated[int, Limits(1, 10_000)] = 32  # Number of characters in a sequence


class HelpText(NextTokenTask):
    """Predict every next character of Python's help topics (`pydoc_data.topics`), from random positions. The last tenth
    of the text is held out. The text differs between versions of Python."""

    name = "text"
    summary = "the next character of Python's help topics"
    config_class = HelpTextConfig

    def __init__(self, config: HelpTextConfig | None = None) -> None:
        super().__init__(config)
        self.text = help_text()
        self.vocabulary = sorted(set(self.text))
        index = {character: number for number, character in enumerate(self.vocabulary)}
        self.tokens = torch.tensor([index[character] for character in self.text])

    def draw_with_targets(
        self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False
    ) -> tuple[Tensor, Tensor]:
        begin = round((1 - HELD_OUT) * len(self.tokens))
        part, length = self.tokens[begin:] if unseen else self.tokens[:begin], int(lengths.max())
        begins = torch.randint(len(part) - length, (len(lengths), 1), generator=generator)
        windows = part[begins + torch.arange(length + 1)]
        return windows[:, :-1], windows[:, 1:]


@dataclass(frozen=True, kw_only=True)
class BackcopyConfig(TaskOptions):
    """Size of the task."""

    max_len: Annotated[int, Limits(2, 10_000)] = 32  # Number of tokens in a sequence
    vocab_size: Annotated[int, Limits(2, 26)] = 16  # Number of different letters after the first token
    triggers: int = 3  # Number of letters after which the letter before them is repeated


class Backcopy(NextTokenTask):
    """A first token that is always the same, then a random walk over letters in which each letter has likely
    successors. After a trigger letter, the letter before the trigger follows: "^CAC" if A is a trigger (Guo et al.
    2024, "Active-Dormant Attention Heads", section 2). A head that copies has nothing to do at other letters."""

    name = "backcopy"
    summary = "a random walk over letters; after some letters, the letter before them"
    config_class = BackcopyConfig

    def __init__(self, config: BackcopyConfig | None = None) -> None:
        super().__init__(config)
        self.vocabulary = "^" + string.ascii_uppercase[: self.config.vocab_size]
        generator = make_generator(0, "card/backcopy/walk")
        size = self.config.vocab_size
        self.chances = torch.softmax(2 * torch.randn(size, size, generator=generator), 1)

    def draw_with_targets(
        self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False
    ) -> tuple[Tensor, Tensor]:
        del unseen  # training draws a negligible fraction of all sequences
        letters = [torch.randint(self.config.vocab_size, (len(lengths),), generator=generator)]
        for _ in range(int(lengths.max()) - 1):
            following = torch.multinomial(self.chances[letters[-1]], 1, generator=generator)[:, 0]
            copied = letters[-1] < self.config.triggers
            letters.append(torch.where(copied, letters[-2], following) if len(letters) > 1 else following)
        walk = 1 + torch.stack(letters, 1)
        return torch.cat([torch.zeros_like(walk[:, :1]), walk[:, :-1]], 1), walk


@cache
def help_text() -> str:
    """Return Python's help topics, joined in alphabetical order."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise InputError(
            "the probe `text` needs the help topics of Python (module pydoc_data): install Python's complete "
            "standard library"
        ) from None
    texts: dict[str, Any] = topics
    return "\n\n".join(texts[name] for name in sorted(texts))


REVISION = 1  # Number of the procedure of training and measuring; raise it when results change at equal settings


@dataclass(frozen=True)
class CardProbe:
    """A task for a small decoder-only model, with all settings of its training."""

    name: str
    summary: str  # What the probe tests, in one line
    task: Callable[[Any], TokenTask]  # Class of the task
    task_config: Any  # Sizes of the task
    steps: int  # Number of training steps
    _: dataclasses.KW_ONLY
    lr: float = 0.004  # Peak learning rate
    layers: int = 2
    hidden: int = 32
    heads: int = 4
    inner: int = 64  # Inner width of the feed-forward layers; 0 for a model with only attention layers
    batch: int = 32
    tests: Mapping[str, int | None] = dataclasses.field(default_factory=lambda: {"": None})
    """Numbers of tokens in the tests by name; None for the largest length of training."""
    test_sequences: int = 256  # Number of sequences in each test
    extra: bool = False  # Whether the probe serves only claims, and is not a part of every card

    def build_task(self) -> TokenTask:
        return self.task(self.task_config)

    def build_config(self, mechanism: str) -> DecoderOnlyConfig:
        return DecoderOnlyConfig(
            attention=mechanism,
            hidden=self.hidden,
            layers=self.layers,
            heads=self.heads,
            inner=max(self.inner, 1),
            feed_forward=self.inner > 0,
        )

    def settings(self, steps: int | None = None) -> dict[str, Any]:
        """Return all settings on which results depend. `steps` replaces the number of training steps."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("summary", "task", "task_config", "extra")
        }
        values |= {"task": getattr(self.task, "__name__", ""), "sizes": dataclasses.asdict(self.task_config)}
        values |= {"tests": dict(self.tests), "revision": REVISION}
        if steps is not None:
            values["steps"] = steps
        if self.task is HelpText:
            values["text"] = hashlib.sha256(help_text().encode()).hexdigest()
        return values

    def digest(self, steps: int | None = None) -> str:
        return json_digest(self.settings(steps))[:12]


TASKS: dict[str, type[TokenTask]] = {
    task.__name__: task
    for task in (Induction, Mqar, CopyLetters, ReverseLetters, SortLetters, Parity, Regression, HelpText, Backcopy)
}


def _read_probe(name: str, task: str, sizes: Mapping[str, Any] | None = None, **settings: Any) -> CardProbe:
    kind: Any = TASKS[task]
    return CardProbe(name=name, task=kind, task_config=kind.config_class(**(sizes or {})), **settings)


_TEXTS = tomllib.loads((files("regard_lab.cards") / "probes.toml").read_text(encoding="utf-8"))
PROBES = {name: _read_probe(name, **settings) for name, settings in _TEXTS.items()}  # The probes by name


def card_probes() -> list[str]:
    return [name for name, probe in PROBES.items() if not probe.extra]
