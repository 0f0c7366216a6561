"""Interpretation: test with relevance, ablation, probing and alignment whether attention is meaningful."""
