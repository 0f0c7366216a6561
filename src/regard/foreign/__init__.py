"""Models that were not built here, as subjects: PyTorch's layers, Hugging Face's models, anybody's own."""

from regard.foreign.recording import record

__all__ = ["record"]
