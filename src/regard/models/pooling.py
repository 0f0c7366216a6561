"""The pooling classifier: a recurrent encoder whose states are pooled into one summary vector for all outputs.

    states   = encoder(embedding(letters))        B x T x D
    summary  = pooling(states)                    B x D
    logits   = summary W + b                      B x To x classes

There are four kinds of pooling: the last state of each direction, the maximum of each dimension over time, the
mean, and attention with the last state as query and all states as keys and values.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from regard.arguments import Limits, check_fields, public
from regard.attention.layer import Attention
from regard.attention.scores import find_score, make_score
from regard.errors import InputError
from regard.models.base import AnswerModel, ModelConfig
from regard.models.recurrent import Cell, RecurrentEncoder, check_width

Pooling = Literal["attention", "last", "max", "mean"]


@public
@dataclass(frozen=True, kw_only=True)
class PoolingConfig(ModelConfig):
    """Options of a pooling classifier."""

    hidden: int = 64
    """Width of the embeddings and states. Each direction has half of the width of the states."""
    enc_layers: Annotated[int, Limits(1, 100)] = 1
    """Recurrent layers."""
    cell: Cell = "lstm"
    """Recurrent cell."""
    pooling: Pooling = "attention"
    """Pooling of the states over time: attention, the last state, the maximum or the mean."""
    score: str = "general"
    """Attention score: dot, scaled_dot, general, concat, additive, or your own class as module:Class (see
    regard.attention.scores)."""
    attention: str = "softmax"
    """Attention mechanism: a normalizer (softmax, softmax_one, sink, sigmoid, sparsemax, entmax, or topk:8), a
    score (as in --score, cosine, soft_capped, scalable), or both joined by a comma, or your own part as
    module:Class. See docs/reference/mechanisms.md."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a value out of range."""
        check_fields(self)
        check_width(self.hidden)
        find_score(self.score)
        self.check_single_head("pooling")
        if self.pooling != "attention" and self.attention != ModelConfig.attention:
            raise InputError(
                f"attention {self.attention} does not fit pooling {self.pooling}, which has no attention: leave "
                f"one of them out"
            )


@public
class PoolingModel(AnswerModel):
    """Recurrent encoder with pooling (equations at the top of this file). The attention layer is `cross`.

    Sequences may have any length, so `input_len` and `vary_len` are ignored.

    >>> model = PoolingModel(PoolingConfig(hidden=8), letters=4, outputs=3, classes=7)
    >>> model(torch.zeros(2, 6, dtype=torch.int64)).shape
    torch.Size([2, 3, 7])
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
        self.cross = None
        if config.pooling == "attention":
            score = make_score(config.score, width)
            self.cross = Attention(score, mechanism=config.mechanism, kind="cross")
        self.cross_layers = () if self.cross is None else ("cross",)
        self.output = nn.Linear(width, outputs * classes)

    @property
    def input_embedding(self) -> nn.Module:
        return self.embedding

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits (B, To, classes) for letters (B, T) int64, with `mask` (B, T) True before the end."""
        # The index -1 after the end can be replaced by any letter, because the encoder sets the states after
        # the end to zero.
        states, last = self.encoder(self.embedding(inputs.clamp(min=0)), mask)
        logits: Tensor = self.output(self.pool(states, last, mask)).unflatten(-1, (self.outputs, -1))
        return logits

    def pool(self, states: Tensor, last: Tensor, mask: Tensor | None) -> Tensor:
        """Return the summary (B, D) for states (B, T, D), which are zero at padding, and last states (B, D)."""
        if self.cross is not None:
            context: Tensor = self.cross(last.unsqueeze(1), states, states, None if mask is None else mask.unsqueeze(1))
            return context.squeeze(1)
        if self.pooling == "last":
            return last
        if self.pooling == "mean":
            return states.sum(1) / (states.shape[1] if mask is None else mask.sum(1, keepdim=True))
        return (states if mask is None else states.masked_fill(~mask.unsqueeze(-1), -torch.inf)).amax(1)
