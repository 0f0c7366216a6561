"""Models built from `regard.attention`."""

from regard.models.query import Initialisation, QueryModel, QueryModelConfig

__all__ = ["Initialisation", "QueryModel", "QueryModelConfig"]
