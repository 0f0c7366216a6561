"""The pooling classifier: a recurrent encoder whose states become one summary, from which all answers are read.

    states   = encoder(embedding(letters))        B x T x D
    summary  = pooling(states)                    B x D
    logits   = summary W + b                      B x To x classes

Four ways to pool: the last state of each direction; the largest value of each dimension over time; the mean; or
attention, whose query is the last state and whose keys and values are all of them.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.attention import Attention, find_score, make_score
from regard.errors import check_choices, check_range
from regard.models.answer import AnswerModel
from regard.models.cells import Cell
from regard.models.config import ModelConfig
from regard.models.recurrent_encoder import RecurrentEncoder, check_width

Pooling = Literal["attention", "last", "max", "mean"]


@dataclass(frozen=True, kw_only=True)
class PoolingConfig(ModelConfig):
    """The parts of a pooling classifier."""

    hidden: int = 64
    """Width of embeddings and states: half of it for each direction."""
    enc_layers: int = 1
    """Recurrent layers."""
    cell: Cell = "lstm"
    """Recurrent cell."""
    pooling: Pooling = "attention"
    """How states over time become one summary: attention, the last state, the maximum or the mean."""
    score: str = "general"
    """Score of the attention: dot, scaled_dot, general, concat, additive, or a class of your own as module:Class
    (see regard.attention.scores)."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        check_choices(self)
        check_width(self.hidden)
        check_range("enc_layers", self.enc_layers, 1, 100)
        find_score(self.score)


class PoolingModel(AnswerModel):
    """See the module's docstring. The attention layer is called `cross`: outputs attend to inputs.

    It takes sequences of any length, so `input_len` and `vary_len` do not matter.
    """

    config_class = PoolingConfig

    def __init__(
        self,
        config: PoolingConfig,
        *,
        letters: int,
        outputs: int,
        classes: int,
        input_len: int | None = None,
        vary_len: bool = True,
    ) -> None:
        super().__init__()
        del input_len, vary_len
        width = config.hidden
        self.pooling, self.outputs = config.pooling, outputs
        self.embedding = nn.Embedding(letters, width)
        self.encoder = RecurrentEncoder(width, width, layers=config.enc_layers, cell=config.cell)
        self.cross = Attention(make_score(config.score, width)) if config.pooling == "attention" else None
        self.cross_layers = () if self.cross is None else ("cross",)
        self.output = nn.Linear(width, outputs * classes)

    @property
    def input_embedding(self) -> nn.Module:
        """The letters' embedding."""
        return self.embedding

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits (B, To, classes) for letters (B, T) int64; `mask` (B, T), True before the end."""
        # Past the end stands an index of -1: any letter will do there, for nothing reads it.
        states, last = self.encoder(self.embedding(inputs.clamp(min=0)), mask)
        found: Tensor = self.output(self.pool(states, last, mask)).unflatten(-1, (self.outputs, -1))
        return found

    def pool(self, states: Tensor, last: Tensor, mask: Tensor | None) -> Tensor:
        """Return the summary (B, D) of states (B, T, D), zero at padding, and last states (B, D)."""
        if self.cross is not None:
            seen = None if mask is None else mask.unsqueeze(1)
            found: Tensor = self.cross(last.unsqueeze(1), states, states, seen).squeeze(1)
            return found
        if self.pooling == "last":
            return last
        if self.pooling == "mean":
            return states.sum(1) / (states.shape[1] if mask is None else mask.sum(1, keepdim=True))
        return (states if mask is None else states.masked_fill(~mask.unsqueeze(-1), -torch.inf)).amax(1)
