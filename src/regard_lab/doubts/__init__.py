"""Doubt: which translations of a run cannot be trusted, and why."""
