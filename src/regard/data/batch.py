"""Batches of sources and targets for sequence-to-sequence models.

Letters: B batch, Ts source steps, Tt target steps. Each sequence ends with `EOS` and is therefore not empty.
The steps after `EOS` are `PAD`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.data.vocabulary import BOS, EOS, PAD, Vocabulary


def copy_to(device: torch.device, *parts: Tensor | None) -> Iterator[Tensor | None]:
    """Yield tensors on a device. A GPU copies them from pinned memory while the host goes on."""
    pinned = device.type == "cuda"
    for part in parts:
        yield None if part is None else (part.pin_memory() if pinned else part).to(device, non_blocking=pinned)


class PairBatch(NamedTuple):
    """A batch of sources and their targets."""

    source: Tensor  # (B, Ts) int64, vocabulary indices
    target: Tensor  # (B, Tt) int64, vocabulary indices that the decoder predicts
    alignment: Tensor | None = None
    """(B, Tt, Ts) float32, target weights of a guided head (see `GuidedAlignment`); None without guidance."""

    @property
    def outputs(self) -> Tensor:
        """Return the indices (N,) int64 of the target tokens among all target steps. The host waits for a GPU."""
        return (self.target != PAD).flatten().nonzero().squeeze(1)

    @property
    def source_mask(self) -> Tensor:
        """Return the padding mask (B, Ts) bool, True up to and including the end of each sequence."""
        return self.source != PAD

    @property
    def tokens(self) -> int:
        return int((self.target != PAD).sum())

    def share(self, rank: int, size: int) -> "PairBatch":
        """Return the rows for one of `size` processes. A process without rows gets one row with an empty
        target, so that all processes run the same number of steps."""
        if size == 1:
            return self
        alignment = None if self.alignment is None else self.alignment[rank::size]
        rows = PairBatch(self.source[rank::size], self.target[rank::size], alignment)
        if len(rows.target):
            return rows
        return PairBatch(self.source[:1], torch.full_like(self.target[:1], PAD))

    def to(self, device: torch.device) -> "PairBatch":
        return PairBatch(*copy_to(device, *self))  # type: ignore[arg-type]

    @property
    def target_in(self) -> Tensor:
        """Return the input (B, Tt) of the decoder for teacher forcing: `BOS`, then the target shifted by one step."""
        begin = torch.full_like(self.target[:, :1], BOS)
        return torch.cat([begin, self.target[:, :-1]], dim=1)


def collate(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Append `EOS` to sequences of indices and return them as one tensor (B, T), padded with `PAD`.

    >>> collate([[5, 6], [7]])
    tensor([[5, 6, 2],
            [7, 2, 0]])
    """
    longest = max(map(len, sequences)) + 1
    rows = [[*sequence, EOS, *[PAD] * (longest - 1 - len(sequence))] for sequence in sequences]
    return torch.tensor(rows)


def read_source(texts: Sequence[str], vocabulary: Vocabulary) -> Tensor:
    """Convert texts to sources (B, Ts).

    >>> from regard.data.vocabulary import CharacterVocabulary
    >>> read_source(["ba", "a"], CharacterVocabulary("ab"))
    tensor([[5, 4, 2],
            [4, 2, 0]])
    """
    return collate([vocabulary.encode(text) for text in texts])
