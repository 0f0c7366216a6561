"""Activations: record and replace what attention layers compute, in any model."""
