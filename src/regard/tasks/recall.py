"""Recall: key-value pairs at the start of a sequence, then noise, then a key whose value is the answer.

A recurrent model must store the pairs in its state during the noise. Longer sequences are harder for a
recurrent model, but not for attention.
"""

import string
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from regard.arguments import Limits
from regard.errors import InputError, check_range, shorten
from regard.tasks.base import PAST_END, Task, TaskOptions
from regard.tasks.batch import Batch

NOISE = "abcd"
VALUES = string.digits


@dataclass(frozen=True, kw_only=True)
class RecallTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: int = 50
    """Maximum number of steps: pairs, noise and the final query."""
    pairs: int = 2
    """Number of key-value pairs at the start of each sequence."""
    vocab_size: Annotated[int, Limits(1, 26)] = 8
    """Number of different keys (letters, 1 to 26); at least the number of pairs."""

    def check_sizes(self) -> None:
        check_range("pairs", self.pairs, 1, self.vocab_size)
        check_range("max_len", self.max_len, 2 * self.pairs + 1, 10_000)


class Recall(Task):
    """Recalls a value: an input consists of `pairs` keys, each followed by its value, then noise, then one of the keys.
    "C7A0dbaC" has the answer 7. The answer depends on the first step of the key and on the value after this step."""

    name = "recall"
    summary = "key-value pairs, noise, a key: what was its value?"
    config_class = RecallTaskConfig
    defaults = {"model": "pooling", "cell": "gru", "batchsize": 64, "lr": 0.01, "vary_len": True}
    outputs = 1
    classes = len(VALUES)

    def __init__(self, config: RecallTaskConfig | None = None) -> None:
        self.config = RecallTaskConfig() if config is None else config
        self.keys = string.ascii_uppercase[: self.config.vocab_size]
        self.vocabulary = self.keys + VALUES + NOISE

    def answer(self, inputs: Tensor) -> Tensor:
        value = self._key_step(inputs) + 1
        return inputs.gather(1, value) - len(self.keys)

    def relevance(self, inputs: Tensor) -> Tensor:
        steps, key = torch.arange(inputs.shape[1], device=inputs.device), self._key_step(inputs)
        return ((steps == key) | (steps == key + 1)).unsqueeze(1)

    def output_labels(self, inputs: Tensor) -> list[str]:
        return [f"value of {self.vocabulary[int(inputs[inputs != PAST_END][-1])]}"]

    def sample(
        self,
        batch: int,
        generator: torch.Generator,
        *,
        sample_len: int | None = None,
        vary_len: bool = False,
        signal: str | None = None,
    ) -> Batch:
        if signal is not None:
            raise InputError(f"signal {signal!r} does not fit: recall has no signals")
        shortest = 2 * self.config.pairs + 1
        length = self.config.max_len if sample_len is None else sample_len
        check_range("sample_len", length, shortest, self.config.max_len)
        keys = torch.rand(batch, len(self.keys), generator=generator).argsort(1)[:, : self.config.pairs]
        values = len(self.keys) + torch.randint(len(VALUES), keys.shape, generator=generator)
        pairs = torch.stack([keys, values], dim=2).flatten(1)
        noise = torch.randint(len(NOISE), (batch, length - shortest + 1), generator=generator)
        inputs = torch.cat([pairs, len(self.keys) + len(VALUES) + noise], dim=1)
        lengths = torch.full((batch, 1), length)
        if vary_len:
            lengths = torch.randint(shortest, length + 1, (batch, 1), generator=generator)
        pair = torch.randint(self.config.pairs, (batch, 1), generator=generator)
        inputs.scatter_(1, lengths - 1, keys.gather(1, pair))
        mask = torch.arange(length) < lengths
        inputs = inputs.masked_fill(~mask, PAST_END)
        return Batch(inputs, self.answer(inputs), mask if vary_len else None)

    def parse(self, text: str) -> Tensor:
        """Convert a sequence such as `"C7A0dbaC"` to inputs (1, T)."""
        inputs, text = super().parse(text), self.normal(text)
        before = [step for step in range(len(text) - 2) if text[step] == text[-1]]
        if text[-1] not in self.keys or not before or text[before[0] + 1] not in VALUES:
            raise InputError(f"input {shorten(text)} has no answer: end with a key that precedes a value (C7A0abC)")
        return inputs

    def _key_step(self, inputs: Tensor) -> Tensor:
        """Return the first position (B, 1) of the key in the last step."""
        last = (inputs != PAST_END).sum(1, keepdim=True) - 1
        return (inputs == inputs.gather(1, last)).int().argmax(1, keepdim=True)
