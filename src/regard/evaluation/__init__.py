"""Evaluation: how good the answers are."""

from regard.evaluation.alignment import Alignment, alignment, error_rate
from regard.evaluation.exact_match import exact_match, fresh_batches
from regard.evaluation.scoring import Scored, score_pairs
from regard.evaluation.translation import Quality, bleu, quality

__all__ = [
    "Alignment",
    "Quality",
    "Scored",
    "alignment",
    "bleu",
    "error_rate",
    "exact_match",
    "fresh_batches",
    "quality",
    "score_pairs",
]
