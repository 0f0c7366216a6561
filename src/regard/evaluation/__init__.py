"""Evaluation: exact match, BLEU, chrF, validation, and log-probabilities of targets."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.evaluation.bleu import Quality, bleu, quality
    from regard.evaluation.exact_match import exact_match, fresh_batches
    from regard.evaluation.scoring import Scored, score_pairs
    from regard.evaluation.validation import validation

late(__name__)

__all__ = [
    "Quality",
    "Scored",
    "bleu",
    "exact_match",
    "fresh_batches",
    "quality",
    "score_pairs",
    "validation",
]
