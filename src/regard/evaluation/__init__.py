"""Evaluation: how good the answers are."""

from regard.evaluation.alignment import Alignment, alignment, error_rate
from regard.evaluation.exact_match import exact_match, fresh_batches

__all__ = ["Alignment", "alignment", "error_rate", "exact_match", "fresh_batches"]
