"""Synthetic tasks with known answers and known relevance, and translation from parallel text."""
