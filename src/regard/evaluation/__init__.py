"""Evaluation: exact match, BLEU, chrF, validation, and log-probabilities of targets."""
