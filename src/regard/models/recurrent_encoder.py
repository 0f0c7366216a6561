"""The recurrent encoder: an LSTM or GRU that reads each sequence forwards and backwards, padding unseen; or
forwards alone.

The direction that reads backwards is given every sequence turned round in place, and so ends with its padding
too: no state of either direction comes after a padded step. That is what `pack_padded_sequence` is for, to the
bit of a rounding; but on a CPU PyTorch runs packed sequences step by step, and padded ones in a fused kernel (3
to 7 times faster for the LSTM, docs/benchmarks.md).

Letters: B batch, T time, D width of the states, both directions together.
"""

import torch
from torch import Tensor, nn

from regard.attention import Dropout
from regard.errors import InputError, check_range
from regard.models.cells import CELLS, Cell


def check_width(width: int, name: str = "hidden", *, bidirectional: bool = True) -> None:
    """Raise `InputError` for a width, called `name`, that the directions cannot share."""
    check_range(name, width, 2 if bidirectional else 1, 65_536)
    if bidirectional and width % 2:
        raise InputError(f"{name} {width} is odd: the encoder's two directions need half of it each")


class RecurrentEncoder(nn.Module):
    """`layers` layers of states of `width`, half of it for each direction; `dropout` between them.

    Not `bidirectional`, it reads forwards alone, and all of the width is of that. Raises `InputError` for an odd
    `width` of two directions.
    """

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        layers: int = 1,
        cell: Cell = "lstm",
        dropout: float = 0.0,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        check_width(width, bidirectional=bidirectional)
        recurrent = CELLS[cell]
        self.dropout = Dropout(dropout)
        widths = [input_width, *[width] * (layers - 1)]
        self.each_way = width // 2 if bidirectional else width
        self.forwards = nn.ModuleList(recurrent(each, self.each_way, batch_first=True) for each in widths)
        self.backwards = nn.ModuleList(
            recurrent(each, self.each_way, batch_first=True) for each in widths if bidirectional
        )

    def forward(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the states (B, T, D) of inputs (B, T, any), zero at padding, and the last ones (B, D).

        `mask` (B, T): True before the end, None where every sequence is full. The last state of the direction
        that reads backwards is the one at the first step.
        """
        batch, time = states.shape[:2]
        length = torch.full((batch, 1), time, device=states.device) if mask is None else mask.sum(1, keepdim=True)
        turned = reversed_steps(length, time)
        for layer, forwards in enumerate(self.forwards):
            read = self.dropout(states) if layer else states
            states, _ = forwards(read)
            if self.backwards:
                back, _ = self.backwards[layer](_pick(read, turned))
                states = torch.cat([states, _pick(back, turned)], dim=-1)
            if mask is not None:
                states = states * mask.unsqueeze(-1)
        last = _pick(states[..., : self.each_way], (length - 1).clamp(min=0)).squeeze(1)
        return states, torch.cat([last, states[:, 0, self.each_way :]], dim=-1)


def reversed_steps(length: Tensor, time: int) -> Tensor:
    """Return the steps (B, T) of sequences of `length` (B, 1), last to first, then those of the padding."""
    steps = torch.arange(time, device=length.device)
    return torch.where(steps < length, length - 1 - steps, steps)


def _pick(states: Tensor, steps: Tensor) -> Tensor:
    """Take some steps (B, S) of states (B, T, D): (B, S, D)."""
    return states.gather(1, steps.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
