"""Dyck: which bracket closes the innermost open bracket? Training samples are short. Longer samples test length
generalization.

Yao et al. 2021, "Self-Attention Networks Can Process Bounded Hierarchical Languages": a Transformer of two
layers recognizes the language of k kinds of brackets and a depth of at most D.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from regard.arguments import Limits
from regard.errors import InputError, check_range, shorten
from regard.tasks.base import TaskOptions
from regard.tasks.batch import IGNORE
from regard.tasks.tokens import TokenTask, mark_positions

BRACKETS = ("()", "[]", "{}", "<>", "aA", "bB", "cC", "dD")


@dataclass(frozen=True, kw_only=True)
class DyckTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: Annotated[int, Limits(2, 10_000)] = 40
    """Largest number of brackets in training (even). Lengths are uniform over the even numbers up to this
    number."""
    test_len: int = 100
    """Largest number of brackets in a test, with --sample-len."""
    vocab_size: Annotated[int, Limits(1, len(BRACKETS))] = 4
    """Number of kinds of brackets (1 to 8)."""
    depth: Annotated[int, Limits(1, 1000)] = 5
    """Largest number of brackets that are open at the same time."""

    def check_sizes(self) -> None:
        check_range("test_len", self.test_len, self.max_len, 10_000)


class Dyck(TokenTask):
    """Correctly nested brackets, such as "([]){}". The outputs are the closing brackets.

    If the nesting does not change, each answer depends only on the bracket that it closes. Each next bracket
    opens or closes with equal probability if both are possible.
    """

    name = "dyck"
    summary = "close nested brackets, also in longer sequences"
    config_class = DyckTaskConfig
    defaults = {"steps": 1000, "lr": 0.003}
    varied = True

    def __init__(self, config: DyckTaskConfig | None = None) -> None:
        super().__init__(config)
        self.kinds = self.config.vocab_size
        kinds = BRACKETS[: self.kinds]
        self.vocabulary = "".join(kind[0] for kind in kinds) + "".join(kind[1] for kind in kinds)

    @property
    def lengths(self) -> range:
        return range(2, self.config.max_len + 1, 2)

    @property
    def longest(self) -> int:
        """`test_len`, or `test_len` - 1 if `test_len` is odd."""
        return int(self.config.test_len // 2 * 2)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # tests draw from the same distribution, or choose a longer length
        batch, longest = len(lengths), int(lengths.max())
        opens = torch.rand(batch, longest, generator=generator) < 0.5
        kinds = torch.randint(self.kinds, (batch, longest), generator=generator)
        inputs, rows = torch.zeros(batch, longest, dtype=torch.int64), torch.arange(batch)
        depth, open_kinds = torch.zeros_like(lengths), inputs.new_zeros(batch, longest + 1)
        for step in range(longest):
            left = lengths - step
            opening = ((opens[:, step] & (depth < self.config.depth)) | (depth == 0)) & (depth < left)
            top = torch.where(opening, depth, depth - 1).clamp_min(0)  # place on the stack of open brackets
            open_kinds[rows, top] = torch.where(opening, kinds[:, step], open_kinds[rows, top])
            inputs[:, step] = torch.where(opening, kinds[:, step], self.kinds + open_kinds[rows, top])
            depth = (depth + torch.where(opening, 1, -1)).clamp_min(0)  # below 0 only after the end
        return inputs

    def answer(self, inputs: Tensor) -> Tensor:
        innermost, has_answer = self._innermost(inputs)
        return torch.where(has_answer, self.kinds + inputs.gather(1, innermost), IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        innermost, has_answer = self._innermost(inputs)
        return mark_positions([innermost], has_answer)

    def _innermost(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the position (B, T) of the innermost open bracket after each bracket, and whether it is closed
        next (B, T)."""
        positions, opening = torch.arange(inputs.shape[1], device=inputs.device), inputs < self.kinds
        depth = torch.where(opening, 1, -1).cumsum(1)
        same = (depth[:, :, None] == depth[:, None, :]) & opening[:, None, :] & (positions <= positions[:, None])
        closes = torch.cat([~opening[:, 1:], torch.ones_like(opening[:, :1])], dim=1)
        return torch.where(same, positions, 0).amax(2), closes & (depth > 0)

    def parse(self, text: str) -> Tensor:
        """Read brackets as inputs (1, T). Also raises `InputError` for a bracket that does not close an open
        bracket."""
        inputs, open_kinds = super().parse(text), list[int]()
        for position, token in enumerate(inputs[0].tolist()):
            if token < self.kinds:
                open_kinds.append(token)
            elif not open_kinds or open_kinds.pop() != token - self.kinds:
                raise InputError(
                    f"bracket {self.vocabulary[token]!r} at position {position} of {shorten(text)} does not "
                    f"close the innermost open bracket: give nested brackets, such as ([])"
                )
        return inputs
