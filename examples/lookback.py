"""A model of one's own that writes sequences: a recurrent cell that looks back at the source, with several heads.

    cd examples
    regard train reverse --model lookback:LookBack --steps 500
    regard translate reverse ABC --plot

The source is embedded, with waves for its positions; the target's last token and the last context go into a cell,
whose state asks the source what to write next. It derives from `Seq2Seq`, whose docstring says what the
constructor is given; the fields of its config are flags. Letters: B sources, K hypotheses of each, T steps, D
width.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attention import KeyValues, MultiHeadAttention, Sinusoidal
from regard.models import ModelConfig, Seq2Seq


@dataclass(frozen=True, kw_only=True)
class LookBackConfig(ModelConfig):
    """The parts of the model."""

    hidden: int = 64
    """Width of everything."""
    heads: int = 4
    """Heads that look back; they divide hidden."""


@dataclass(frozen=True)
class Memory:
    """What may be looked at."""

    source: KeyValues
    """Projected once, for all steps."""
    mask: Tensor
    """(B, 1, Ts), True before the end."""
    begin: Tensor
    """(B, 1, D), the state that every target begins with."""


@dataclass(frozen=True)
class Written:
    """All that one step hands to the next."""

    memory: Memory
    state: Tensor
    """(B, K, D)."""
    context: Tensor
    """(B, K, D), what was seen last."""
    time: int = 0
    """Steps behind it."""

    def choose(self, hypotheses: Tensor) -> "Written":
        """Return the state of some hypotheses of each source: (B, K') int64, indices into K."""
        index = hypotheses.unsqueeze(-1).expand(-1, -1, self.state.shape[-1])
        return replace(self, state=self.state.gather(1, index), context=self.context.gather(1, index))

    def keep(self, sources: Tensor) -> "Written":
        """Return the state of some of the sources: (B',) int64, indices into B."""
        keys, values = (each[sources] for each in self.memory.source)
        memory = Memory(KeyValues(keys, values), self.memory.mask[sources], self.memory.begin[sources])
        return Written(memory, self.state[sources], self.context[sources], self.time)


class LookBack(Seq2Seq):
    """`s = cell([token; c], s)`, then `c = heads(s, source)`, then `logits = W tanh([s; c])`."""

    config_class = LookBackConfig
    cross_layers = ("cross",)

    def __init__(
        self, config: LookBackConfig, *, source_symbols: int, target_symbols: int, **others: int
    ) -> None:
        super().__init__()
        del others  # how long sequences are, and whether the vocabularies are one, does not matter here
        width = config.hidden
        self.source_embedding = nn.Embedding(source_symbols, width)
        self.target_embedding = nn.Embedding(target_symbols, width)
        self.positions = Sinusoidal(width)
        self.cell = nn.GRUCell(2 * width, width)
        self.cross = MultiHeadAttention(width, config.heads)
        self.output = nn.Linear(2 * width, target_symbols)

    @property
    def input_embedding(self) -> nn.Module:
        """The source's embedding."""
        return self.source_embedding

    @property
    def vocabulary_layer(self) -> tuple[Tensor, Tensor | None]:
        """Weight (V, 2 D) and bias (V,) of the last layer."""
        return self.output.weight, self.output.bias

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        """Return the memory of sources (B, Ts); `source_mask` (B, Ts), True before the end."""
        states = self.positions(self.source_embedding(source))
        there = source_mask.unsqueeze(-1)
        begin = (states * there).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1)
        return Memory(self.cross.project(states), source_mask.unsqueeze(1), begin)

    def read(self, target_in: Tensor, memory: Memory, forced: Tensor | None = None) -> Tensor:
        """Return what the vocabulary layer reads, (B, Tt, 2 D), one step after the other."""
        del forced  # it is always fed the true target
        found, state = [], self.start(memory)
        for time in range(target_in.shape[1]):
            read, state = self.step(target_in[:, time : time + 1], state)
            found.append(read)
        return torch.cat(found, dim=1)

    def start(self, memory: Memory) -> Written:
        """Return the state before the first step, with one hypothesis for each source."""
        return Written(memory, memory.begin, torch.zeros_like(memory.begin))

    def step(self, tokens: Tensor, state: Written) -> tuple[Tensor, Written]:
        """Feed one token to each hypothesis, (B, K): returns (B, K, 2 D), and the state after it."""
        fed = torch.cat([self.target_embedding(tokens), state.context], dim=-1)
        new = self.cell(fed.flatten(0, 1), state.state.flatten(0, 1)).view_as(state.state)
        # The hypotheses of a source ask side by side. At which step they stand is for those who record.
        context = self.cross.attend(new, state.memory.source, state.memory.mask, step=state.time)
        read = torch.tanh(torch.cat([new, context], dim=-1))
        return read, Written(state.memory, new, context, state.time + 1)
