"""Batches of source and target: what every sequence-to-sequence model is trained on.

Letters: B batch, Ts source steps, Tt target steps. Every sequence, source or target, ends with `EOS`, so none is
empty; steps after it hold `PAD`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.text.vocabulary import BOS, EOS, PAD, Vocabulary


class Pairs(NamedTuple):
    """A batch of sources with their targets."""

    source: Tensor
    """(B, Ts) int64, vocabulary indices."""
    target: Tensor
    """(B, Tt) int64, vocabulary indices: what the decoder is to answer."""

    @property
    def source_mask(self) -> Tensor:
        """(B, Ts) bool, True up to and with the end of sequence."""
        return self.source != PAD

    @property
    def tokens(self) -> int:
        """Tokens of all targets, their ends of sequence counted."""
        return int((self.target != PAD).sum())

    def to(self, device: torch.device) -> "Pairs":
        """Return the same batch on another device."""
        return Pairs(self.source.to(device), self.target.to(device))

    @property
    def target_in(self) -> Tensor:
        """(B, Tt) what the decoder is fed under teacher forcing: `BOS`, then the target one step late."""
        begin = torch.full_like(self.target[:, :1], BOS)
        return torch.cat([begin, self.target[:, :-1]], dim=1)


def collate(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Return sequences of indices, each with `EOS` at its end, as one tensor (B, T) padded with `PAD`."""
    longest = max(map(len, sequences)) + 1
    rows = [[*sequence, EOS, *[PAD] * (longest - 1 - len(sequence))] for sequence in sequences]
    return torch.tensor(rows)


def read_source(texts: Sequence[str], vocabulary: Vocabulary) -> Tensor:
    """Return texts as sources (B, Ts)."""
    return collate([vocabulary.encode(text) for text in texts])
