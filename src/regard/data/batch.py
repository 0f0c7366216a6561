"""Batches of source and target: what every sequence-to-sequence model is trained on.

Letters: B batch, Ts source steps, Tt target steps. Every sequence, source or target, ends with `EOS`, so none is
empty; steps after it hold `PAD`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.data.vocabulary import BOS, EOS, PAD, Vocabulary


class PairBatch(NamedTuple):
    """A batch of sources with their targets."""

    source: Tensor
    """(B, Ts) int64, vocabulary indices."""
    target: Tensor
    """(B, Tt) int64, vocabulary indices: what the decoder is to answer."""
    alignment: Tensor | None = None
    """(B, Tt, Ts) float32, what a guided head is to attend to (see `guide`); None where none is guided."""

    @property
    def source_mask(self) -> Tensor:
        """(B, Ts) bool, True up to and with the end of sequence."""
        return self.source != PAD

    @property
    def tokens(self) -> int:
        """Tokens of all targets, their ends of sequence counted."""
        return int((self.target != PAD).sum())

    def share(self, rank: int, size: int) -> "PairBatch":
        """Return the rows of one of `size` processes; one row without a target where there are none, so that all
        processes take the same steps."""
        if size == 1:
            return self
        alignment = None if self.alignment is None else self.alignment[rank::size]
        rows = PairBatch(self.source[rank::size], self.target[rank::size], alignment)
        if len(rows.target):
            return rows
        return PairBatch(self.source[:1], torch.full_like(self.target[:1], PAD))

    def to(self, device: torch.device) -> "PairBatch":
        """Return the same batch on another device."""
        alignment = None if self.alignment is None else self.alignment.to(device)
        return PairBatch(self.source.to(device), self.target.to(device), alignment)

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
