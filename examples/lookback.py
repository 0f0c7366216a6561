"""A custom sequence-to-sequence model: a recurrent cell with multi-head attention to the source.

    cd examples
    regard train reverse --model lookback:LookBack --steps 500
    regard translate reverse ABC --plot

The source is embedded with sinusoidal positions. The cell reads the last target token and the last context. The
state of the cell is the query of the attention. The model derives from `Seq2Seq`, whose docstring describes the
arguments of the constructor. The fields of the config become flags. Letters: Shapes: B sources, K hypotheses
per source, T positions, D width.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attention.multihead import KeyValues, MultiHeadAttention
from regard.attention.positions import Sinusoidal
from regard.models.base import ModelConfig, Seq2Seq


@dataclass(frozen=True, kw_only=True)
class LookBackConfig(ModelConfig):
    """Sizes of the model."""

    hidden: int = 64
    """Width of everything."""
    heads: int = 4
    """Number of heads of the attention to the source, a divisor of `hidden`."""


@dataclass(frozen=True)
class Memory:
    """The encoded source."""

    source: KeyValues
    """Projected keys and values of the source, for all decoding steps."""
    mask: Tensor
    """Mask (B, 1, Ts), True before the end."""
    begin: Tensor
    """Initial state of the cell (B, 1, D)."""


@dataclass(frozen=True)
class Written:
    """State of the decoder after a step."""

    memory: Memory
    state: Tensor
    """(B, K, D)."""
    context: Tensor
    """Last context (B, K, D)."""
    time: int = 0
    """Steps behind it."""

    def choose(self, hypotheses: Tensor) -> "Written":
        """Select hypotheses of each source; `hypotheses` (B, K') int64 are indices into K."""
        index = hypotheses.unsqueeze(-1).expand(-1, -1, self.state.shape[-1])
        return replace(self, state=self.state.gather(1, index), context=self.context.gather(1, index))

    def keep(self, sources: Tensor) -> "Written":
        """Select sources; `sources` (B',) int64 are indices into B."""
        source = self.memory.source.map(lambda states: states[sources])
        memory = Memory(source, self.memory.mask[sources], self.memory.begin[sources])
        return Written(memory, self.state[sources], self.context[sources], self.time)


class LookBack(Seq2Seq):
    """`s = cell([token; c], s)`, then `c = heads(s, source)`, then `logits = W tanh([s; c])`."""

    config_class = LookBackConfig
    cross_layers = ("cross",)

    def __init__(self, config: LookBackConfig, *, source_symbols: int, target_symbols: int, **others: int) -> None:
        super().__init__()
        del others  # the model ignores maximum lengths and shared vocabularies
        width = config.hidden
        self.source_embedding = nn.Embedding(source_symbols, width)
        self.target_embedding = nn.Embedding(target_symbols, width)
        self.positions = Sinusoidal(width)
        self.cell = nn.GRUCell(2 * width, width)
        self.cross = MultiHeadAttention(width, config.heads)
        self.output = nn.Linear(2 * width, target_symbols)

    @property
    def input_embedding(self) -> nn.Module:
        """Embedding of the source."""
        return self.source_embedding

    @property
    def vocabulary_layer(self) -> tuple[Tensor, Tensor | None]:
        """Return the weight (V, 2 D) and bias (V,) of the output layer."""
        return self.output.weight, self.output.bias

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        """Return the memory of sources (B, Ts); `source_mask` (B, Ts) is True before the end."""
        states = self.positions(self.source_embedding(source))
        there = source_mask.unsqueeze(-1)
        begin = (states * there).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1)
        return Memory(self.cross.project(states), source_mask.unsqueeze(1), begin)

    def read(self, target_in: Tensor, memory: Memory, forced: Tensor | None = None) -> Tensor:
        """Return the inputs (B, Tt, 2 D) of the output layer, computed step by step."""
        del forced  # training always feeds the true target
        found, state = [], self.start(memory)
        for time in range(target_in.shape[1]):
            read, state = self.step(target_in[:, time : time + 1], state)
            found.append(read)
        return torch.cat(found, dim=1)

    def start(self, memory: Memory) -> Written:
        """Return the initial state, with one hypothesis for each source."""
        return Written(memory, memory.begin, torch.zeros_like(memory.begin))

    def step(self, tokens: Tensor, state: Written) -> tuple[Tensor, Written]:
        """Feed one token to each hypothesis, (B, K); return (B, K, 2 D) and the next state."""
        fed = torch.cat([self.target_embedding(tokens), state.context], dim=-1)
        new = self.cell(fed.flatten(0, 1), state.state.flatten(0, 1)).view_as(state.state)
        # All hypotheses of a source are queries in the same call. Recording uses the number of the step.
        context = self.cross.attend(new, state.memory.source, state.memory.mask, step=state.time)
        read = torch.tanh(torch.cat([new, context], dim=-1))
        return read, Written(state.memory, new, context, state.time + 1)
