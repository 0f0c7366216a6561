"""The recurrent encoder: a unidirectional or bidirectional LSTM or GRU.

For the backward direction, each sequence is reversed before padding, so that padding never precedes a step in
either direction. The result equals that of `pack_padded_sequence` up to rounding. On a CPU, PyTorch processes
packed sequences step by step, and padded sequences in a fused kernel. For the LSTM, the fused kernel is 3 to 7
times faster (docs/dev/benchmarks.md). Letters: B batch, T time, D width of the states of all directions.
"""

import torch
from torch import Tensor, nn

from regard.arguments import public
from regard.attention.dropout import Dropout
from regard.errors import InputError, check_range
from regard.models.cells import CELLS, Cell


def check_width(width: int, name: str = "hidden", *, bidirectional: bool = True) -> None:
    """Raise `InputError` for a width that is out of range, or odd with two directions. `name`: flag of the
    width."""
    check_range(name, width, 2 if bidirectional else 1, 65_536)
    if bidirectional and width % 2:
        raise InputError(f"{name} {width} is odd: each of the encoder's two directions needs half of the width")


@public
class RecurrentEncoder(nn.Module):
    """`layers` recurrent layers with `dropout` between them.

    `width`: width of the states. If `bidirectional`, each direction has half of the width. Raises `InputError`
    for an odd width with two directions.

    >>> states, last = RecurrentEncoder(5, 8)(torch.zeros(2, 6, 5))
    >>> states.shape, last.shape
    (torch.Size([2, 6, 8]), torch.Size([2, 8]))
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
        rnn = CELLS[cell]
        self.dropout = Dropout(dropout)
        widths = [input_width, *[width] * (layers - 1)]
        self.direction_width = width // 2 if bidirectional else width
        self.forwards = nn.ModuleList(rnn(width, self.direction_width, batch_first=True) for width in widths)
        self.backwards = nn.ModuleList(
            rnn(width, self.direction_width, batch_first=True) for width in widths if bidirectional
        )

    def forward(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the states (B, T, D) for inputs (B, T, any), with zeros at padding, and the last states (B,
        D).

        `mask` (B, T): True before the end; None if every sequence has T steps. The last state of the backward
        direction is the state at the first step.
        """
        batch, time = states.shape[:2]
        length = torch.full((batch, 1), time, device=states.device) if mask is None else mask.sum(1, keepdim=True)
        reverse = reversed_steps(length, time)
        for layer, forwards in enumerate(self.forwards):
            inputs = self.dropout(states) if layer else states
            states, _ = forwards(inputs)
            if self.backwards:
                backward_states, _ = self.backwards[layer](_take_steps(inputs, reverse))
                states = torch.cat([states, _take_steps(backward_states, reverse)], dim=-1)
            if mask is not None:
                states = states * mask.unsqueeze(-1)
        last = _take_steps(states[..., : self.direction_width], (length - 1).clamp(min=0)).squeeze(1)
        return states, torch.cat([last, states[:, 0, self.direction_width :]], dim=-1)


def reversed_steps(length: Tensor, time: int) -> Tensor:
    """Return the step indices (B, T) of sequences of `length` (B, 1) in reverse order, followed by those of the
    padding.

    >>> reversed_steps(torch.tensor([[2]]), 3)
    tensor([[1, 0, 2]])
    """
    steps = torch.arange(time, device=length.device)
    return torch.where(steps < length, length - 1 - steps, steps)


def _take_steps(states: Tensor, steps: Tensor) -> Tensor:
    """Return states (B, S, D) at the steps (B, S) of states (B, T, D)."""
    return states.gather(1, steps.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
