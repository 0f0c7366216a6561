"""Decoding: find the most likely target of a source, one token at a time."""
