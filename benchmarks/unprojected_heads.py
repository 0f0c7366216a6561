"""A query model with several heads and no projections, for attention_results.py."""

from typing import Any

from torch import nn

from regard.attention.multihead import MultiHeadAttention
from regard.models.query import QueryModel, QueryModelConfig


class UnprojectedQueryModel(QueryModel):
    """A query model whose heads are slices of the states; its projections are fixed to the identity."""

    def __init__(self, config: QueryModelConfig, **sizes: Any) -> None:
        super().__init__(config, **sizes)
        for layer in self.modules():
            if isinstance(layer, MultiHeadAttention):
                for part in (layer.query, layer.key, layer.value, layer.output):
                    nn.init.eye_(part.weight)
                    part.requires_grad_(False)
