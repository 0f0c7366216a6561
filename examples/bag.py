"""A custom model: a bag of letters, weighted by learned queries.

    cd examples
    regard train counting --model bag:Bag --lr 0.01
    regard test counting

Each output has a learned query, whose weights select letters. The weighted mean of the letters passes through
one hidden layer. The model has no positions, no heads and no encoder. The class derives from `AnswerModel`,
whose docstring describes the arguments of the constructor. The fields of the config become flags.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention.layer import Attention
from regard.attention.scores import Additive
from regard.models.base import AnswerModel, ModelConfig


@dataclass(frozen=True, kw_only=True)
class BagConfig(ModelConfig):
    """Sizes of the model."""

    hidden: int = 32
    """Width of letters, queries and the hidden layer."""


class Bag(AnswerModel):
    """`logits = W2 relu(W1 context)`; `context` is the mean of the letters, weighted by one query per output."""

    config_class = BagConfig
    cross_layers = ("cross",)

    def __init__(self, config: BagConfig, *, letters: int, outputs: int, classes: int, **others: int) -> None:
        super().__init__()
        del others  # the model ignores the length of the input
        self.embedding = nn.Embedding(letters, config.hidden)
        self.queries = nn.Parameter(torch.randn(outputs, config.hidden))
        self.cross = Attention(Additive(config.hidden))
        self.output = nn.Sequential(
            nn.Linear(config.hidden, config.hidden), nn.ReLU(), nn.Linear(config.hidden, classes)
        )

    @property
    def input_embedding(self) -> nn.Module:
        """Embedding of the letters."""
        return self.embedding

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits (B, To, classes) for letters (B, T); `mask` (B, T) is True before the end."""
        letters = self.embedding(inputs.clamp(min=0))
        queries = self.queries.expand(len(inputs), -1, -1)
        logits: Tensor = self.output(self.cross(queries, letters, letters, mask))
        return logits
