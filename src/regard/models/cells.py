"""Recurrent cells for a single step, for decoders with attention between steps. The results equal those of
PyTorch's layers.

Letters: B sources, K hypotheses per source, E width of embeddings, D of the state, G of the gates.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

Cell = Literal["lstm", "gru"]
CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return the new state and cell of an LSTM for gates (..., 4 D) in the order input, forget, cell, output."""
    entry, forget, candidate, out = gates.chunk(4, dim=-1)
    cell = forget.sigmoid() * cell + entry.sigmoid() * candidate.tanh()
    return out.sigmoid() * cell.tanh(), cell


def gru(gates: Tensor, recurrent: Tensor, state: Tensor) -> Tensor:
    """Return the new state of a GRU for the gates (..., 3 D) of the input and of the state, in the order reset,
    update, candidate."""
    reset, update, candidate = gates.chunk(3, dim=-1)
    state_reset, state_update, state_candidate = recurrent.chunk(3, dim=-1)
    keep = (update + state_update).sigmoid()
    candidate = (candidate + (reset + state_reset).sigmoid() * state_candidate).tanh()
    return candidate + keep * (state - candidate)


class CellWeights(NamedTuple):
    """Parameters of a cell, split once for many steps. G is 4 D for an LSTM and 3 D for a GRU."""

    embedding: Tensor
    """(G, E)"""
    extra: Tensor
    """(any, G), weight of the inputs of the cell other than the embedding."""
    state: Tensor
    """(D, G)"""
    input_bias: Tensor
    state_bias: Tensor

    @classmethod
    def split(cls, rnn: nn.LSTM | nn.GRU, width: int) -> "CellWeights":
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        inputs, state, input_bias, state_bias = (rnn.get_parameter(name) for name in names)
        embedding, extra = inputs.split([width, inputs.shape[1] - width], dim=1)
        return cls(embedding, extra.t(), state.t(), input_bias, state_bias)

    def gates(self, embedded: Tensor) -> Tensor:
        """Return the contribution (B, T, G) of the embeddings (B, T, E) to the gates of all steps, in one
        product."""
        return nn.functional.linear(embedded, self.embedding, self.input_bias)

    def advance(self, gates: Tensor, extra: Tensor | None, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the next state for `gates` (B, K, G) from the embeddings and other inputs `extra` (B, K,
        any)."""
        shape, flat = state[0].shape, gates.flatten(0, 1)
        if extra is not None:
            flat = torch.addmm(flat, extra.flatten(0, 1), self.extra)
        recurrent = torch.addmm(self.state_bias, state[0].flatten(0, 1), self.state)
        if len(state) == 1:
            return (gru(flat, recurrent, state[0].flatten(0, 1)).view(shape),)
        new_state, cell = lstm(flat + recurrent, state[1].flatten(0, 1))
        return new_state.view(shape), cell.view(shape)
