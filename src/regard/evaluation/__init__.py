"""Evaluation: how good the answers are."""

from regard.evaluation.exact_match import exact_match, fresh_batches

__all__ = ["exact_match", "fresh_batches"]
