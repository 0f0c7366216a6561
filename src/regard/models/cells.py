"""Recurrent cells, one step at a time: the arithmetic of PyTorch's layers, for decoders that attend in between.

Letters: B sources, K hypotheses of each, E width of embeddings, D of the state, G of the gates.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

Cell = Literal["lstm", "gru"]
CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return state and cell after gates (..., 4 D), in PyTorch's order: input, forget, cell, output."""
    entry, forget, new, out = gates.chunk(4, dim=-1)
    cell = forget.sigmoid() * cell + entry.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def gru(gates: Tensor, recurrent: Tensor, state: Tensor) -> Tensor:
    """Return the state after gates of the input and of the state, (..., 3 D): reset, update, new."""
    reset, update, new = gates.chunk(3, dim=-1)
    from_reset, from_update, from_new = recurrent.chunk(3, dim=-1)
    kept = (update + from_update).sigmoid()
    new = (new + (reset + from_reset).sigmoid() * from_new).tanh()
    return new + kept * (state - new)


class CellWeights(NamedTuple):
    """The parameters of a cell, taken apart once for many steps; G is 4 D for an LSTM, 3 D for a GRU."""

    of_embedding: Tensor
    """(G, E)"""
    of_extra: Tensor
    """(any, G), of what the cell reads besides."""
    of_state: Tensor
    """(D, G)"""
    input_bias: Tensor
    state_bias: Tensor

    @classmethod
    def of(cls, rnn: nn.LSTM | nn.GRU, width: int) -> "CellWeights":
        """Take a layer apart, whose input is embeddings of `width` and then whatever else."""
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        of_input, of_state, input_bias, state_bias = (rnn.get_parameter(name) for name in names)
        of_embedding, of_extra = of_input.split([width, of_input.shape[1] - width], dim=1)
        return cls(of_embedding, of_extra.t(), of_state.t(), input_bias, state_bias)

    def gates(self, embedded: Tensor) -> Tensor:
        """Return the embeddings' part of the gates, of all steps (B, T, E) in one product: (B, T, G)."""
        return nn.functional.linear(embedded, self.of_embedding, self.input_bias)

    def advance(self, gates: Tensor, extra: Tensor | None, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Run the cell: `gates` (B, K, G) from the embeddings, `extra` (B, K, any) what else it reads."""
        shape, flat = state[0].shape, gates.flatten(0, 1)
        if extra is not None:
            flat = torch.addmm(flat, extra.flatten(0, 1), self.of_extra)
        recurrent = torch.addmm(self.state_bias, state[0].flatten(0, 1), self.of_state)
        if len(state) == 1:
            return (gru(flat, recurrent, state[0].flatten(0, 1)).view(shape),)
        after, cell = lstm(flat + recurrent, state[1].flatten(0, 1))
        return after.view(shape), cell.view(shape)
