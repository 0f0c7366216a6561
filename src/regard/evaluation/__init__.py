"""Evaluation: exact match, BLEU, chrF, validation, and log-probabilities of targets."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.evaluation.bleu import Quality as Quality, bleu as bleu, quality as quality
    from regard.evaluation.exact_match import exact_match as exact_match, fresh_batches as fresh_batches
    from regard.evaluation.scoring import Scored as Scored, score_pairs as score_pairs
    from regard.evaluation.validation import validation as validation

late(__name__)
